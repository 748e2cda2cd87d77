# SPDX-License-Identifier: Apache-2.0

"""Rows of groups that are new, and what a project may have."""

import pytest

from tests.unit import stored
from virtco import exception
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


def test_a_coflow_to_come_has_sent_nothing():
    group = models.Group(id='g', project_id='p')
    given = models.Project(priority_class=2, weight=3.0)
    one, = new_groups.new_coflows(group, [MATRIX], given, 9.0)
    assert (one.sent_bytes, one.iteration, one.position) == (0.0, 0, 0)
    assert (one.n_flows, one.size_bytes, one.dst_port) == (2, 12e6, 80)
    assert (one.priority_class, one.weight, one.created_at) == (2, 3.0, 9.0)
    assert one.state == states.CoflowState.PLANNED
