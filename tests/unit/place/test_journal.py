# SPDX-License-Identifier: Apache-2.0

"""Answers without a plan can be read later."""

import pytest

from virtco import exception
from virtco.db import migration
from virtco.db import records
from virtco.db import session as db_session
from virtco.objects import reasons
from virtco.place import answer as answers
from virtco.place import journal
from virtco.wire import fields
from virtco.wire import placement as wire


@pytest.fixture
def database(tmp_path):
    found = db_session.Database(f'sqlite:///{tmp_path}/db.sqlite', 0.3)
    migration.upgrade(found)
    yield found
    found.dispose()


def add(book, number, hints=None):
    request = wire.Placement(
        project_id='p', hints={'virtco:coflow': 'a'} if hints is None
        else hints, flavor=fields.Resources(1, 1, 1), hosts=[
            wire.Offer('h0', fields.Resources(1, 1, 1))],
        instance_uuid=f'vm-{number}')
    book.add(request, answers.neutral(f'vm-{number}', ['h0'],
                                      f'no time {number}'))


def details(database):
    with database.reader() as session:
        return [event.detail for event in records.list_events(
            session, limit=1000)][::-1]


def test_they_are_written_once(database):
    book = journal.Journal(database, lambda: 5.0)
    add(book, 0)
    add(book, 1, hints={})
    add(book, 2)
    book.write()
    book.write()
    assert details(database) == ['no time 0', 'no time 2']
    with database.reader() as session:
        found = records.newest_event(session, 'vm-2', reasons.NEUTRAL)
        assert (found.group_name, found.created_at) == ('a', 5.0)
        assert records.newest_event(session, 'vm-1', reasons.NEUTRAL) is None


def test_a_name_that_no_database_holds_keeps_no_others_back(database):
    book = journal.Journal(database, lambda: 5.0)
    add(book, 0, hints={'virtco:coflow': 'a\0b'})
    book.write()
    with database.reader() as session:
        found = records.newest_event(session, 'vm-0', reasons.NEUTRAL)
    assert found.group_name == r'a\x00b'


def test_they_wait_for_the_database(database, monkeypatch):
    book = journal.Journal(database, lambda: 5.0)
    add(book, 0)

    def away(*_args, **_kwargs):
        raise exception.DatabaseUnavailable(why='test')

    with monkeypatch.context() as patch:
        patch.setattr(database, 'writer', away)
        book.write()
    add(book, 1)
    book.write()
    assert details(database) == ['no time 0', 'no time 1']


def test_of_a_storm_the_newest_are_kept(database):
    book = journal.Journal(database, lambda: 5.0)
    for number in range(203):
        add(book, number)
    book.write()
    assert details(database) == [f'no time {n}' for n in range(3, 203)]


def test_texts_that_no_column_holds(database):
    book = journal.Journal(database, lambda: 5.0)
    request = wire.Placement(
        project_id='p', hints={'virtco:coflow': 'n' * 300},
        flavor=fields.Resources(1, 1, 1), hosts=[
            wire.Offer('h0', fields.Resources(1, 1, 1))],
        instance_uuid='vm')
    book.add(request, answers.neutral('vm', ['h0'], 'w' * 5000))
    book.write()
    with database.reader() as session:
        (event,) = records.list_events(session)
    assert (event.group_name, event.detail) == ('n' * 255, 'w' * 4000)
