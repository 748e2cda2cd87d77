# SPDX-License-Identifier: Apache-2.0

"""Profiles over a real database: written by the hour, read by pair."""

import collections

import pytest

from tests.unit import plain
from tests.unit import stored
from virtco import exception
from virtco.db import models
from virtco.objects import profiles
from virtco.profiles import pairs

HOUR_S = 3600.0


class Counting:
    """What the live state gives and takes back."""

    def __init__(self):
        self.counted = collections.defaultdict(dict)

    def take_profiles(self):
        found, self.counted = self.counted, collections.defaultdict(dict)
        return found

    def give_back_profiles(self, found):
        for group_id, of_group in found.items():
            pairs.add(self.counted[group_id], of_group.items())


class Bench:
    def __init__(self, **options):
        self.database = stored.database()
        self.database.fence = self.fence
        stored.add(self.database, stored.group(app='sort'),
                   stored.group('b', app='sort', n_vms=2),
                   stored.group('c', 'q'))
        self.state, self.hour, self.fences = Counting(), 1000, 0
        self.profiles = plain.Plain(profiles.Profiles(
            stored.conf(profiles=options),
            stored.state(self.database, self.state),
            lambda: self.hour * HOUR_S + 1800))

    def fence(self, session):
        self.fences += 1

    def flush(self, hour, group_id='p-a', unseen=(), **sent):
        """:param sent: row and row: bytes, as r01=5."""
        self.hour = hour
        if sent or unseen:
            pairs.add(self.state.counted[group_id], [
                *(((int(key[1]), int(key[2])), float(size))
                  for key, size in sent.items()),
                *((pair, pairs.UNSEEN) for pair in unseen)])
        self.profiles.flush()

    def rows(self):
        with self.database.reader() as session:
            return {(row.group_id, row.hour): pairs.decode(row.pairs)
                    for row in session.query(models.ProfileHour)}


@pytest.fixture
def bench():
    return Bench()


def test_bytes_are_kept_by_hour_and_group(bench):
    bench.flush(1000, r01=5)
    bench.flush(1000, r01=2, r10=3)
    bench.flush(1001, r01=1)
    bench.flush(1001, 'p-b', r10=4)
    bench.flush(1001, 'gone', r10=4)
    assert bench.rows() == {
        ('p-a', 1000): {(0, 1): 7, (1, 0): 3}, ('p-a', 1001): {(0, 1): 1},
        ('p-b', 1001): {(1, 0): 4}}
    assert bench.fences == 5


def test_where_profiles_are_off_nothing_is_kept():
    bench = Bench(keep_days=0)
    bench.flush(1000, r01=5)
    assert bench.rows() == {} and bench.fences == 0
    assert bench.state.take_profiles() == {}


def test_a_write_that_fails_is_made_up_for(bench):
    def fence(session):
        raise RuntimeError('overtaken')

    pairs.add(bench.state.counted['p-a'], [((0, 1), 5.0)])
    bench.database.fence = fence
    with pytest.raises(RuntimeError):
        bench.profiles.flush()
    assert bench.rows() == {}
    bench.database.fence = bench.fence
    bench.flush(1000, r01=1)
    assert bench.rows() == {('p-a', 1000): {(0, 1): 6}}


def test_rows_that_are_too_old_go_once_in_a_hundred_writes():
    bench = Bench(keep_days=2)
    bench.flush(1000)
    assert bench.fences == 1  # the first write looks for them
    bench.flush(1000)
    assert bench.fences == 1  # with nothing to write the second does not
    for hour in (1000, 1001):
        bench.flush(hour, r01=1)
    bench.hour = 1000 + 49
    for _ in range(97):
        bench.flush(bench.hour, r10=1)
    assert len(bench.rows()) == 3
    bench.flush(bench.hour, r10=1)
    assert bench.rows().keys() == {('p-a', 1001), ('p-a', 1049)}


def test_a_project_keeps_its_newest_rows(bench, monkeypatch):
    monkeypatch.setattr(profiles, 'MAX_ROWS', 24)
    for hour in range(30):
        bench.flush(hour, r01=1)
    bench.flush(0, 'q-c', r01=1)
    assert sorted(hour for group_id, hour in bench.rows()
                  if group_id == 'p-a') == list(range(6, 30))
    assert ('q-c', 0) in bench.rows()


def test_groups_are_listed(bench):
    bench.flush(1000, r01=5)
    bench.flush(1003, r01=5)
    bench.flush(1001, 'q-c', r01=5)
    first, second = bench.profiles.groups(None)
    assert first == {
        'group_id': 'p-a', 'project_id': 'p', 'group_name': 'a',
        'app': 'sort', 'n_vms': 3, 'first_hour': 1000 * HOUR_S,
        'last_hour': 1003 * HOUR_S, 'n_hours': 2}
    assert second['app'] is None
    assert bench.profiles.groups('p') == [first]


def test_what_a_group_sent_and_will_send(bench):
    bench.flush(1000, r01=50, r02=7)
    bench.flush(1001, unseen=[(2, 0)], r01=30)
    bench.flush(1003, r01=40)
    found = bench.profiles.show('p', 'a')
    assert {key: found[key] for key in (
        'group_id', 'project_id', 'group_name', 'app', 'n_vms', 'n_hours',
        'size_bytes')} == {
            'group_id': 'p-a', 'project_id': 'p', 'group_name': 'a',
            'app': 'sort', 'n_vms': 3, 'n_hours': 3, 'size_bytes': 127.0}
    assert found['tm'] == {'n': 3, 'flows': [[0, 1, 120], [0, 2, 7]]}
    assert found['pattern'] == 'mean of 1 launches with 3 VMs'
    first, second, third = found['pairs']
    assert first['hours'] == [
        {'hour': 1000 * HOUR_S, 'size_bytes': 50.0},
        {'hour': 1001 * HOUR_S, 'size_bytes': 30.0},
        {'hour': 1003 * HOUR_S, 'size_bytes': 40.0}]
    assert (first['src'], first['dst'], first['size_bytes'],
            first['is_seen']) == (0, 1, 120.0, True)
    # The hour under way counts no more than the two before it.
    assert first['next_hour'] == {
        'size_bytes': 0.0, 'method': 'last-hour', 'error_fraction': None,
        'last_hour_weight': 1.0}
    bench.hour = 1004
    assert bench.profiles.show('p', 'p-a')['pairs'][0]['next_hour'][
        'size_bytes'] == 40.0
    assert (second['src'], second['dst'], second['size_bytes']) == (0, 2, 7)
    assert (third['src'], third['dst'], third['is_seen'],
            third['size_bytes'], third['hours']) == (2, 0, False, 0, [])
    assert third['next_hour']['size_bytes'] == 0.0


def test_the_next_hour_is_of_all_pairs_together(bench):
    for hour, sent in ((1000, {'r01': 10, 'r12': 2}), (1001, {'r12': 30}),
                       (1002, {'r01': 5, 'r12': 1})):
        bench.flush(hour, **sent)
    bench.hour = 1003
    assert bench.profiles.show('p', 'a')['next_hour']['size_bytes'] == 6.0
    # Of the first hour itself something is known.
    bench = Bench()
    bench.flush(1000, r01=10)
    assert bench.profiles.show('p', 'a')['next_hour'] == {
        'size_bytes': 10.0, 'method': 'last-hour', 'error_fraction': None,
        'last_hour_weight': 1.0}


def test_the_next_hour_is_told_of_the_largest_pairs(bench):
    pairs.add(bench.state.counted['p-a'], [((0, i), float(i))
                                    for i in range(1, 204)])
    bench.flush(1000)
    told = {one['dst']: one['next_hour'] is not None
            for one in bench.profiles.show('p', 'a')['pairs']}
    assert [dst for dst, is_told in told.items() if not is_told] == [1, 2, 3]


@pytest.mark.parametrize(('project_id', 'group'), [('p', 'c'), ('q', 'a'),
                                                   ('p', 'x')])
def test_of_another_group_nothing_is_told(bench, project_id, group):
    bench.flush(1000, r01=5)
    with pytest.raises(exception.NotFound):
        bench.profiles.show(project_id, group)


def test_applications_learn_from_their_launches(bench):
    with pytest.raises(exception.NotFound):
        bench.profiles.app('p', 'sort', None)
    bench.flush(1000, r01=50, r02=50)
    bench.flush(1002, 'p-b', r01=60)
    assert bench.profiles.apps(None) == bench.profiles.apps('p') == [{
        'project_id': 'p', 'app': 'sort', 'n_launches': 2,
        'last_hour': 1002 * HOUR_S}]
    assert bench.profiles.apps('q') == []
    found = bench.profiles.app('p', 'sort', None)
    assert found['n_vms'] == 2 and found['size_bytes'] == 60.0
    assert found['launches'] == [{'n_vms': 2, 'size_bytes': 60.0},
                                 {'n_vms': 3, 'size_bytes': 100.0}]
    assert found['tm']['flows'] == [[0, 1, 60]]
    assert found['how'].startswith('mean of 1 launches')
    assert bench.profiles.app('p', 'sort', 3)['size_bytes'] == 100.0
    bench.profiles.forget_app('p', 'sort')
    assert bench.profiles.apps(None) == []
    with pytest.raises(exception.NotFound):
        bench.profiles.forget_app('p', 'sort')


def test_an_application_without_a_pattern_is_not_scaled(bench):
    bench.flush(1000, r01=50, r20=90)
    found = bench.profiles.app('p', 'sort', 9)
    assert (found['tm'], found['size_bytes'], found['n_vms']) == (
        None, None, 9)
    assert 'no pattern' in found['how']
