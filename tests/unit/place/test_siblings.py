# SPDX-License-Identifier: Apache-2.0

"""Members whose host is planned are answered by key."""

import json
import time

import pytest

from tests.unit import stored
from tests.unit.place import asking
from virtco import decoding
from virtco import exception
from virtco import hint_matrix
from virtco import metrics
from virtco.cmd import controller
from virtco.db import groups
from virtco.db import members
from virtco.db import migration
from virtco.db import models
from virtco.db import records
from virtco.db import session as db_session
from virtco.objects import settings
from virtco.place import deadline as deadlines
from virtco.place import decisions
from virtco.place import placer as placers
from virtco.state import live_state
from virtco.wire import placement as wire

RING = '{"pattern": "ring", "n": 4, "flow_size": "10MB"}'
PLACEMENT = decoding.Decoder(wire.Placement)


@pytest.fixture
def database(tmp_path):
    found = db_session.Database(f'sqlite:///{tmp_path}/db.sqlite', 0.3)
    migration.upgrade(found)
    yield found
    found.dispose()


@pytest.fixture
def place(database):
    conf = controller.make_conf([])
    counts = metrics.Metrics()
    placer = placers.Placer(
        conf, stored.state(database, live_state.LiveState()),
        settings.Settings(conf, database, lambda: None), counts,
        deadlines.Pace(), decisions.Decisions(database), time.time)

    def ask(number, matrix=RING, deadline=None, **changes):
        body = {
            'project_id': 'p', 'launch_index': number, 'num_instances': 4,
            'reservation_id': 'r', 'hints': {'virtco:coflow': 'a'} | (
                {'virtco:tm': matrix} if matrix else {}),
            'flavor': {'vcpus': 1, 'memory_mb': 512, 'disk_gb': 1},
            'hosts': [{'host': f'h{i:03}', 'free': {
                'vcpus': 2, 'memory_mb': 4096, 'disk_gb': 90}}
                for i in range(300)]} | changes
        request = PLACEMENT.decode(
            json.dumps(body | {'instance_uuid': f'vm-{number}'}).encode())
        return placer.place(request, deadline or deadlines.Deadline(60))
    return ask


def test_a_batch_smaller_than_its_matrix_is_noted(place, database):
    assert '3 servers for a matrix of 4 rows' in place(
        0, num_instances=3).why
    place(1, num_instances=3)
    with database.reader() as session:
        assert [event.kind for event in records.list_events(session)] == [
            'rows_left']


@pytest.fixture
def parsed(monkeypatch):
    """Texts of matrices that were read."""
    found = []
    parse = hint_matrix.parse_matrix_text
    monkeypatch.setattr(
        hint_matrix, 'parse_matrix_text',
        lambda text, *args: found.append(text) or parse(text, *args))
    return found


@pytest.mark.parametrize('matrix', [RING, None])
def test_a_sibling_is_answered_without_its_matrix(place, parsed, matrix):
    first = place(0)
    answers = [place(n, matrix) for n in (1, 2, 3)]
    assert parsed == [RING]
    assert [a.host for a in answers] == [first.rows[str(n)]
                                         for n in (1, 2, 3)]
    assert [a.row for a in answers] == [1, 2, 3]
    assert {a.cct_s for a in answers} == {first.cct_s}
    for answer in answers:
        assert answer.hosts[0].host == answer.host
        names = [entry.host for entry in answer.hosts]
        assert len(set(names)) == len(names) < 300
        # Alternates come in the order that suited the first.
        assert set(names[1:]) <= {e.host for e in first.hosts}


def test_another_matrix_is_noted(place, parsed, database):
    place(0)
    other = RING.replace('10MB', '20MB')
    assert 'keeps the matrix' in place(1, other).why
    assert 'keeps the matrix' not in place(2).why
    assert parsed == [RING, other]


def test_the_same_matrix_in_other_words_is_the_same(place, parsed):
    place(0)
    other = RING.replace(' ', '')
    assert place(1, other).why == 'as planned'
    assert place(2, other).why == 'as planned'
    assert parsed == [RING, other]


def test_a_member_is_taken_once(place, database):
    place(0)
    with database.reader() as session:
        connection = session.connection()
        planned = members.next_planned(connection, 'p', 'a', 'x', None, 1)
        assert planned.index == 1
        assert members.next_planned(connection, 'p', 'a', 'vm-0', None, 1
                                    ) is None
        assert members.next_planned(connection, 'p', 'a', 'x', 0, 1) is None
        assert members.next_planned(connection, 'p', 'a', 'x', 3, 1).index == 3
        # After the last one comes the first that is free.
        assert members.next_planned(connection, 'p', 'a', 'x', None, 4
                                    ).index == 1
        before = groups.generation(session)
    values = {'instance_uuid': 'x', 'display_name': '', 'reservation_id': '',
              'expires_at': 1.0, 'vcpus': 1.0, 'memory_mb': 1.0,
              'disk_gb': 1.0, 'egress_cap_bps': None,
              'ingress_cap_bps': None, 'egress_burst_bytes': 0.0,
              'ingress_burst_bytes': 0.0}
    with database.statements() as connection:
        groups.advance(connection)
        members.take(connection, planned, values)
    with database.reader() as session:
        assert groups.generation(session) == before + 1
        assert groups.member_of(session, 'x').host == planned.host
    with (pytest.raises(exception.Conflict),
          database.statements() as connection):
        members.take(connection, planned, values | {'instance_uuid': 'y'})


def test_nothing_is_committed_after_the_deadline(place, database):
    place(0)
    with database.reader() as session:
        before = groups.generation(session)
    late = deadlines.Deadline(60)
    late.give_up()
    with pytest.raises(exception.TooLate):
        place(1, deadline=late)
    with database.reader() as session:
        assert groups.member_of(session, 'vm-1') is None
        assert groups.generation(session) == before


def test_each_answer_that_books_a_host_is_a_generation():
    """So that no other one is committed on what was seen before it."""
    ask = asking.Asking()

    def generation():
        (row,) = ask.rows(models.Cluster)
        return row['generation']

    before = generation()
    # The first plans, the second is a sibling, the third reads the plan.
    for number, one in enumerate((ask, ask, ask.another()), 1):
        one.place(number - 1)
        assert generation() == before + number


def test_without_a_number_the_first_planned_row_comes():
    ask = asking.Asking()
    first = ask.place(1)
    answer = ask.place(7, launch_index=None)
    assert (answer.row, answer.host) == (0, first.rows['0'])
    other = asking.Asking()
    other.place(0)
    assert other.place(8, launch_index=2).row == 2


def test_a_sibling_is_a_member_afterwards():
    """Whichever way its answer took."""
    ask = asking.Asking()
    first = ask.place(0)
    ask.now_s += 7
    for number, one in ((1, ask), (2, ask.another())):
        one.now_s = ask.now_s
        one.place(number)
    found = {row['row_index']: row for row in ask.rows(models.Member)}
    for row in (1, 2):
        assert [found[row][name] for name in (
            'instance_uuid', 'state', 'host', 'display_name',
            'reservation_id', 'vcpus', 'expires_at')] == [
                f'vm-{row}', 'reserved', first.rows[str(row)], f'v{row}',
                'r', 1, ask.reader.expiry_s()]


def test_one_that_was_answered_before_may_become_a_sibling():
    """Its new answer takes the place of the old one."""
    ask = asking.Asking()
    first = ask.place(0)
    assert ask.place(1, hints={'virtco:index': '9'}).status == 'ignored'
    assert ask.place(1).host == first.rows['1']
    assert sorted((row['instance_uuid'], 'as planned' in row['answer'])
                  for row in ask.rows(models.Placement)) == [
        ('vm-0', False), ('vm-1', True)]


def test_another_group_of_the_same_name_is_not_taken_for_the_old_one():
    ask = asking.Asking()
    old = ask.place(0).group
    with ask.database.writer() as session:
        for model in (models.Member, models.Coflow, models.Group):
            session.query(model).delete()
    new = ask.another().place(5, matrix=[[0, 1], [0, 0]], num_instances=2)
    answer = ask.place(1, num_instances=2)
    assert answer.group == new.group != old
    assert 'keeps the matrix it began with' in answer.why
