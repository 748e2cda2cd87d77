# SPDX-License-Identifier: Apache-2.0

"""kill -9 of the controller and of its database while VMs are launched."""

import collections
import contextlib
import os
import random
import signal
import threading

import pytest

from tests import databases as real_databases
from tests import patience
from tests.faults import history
from tests.faults import nova as fake_nova
from tests.functional.controller import harness
from virtco_lab.services import service

FULL = os.environ.get('VIRTCO_FAULTS') == 'full'
N_LAUNCHES = 2000 if FULL else 80
MOST_KILLS = 30 if FULL else 2
CAPACITIES = {f'h{i}': 6 for i in range(12)}
#: Nova's patience; the controller answers within its own deadline.
PATIENCE_S = 30
DEADLINE_S = 5


class Plain:
    """A tenant whose hosts are called as they are."""

    def __init__(self, controller):
        self.controller = controller
        self.call = controller.call

    def host(self, name):
        return name

    def instance(self, number):
        return str(number)


@pytest.mark.parametrize('kind', real_databases.of(
    # Its server is killed as well; SQLite has none.
    'postgresql', real_databases.KINDS, still='the kills on PostgreSQL; '
    'test_kill_between_placements_loses_no_answer has one on SQLite'))
def test_nothing_is_lost_or_doubled(kind, databases, tmp_path):
    connection = databases.make_current(kind, tmp_path)
    history.record(connection)
    port, = service.free_ports(1)
    controller = harness.ControllerProcess(tmp_path, {
        'api': {'port': port}, 'database': {'connection': connection},
        'controller': {'db_timeout_s': 2},
        'placement': {'deadline_s': DEADLINE_S, 'budget_s': 0.05}})
    with contextlib.ExitStack() as stack:
        stack.callback(controller.stop, signal.SIGKILL)
        controller.start()
        nova = stack.enter_context(contextlib.closing(fake_nova.Nova(
            controller.url, CAPACITIES, patience_s=PATIENCE_S,
            pace=fake_nova.Pace(stale_s=0.8))))
        killed, generations = _kill_while_launching(
            controller, databases.server(kind) if kind != 'sqlite' else None,
            nova, connection)
        nova.settle()
        _judge(nova, history.read(connection), killed, generations,
               history.count_empty_groups(connection))


def _kill_while_launching(controller, server, nova, connection):
    """What was killed how often, and the generations of a policy."""
    errors = []

    def launch():
        try:
            fake_nova.drive(nova, N_LAUNCHES, 4)
        except BaseException as error:
            errors.append(error)
            raise

    thread = threading.Thread(target=launch)
    thread.start()
    rng, killed, generations = random.Random(1), collections.Counter(), []
    edge = harness.Edge(Plain(controller), 'h0')
    wait = patience.Patience('the end of the launches', 600)
    while thread.is_alive():
        wait.pause(1 + rng.random())
        if sum(killed.values()) < MOST_KILLS:
            # Alternately, so that a short run has both.
            if server is None or sum(killed.values()) % 2:
                controller.stop(signal.SIGKILL)
                controller.start()
                killed['controller'] += 1
            else:
                server.kill()
                wait.pause(rng.random())
                server.start()
                killed['database'] += 1
        generations.append(_generation(controller, edge))
    assert not errors, errors
    return killed, [one for one in generations if one is not None]


def _generation(controller, edge):
    """Of the policy of h0, if the database lets it report."""
    with contextlib.suppress(AssertionError, OSError):
        edge.report()
    policy = edge.policy(limit_s=2)
    return policy and policy['generation']


def _judge(nova, changes, killed, generations, n_empty):
    final = history.final(changes)
    expected = {vm: (host, 'running') for vm, host in nova.claims.items()}
    print(f'killed {dict(killed)}; {dict(nova.counts)}; notifications sent '
          f'again: {nova.n_again()}; slowest answer {nova.slowest_s:.1f} s')
    assert sum(killed.values()) > 0
    assert nova.counts['planned'] > 0
    # Lost: a VM that is not where Nova built it, or is not there any more.
    assert {vm: (found, expected.get(vm)) for vm, found in final.items()
            if found != expected.get(vm)} == {}
    assert n_empty == 0
    assert [one for one in history.overbooked(changes, CAPACITIES)
            if not one.is_novas] == []
    assert generations == sorted(generations)
    # Nova never waited in vain.
    assert nova.counts['no answer: ReadTimeout'] == 0
