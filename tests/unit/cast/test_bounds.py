# SPDX-License-Identifier: Apache-2.0

"""What the tracker takes from members, and whom it waits for how long."""

import json
import math

import msgspec
import pytest

from virtco import exception
from virtco_tenant.cast import peers
from virtco_tenant.cast import tracker as trackers

SAID = {'name': 'a', 'port': 7000, 'cluster': 'r1', 'share': 0.5,
        'rates_bps': {'b': 1e9}, 'failed': 'No space', 'files': 'abc'}


def checked(**changes):
    return trackers._ASKED.decode(json.dumps(SAID | changes).encode())


@pytest.mark.parametrize(('field', 'good', 'bad'), [
    ('name', ['x', 'x' * 255], ['', 'x' * 256, 5, None]),
    ('port', [1, 65535], [0, -1, 65536, True, 80.5, '80', None]),
    ('cluster', [None, '', 'x' * 255], ['x' * 256, 5]),
    ('share', [0, 1, 0.5], [-0.1, 1.1, True, '1', None]),
    ('rates_bps', [{}, {'b': 0, 'c': 9.9e14}],
     [{'b': 1e15}, {'b': -1}, {'b': 1.0, 'c': -1.0}, {'b': True},
      {'b': '1'}, [1.0], None]),
    ('failed', [None, 'x', 'x' * 255], ['', 'x' * 256, 5]),
    ('files', [None, ''], [5])])
def test_what_is_said_has_bounds(field, good, bad):
    for value in good:
        assert getattr(checked(**{field: value}), field) == value
    for value in bad:
        with pytest.raises(exception.Invalid,
                           match=fr'^{field}(\.[bc])?: expected .*, got '):
            checked(**{field: value})


@pytest.mark.parametrize('said', [{'share': math.nan},
                                  {'rates_bps': {'b': math.nan}}])
def test_no_number_is_refused(said):
    with pytest.raises(exception.Invalid, match='without NaN'):
        checked(**said)


def test_what_may_be_left_unsaid():
    found = trackers._ASKED.decode(b'{"name": "a", "port": 1}')
    assert msgspec.structs.asdict(found) == {
        'name': 'a', 'port': 1, 'cluster': None, 'share': 0.0,
        'rates_bps': {}, 'failed': None, 'files': None}
    for wrong in (b'[]', b'null', b'"text"'):
        with pytest.raises(exception.Invalid, match='an object'):
            trackers._ASKED.decode(wrong)


def test_constants():
    assert (trackers.POLL_S, trackers.LOST_S, trackers.MISSED_S,
            trackers.ABSENT_S, trackers.GATHER_S, trackers.MAX_MEMBERS,
            trackers._MAX_BODY_BYTES, trackers.MAX_NAME) == (
        1.0, 10.0, 60.0, 600.0, 15.0, 4096, 262144, 255)


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def made(expected=2, **values):
    clock = Clock()
    found = trackers.Tracker('src', expected, clock, **values)

    def ask(name, **said):
        return found.ask(name, (f'10.0.0.{ord(name[0])}', 7), **said)

    return found, clock, ask


def test_blocks_are_given_when_all_are_here_or_have_had_their_time():
    for expected in (1, 2):
        found, clock, ask = made(expected)
        assert ask('a')['share'] is None
        ask('src', share=1.0)
        assert bool(found.parts()) is (expected == 1)
        clock.now_s += trackers.GATHER_S - 0.1
        ask('src', share=1.0)
        assert bool(found.parts()) is (expected == 1)
        clock.now_s += 0.1
        ask('src', share=1.0)
        assert found.parts().keys() == {'src'} if expected == 2 else True
        assert ask('a')['share'] is not None


def test_without_the_source_nobody_begins():
    found, clock, ask = made(1)
    ask('a')
    ask('b')
    clock.now_s += trackers.GATHER_S
    assert ask('a')['swarms'] == [[], [], []] and not found.parts()


def test_members_that_do_not_ask_are_lost_after_a_while():
    found, clock, ask = made(2)
    for name in ('src', 'a', 'b'):
        ask(name, share=float(name == 'src'))
    clock.now_s += trackers.LOST_S
    assert ask('a')['swarms'][peers.WITHIN]
    ask('src', share=1.0)
    assert found.parts().keys() == {'src', 'a', 'b'}
    clock.now_s += 0.1
    ask('src', share=1.0)
    assert found.parts().keys() == {'src', 'a'}
    clock.now_s += trackers.LOST_S + 0.1
    # The source is gone: nobody is told of anybody.
    assert ask('a')['swarms'] == [[], [], []]


def test_who_is_gone_for_long_is_not_waited_for():
    found, clock, ask = made(2)
    for name in ('src', 'a', 'b'):
        ask(name, share=float(name == 'src'))
    ask('a', share=1.0)
    assert (found.n_lacking, found.taken_s) == (1, None)
    clock.now_s += trackers.MISSED_S
    assert not ask('src', share=1.0)['done'] and found.missing() == {}
    clock.now_s += 1
    assert ask('src', share=1.0)['done'] and found.is_over
    assert found.missing() == {'b': 'gone for 61 s'}
    assert found.taken_s == 61.0
    clock.now_s += 5
    ask('src', share=1.0)
    assert found.taken_s == 61.0


def test_those_that_never_came_are_not_waited_for_for_ever():
    found, clock, ask = made(4)
    clock.now_s += 10 * trackers.ABSENT_S
    ask('src', share=1.0)
    assert not found.is_over
    ask('a', share=1.0)
    clock.now_s += 100
    # Who has all and says so again moves nothing.
    ask('a', share=1.0)
    ask('src', share=1.0)
    clock.now_s += trackers.ABSENT_S - 100
    assert not found.is_over and found.missing() == {}
    clock.now_s += 0.5
    assert found.is_over and found.missing() == {
        '3 of them': 'never came'}
    ask('b', share=0.5)
    assert not found.is_over and found.missing() == {}
    clock.now_s += trackers.ABSENT_S + 1
    assert found.missing() == {'b': 'gone for 601 s',
                               '2 of them': 'never came'}


def test_nobody_is_absent_where_more_came_than_were_expected():
    found, clock, ask = made(1)
    for name in 'ab':
        ask(name, share=1.0)
    clock.now_s += trackers.ABSENT_S + 1
    assert found.is_over and found.missing() == {}


def test_rates_are_kept_boundedly_and_of_members_only():
    found, _clock, ask = made()
    ask('a')
    for rate_bps in range(150):
        ask('b', rates_bps={'a': float(rate_bps), 'z': 1.0})
    assert found.rates_bps() == {('a', 'b'): [
        float(rate_bps) for rate_bps in range(50, 150)]}


def test_clusters_are_said_or_known():
    found, _clock, ask = made(clusters={'b': 'by name',
                                        '10.0.0.99': 'by address'})
    ask('a', cluster='said')
    ask('b')
    ask('c')
    ask('d')
    assert {name: seen.cluster for name, seen in found._members.items()} == {
        'a': 'said', 'b': 'by name', 'c': 'by address', 'd': None}
    assert found.names()['c'] == {'c', '10.0.0.99'}


def test_a_member_that_has_said_nothing_has_nothing():
    found, _clock, ask = made(1)
    ask('a')
    assert found.shares() == {'a': 0.0} and found.n_lacking == 1
    # The source is none of those that are waited for.
    ask('src', share=1.0)
    assert found.n_lacking == 1 and not found.is_over
    ask('a', share=1.0)
    assert found.n_lacking == 0 and found.is_over


def test_members_have_a_bound():
    found = trackers.Tracker('src', 1, Clock())
    for number in range(trackers.MAX_MEMBERS):
        found._members[str(number)] = trackers._Seen(('h', 1), 100.0)
    found.ask('5', ('h', 2))
    with pytest.raises(OverflowError, match='4096'):
        found.ask('another', ('h', 2))


def test_who_fails_and_a_source_that_gives_up():
    found, _clock, ask = made(1)
    ask('src', share=1.0)
    ask('a')
    assert ask('a', failed='No space')['swarms'] == [[], [], []]
    assert found.shares() == {'a': 0.0}
    assert ask('src', share=1.0)['failed'] is None
    found.fail('why')
    assert ask('src', share=1.0)['failed'] == 'why'
