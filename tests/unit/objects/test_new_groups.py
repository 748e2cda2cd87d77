# SPDX-License-Identifier: Apache-2.0

"""Rows of groups that are new, and what a project may have."""

import pytest

from tests.unit import stored
from virtco import exception
from virtco import hints
from virtco.db import models
from virtco.model import coflow
from virtco.model import states
from virtco.objects import new_groups

MATRIX = coflow.Coflow.from_flows('shuffle', 3, [(0, 1, 5e6), (0, 2, 7e6)],
                                  dst_port=80)


@pytest.fixture
def database():
    found = stored.database()
    for name in 'ab':
        stored.add(found, stored.group(name))
    return found


@pytest.mark.parametrize('most, n_new, is_refused', [
    (2, 0, False), (2, 1, True), (3, 1, False), (4, 3, True)])
def test_groups_that_live_and_those_to_come_count(database, most, n_new,
                                                  is_refused):
    conf = stored.conf(limits={'max_groups_per_project': most})
    with database.reader() as session:
        project_id = session.query(models.Group).first().project_id
        try:
            new_groups.check_project(session, conf, project_id, [MATRIX],
                                     n_new)
        except exception.HintInvalid as error:
            assert is_refused
            assert str(most) in str(error) and str(2 + n_new) in str(error)
        else:
            assert not is_refused


def test_a_coflow_to_come_has_sent_nothing(database):
    stored.add(database, models.Project(project_id='p', priority_class=2,
                                        weight=3.0))
    group = models.Group(id='g', project_id='p')
    with database.reader() as session:
        one, = new_groups.new_coflows(session, group, [MATRIX], 9.0)
    assert (one.sent_bytes, one.iteration, one.position) == (0.0, 0, 0)
    assert (one.n_flows, one.size_bytes, one.dst_port) == (2, 12e6, 80)
    assert (one.priority_class, one.weight, one.created_at) == (2, 3.0, 9.0)
    assert one.state == states.CoflowState.PLANNED
    assert one.is_promised is False and one.deadline_at is None


@pytest.mark.parametrize('most_flows, most_bytes, field', [
    (2, 12e6, None), (1, 12e6, 'flows'), (2, 11e6, 'bytes')])
def test_flows_and_bytes_of_new_matrices_count(
        database, monkeypatch, most_flows, most_bytes, field):
    conf = stored.conf(limits={'max_flows_per_project': most_flows})
    monkeypatch.setattr(new_groups, 'MAX_PROJECT_BYTES', most_bytes)
    with database.reader() as session:
        if field is None:
            new_groups.check_project(session, conf, 'p', [MATRIX], 0)
            return
        with pytest.raises(exception.HintInvalid, match=field):
            new_groups.check_project(session, conf, 'p', [MATRIX], 0)


def test_a_row_of_a_new_group_takes_nothing(database):
    hint = hints.parse({'virtco:coflow': 'a'}, {}, hints.Limits())
    with database.reader() as session:
        group, members, (coflow,) = new_groups.new_group(
            session, 'p', hint, [MATRIX], 9.0)
    assert (group.name, group.project_id, group.n_vms, group.created_at,
            group.live_key, group.app) == ('a', 'p', MATRIX.n_vms, 9.0, '',
                                           '')
    assert coflow.group_id == group.id
    assert [row.row_index for row in members] == list(range(MATRIX.n_vms))
    for row in members:
        assert (row.group_id, row.instance_uuid) == (group.id, None)
        assert (row.vcpus, row.memory_mb, row.disk_gb) == (0.0, 0.0, 0.0)
        assert row.state == states.MemberState.VACANT
