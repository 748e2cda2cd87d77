# SPDX-License-Identifier: Apache-2.0

"""What a launch does, counted: nothing grows faster than the cloud."""

import json
import math
import sys

import msgspec
import pytest
import sqlalchemy as sa

from benchmarks import growth
from benchmarks import launch
from virtco import app
from virtco.cmd import controller as controller_cmd
from virtco.db import migration
from virtco.model import snapshot
from virtco.place import deadline as deadlines
from virtco.solver import planner
from virtco.wire import placement as wire


def spread(problem, **_options):
    """A plan that costs the same to make, whatever the cloud's size."""
    return snapshot.Plan(
        hosts=tuple(problem.hosts[i].name for i in range(len(problem.vms))),
        cct_s=1.0, coflow_cct_s=(1.0,), objective=snapshot.Objective.ONLINE,
        objective_s=1.0, lower_bound_s=1.0, gap=0.0,
        method=snapshot.Method.SPREAD)


def counted(home, n_hosts, n_coflows):
    """Calls of functions, and statements, of the first and the next VM."""
    home.mkdir()
    config = home / 'virtco.conf'
    config.write_text(f'[controller]\nstate_dir = {home}\n')
    controller = app.App(controller_cmd.make_conf(
        ['--config-file', str(config)]))
    migration.upgrade(controller.database)
    launch.fill(controller, n_hosts, n_coflows, 36)
    controller.place.load_planner(is_used=False)
    controller.state.refresh()
    assert len(controller.state.live.loads()) == n_coflows
    statements = []
    sa.event.listen(controller.database.engine, 'before_cursor_execute',
                    lambda *arguments: statements.append(arguments[2]))
    found = []
    # The first group of all pays for what is made once.
    for number, row in ((0, 0), (0, 1), (1, 0), (1, 1)):
        request = msgspec.structs.replace(msgspec.json.decode(json.dumps(
            launch.body(number, row, n_hosts, 36)), type=wire.Placement),
            instance_uuid=launch.instance(number, row))
        calls = 0

        def count(_frame, event, _argument):
            nonlocal calls
            calls += event in ('call', 'c_call')

        statements.clear()
        sys.setprofile(count)
        try:
            answer = controller.place._work(controller.place._placer, request,
                                            deadlines.Deadline(60.0))
        finally:
            sys.setprofile(None)
        assert answer.status == 'planned'
        found.append((calls, len(statements)))
    controller.database.dispose()
    return found[2:]


@pytest.mark.parametrize('sizes', [
    [(100, 20), (800, 20)], [(100, 25), (100, 200)]])
def test_a_launch_does_no_more_than_the_cloud_is_larger(
        tmp_path, sizes, monkeypatch):
    monkeypatch.setattr(planner, 'plan', spread)
    small, large = (counted(tmp_path / str(i), *size)
                    for i, size in enumerate(sizes))
    for (few, few_statements), (many, many_statements) in zip(small, large):
        slope = math.log(many / few) / math.log(8)
        assert slope <= growth.MOST_SLOPE
        assert many_statements == few_statements
    # A sibling's question does not look at the cloud: its hosts are not
    # called one by one, its coflows not at all.
    assert large[1][0] < 1.5 * small[1][0]
