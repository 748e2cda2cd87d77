# SPDX-License-Identifier: Apache-2.0

import http.client
import json
import threading

import numpy as np
import pytest

from virtco_tenant.cast import clusters
from virtco_tenant.cast import peers
from virtco_tenant.cast import tracker as trackers


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def tracker(clock):
    return trackers.Tracker('src', 2, clock,
                            {'b': 'rack2', '10.0.0.9': 'rack3'})


_NOBODY = {'swarms': [[], [], []], 'share': None, 'done': False,
           'failed': None}


def _names(answer):
    return {peer['name'] for level in answer['swarms'] for peer in level}


def test_nobody_is_named_before_all_are_there(tracker):
    assert tracker.ask('a', ('10.0.0.2', 1)) == _NOBODY
    assert tracker.ask('src', ('10.0.0.1', 1), share=1) == _NOBODY
    assert _names(tracker.ask('b', ('10.0.0.3', 1))) == {'a', 'src'}
    assert tracker.ask('a', ('10.0.0.2', 1))['swarms'][peers.FIRST] == [
        {'name': 'src', 'host': '10.0.0.1', 'port': 1, 'calls': False}]
    # One of both calls.
    assert tracker.ask('src', ('10.0.0.1', 1))['swarms'][peers.FIRST][0][
        'calls']


def test_who_does_not_come_is_not_waited_for_without_end(tracker, clock):
    tracker.ask('src', ('10.0.0.1', 1), share=1)
    clock.now_s = 100.0
    assert tracker.ask('a', ('10.0.0.2', 1)) == _NOBODY
    clock.now_s += trackers.GATHER_S
    tracker.ask('src', ('10.0.0.1', 1), share=1)
    assert _names(tracker.ask('a', ('10.0.0.2', 1))) == {'src'}


def test_time_runs_from_when_all_are_there(tracker, clock):
    tracker.ask('src', ('10.0.0.1', 1), share=1)
    tracker.ask('a', ('10.0.0.2', 1))
    clock.now_s = 3.0
    tracker.ask('b', ('10.0.0.3', 1))
    clock.now_s = 5.0
    tracker.ask('a', ('10.0.0.2', 1), share=1)
    assert tracker.taken_s is None
    tracker.ask('b', ('10.0.0.3', 1), share=1)
    assert tracker.taken_s == 2.0


def test_it_is_done_when_all_receivers_have_all(tracker):
    tracker.ask('src', ('10.0.0.1', 1), share=1)
    assert not tracker.ask('a', ('10.0.0.2', 1), share=1)['done']
    assert not tracker.ask('b', ('10.0.0.3', 1), share=0.99)['done']
    assert tracker.ask('b', ('10.0.0.3', 1), share=1)['done']
    assert tracker.is_over
    assert tracker.shares() == {'a': 1, 'b': 1}


def test_who_gives_up_is_neither_waited_for_nor_named(tracker):
    tracker.ask('src', ('10.0.0.1', 1), share=1)
    tracker.ask('a', ('10.0.0.2', 1))
    assert _names(tracker.ask('b', ('10.0.0.3', 1))) == {'a', 'src'}
    tracker.ask('a', ('10.0.0.2', 1), share=0.5, failed='No space left')
    assert _names(tracker.ask('b', ('10.0.0.3', 1))) == {'src'}
    assert tracker.ask('b', ('10.0.0.3', 1), share=1)['done']
    assert tracker.missing() == {'a': 'No space left'}
    # Started again, it takes part.
    assert not tracker.ask('a', ('10.0.0.2', 2), share=0.5)['done']
    assert not tracker.missing()


def test_who_is_gone_for_long_is_not_waited_for(tracker, clock):
    tracker.ask('src', ('10.0.0.1', 1), share=1)
    tracker.ask('a', ('10.0.0.2', 1))
    clock.now_s = trackers.MISSED_S
    tracker.ask('b', ('10.0.0.3', 1), share=1)
    assert not tracker.is_over
    clock.now_s += 1
    assert tracker.is_over
    assert tracker.missing() == {'a': 'gone for 61 s'}


def test_who_never_comes_is_not_waited_for_without_end(tracker, clock):
    tracker.ask('src', ('10.0.0.1', 1), share=1)
    clock.now_s = 10 * trackers.ABSENT_S
    assert not tracker.is_over  # Nobody is here yet.
    tracker.ask('a', ('10.0.0.2', 1))
    tracker.ask('a', ('10.0.0.2', 1), share=1)
    clock.now_s += trackers.ABSENT_S
    tracker.ask('a', ('10.0.0.2', 1), share=1)
    assert not tracker.is_over
    clock.now_s += 1
    assert tracker.is_over
    assert tracker.missing() == {'1 of them': 'never came'}
    assert tracker.n_lacking == 1
    # Late, it takes part and is waited for.
    assert not tracker.ask('b', ('10.0.0.3', 1))['done']
    assert not tracker.missing()


def test_nobody_is_given_up_while_others_receive(tracker, clock):
    tracker.ask('src', ('10.0.0.1', 1), share=1)
    for _ in range(int(trackers.ABSENT_S)):
        clock.now_s += 2
        tracker.ask('a', ('10.0.0.2', 1), share=0.5)
    assert not tracker.missing()


def test_all_hear_that_the_source_gives_up(tracker):
    tracker.ask('src', ('10.0.0.1', 1), share=1)
    tracker.fail('the disk is gone')
    assert tracker.ask('a', ('10.0.0.2', 1))['failed'] == 'the disk is gone'


def test_who_has_all_may_go(tracker, clock):
    tracker.ask('src', ('10.0.0.1', 1), share=1)
    tracker.ask('a', ('10.0.0.2', 1), share=1)
    tracker.ask('b', ('10.0.0.3', 1))
    clock.now_s = trackers.MISSED_S + 1
    tracker.ask('b', ('10.0.0.3', 1))
    assert not tracker.missing()


def test_who_is_silent_is_not_named_until_it_is_back(tracker, clock):
    tracker.ask('src', ('10.0.0.1', 1), share=1)
    tracker.ask('a', ('10.0.0.2', 1))
    tracker.ask('b', ('10.0.0.3', 1))
    clock.now_s = trackers.LOST_S + 1
    assert _names(tracker.ask('src', ('10.0.0.1', 1), share=1)) == set()
    # Killed and started again it listens elsewhere.
    tracker.ask('a', ('10.0.0.2', 2))
    found = tracker.ask('src', ('10.0.0.1', 1), share=1)
    assert {(peer['name'], peer['port']) for level in found['swarms']
            for peer in level} == {('a', 2)}


def test_clusters_come_from_members_or_from_the_sender(tracker):
    tracker.ask('a', ('10.0.0.2', 1), cluster='rack1')
    tracker.ask('b', ('10.0.0.3', 1))
    tracker.ask('c', ('10.0.0.9', 1))
    assert {name: seen.cluster for name, seen in tracker._members.items()} == {
        'a': 'rack1', 'b': 'rack2', 'c': 'rack3'}


def test_rates_are_kept_of_members_only(tracker):
    tracker.ask('a', ('10.0.0.2', 1))
    tracker.ask('b', ('10.0.0.3', 1), rates_bps={'a': 5e6, 'nobody': 1e9})
    assert tracker.rates_bps() == {('a', 'b'): [5e6]}


@pytest.fixture
def ask(tracker):
    server = trackers.serve(tracker, 'key', b'torrent', ('127.0.0.1', 0))

    def call(method, path, body=None):
        connection = http.client.HTTPConnection(*server.server_address,
                                                timeout=10)
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    yield call
    server.shutdown()
    server.server_close()


def test_who_has_the_key_is_answered(ask):
    assert ask('GET', '/key/torrent') == (200, b'torrent')
    status, body = ask('POST', '/key/peers', json.dumps(
        {'name': 'a', 'port': 7}))
    assert (status, json.loads(body)) == (200, _NOBODY)
    assert ask('GET', '/other/torrent')[0] == 404
    assert ask('POST', '/other/peers', '{}')[0] == 404


def test_a_connection_is_kept_until_something_is_refused(tracker):
    """A refused body is not read: its rest would seem to be a request."""
    before = set(threading.enumerate())
    server = trackers.serve(tracker, 'key', b'torrent', ('127.0.0.1', 0))
    assert all(one.daemon for one in set(threading.enumerate()) - before)
    connection = http.client.HTTPConnection(*server.server_address,
                                            timeout=10)
    kinds = []
    for path in '/key/torrent', '/key/torrent', '/other/torrent':
        connection.request('GET', path)
        sock = connection.sock
        answer = connection.getresponse()
        kinds.append(answer.getheader('Content-Type'))
        answer.read()
    assert kinds == ['application/x-bittorrent'] * 2 + ['application/json']
    assert sock.recv(1) == b''
    server.shutdown()
    server.server_close()


def test_who_has_other_files_is_refused(ask, tracker):
    asked = {'name': 'a', 'port': 7, 'files': trackers.digest(b'torrent')}
    assert ask('POST', '/key/peers', json.dumps(asked))[0] == 200
    other = {**asked, 'name': 'b', 'files': trackers.digest(b'other')}
    assert ask('POST', '/key/peers', json.dumps(other))[0] == 409
    assert list(tracker.shares()) == ['a']


@pytest.mark.parametrize('body, said', [
    ('', 'Expecting value'), ('[]', 'body'), ('{"name": ""}', 'name'),
    ('{"name": "a", "port": 0}', 'port'),
    ('{"name": "a", "port": true}', 'port'),
    ('{"name": "a", "port": 1, "share": 2}', 'share'),
    ('{"name": "a", "port": 1, "share": NaN}', 'NaN'),
    ('{"name": "a", "port": 1, "cluster": 5}', 'cluster'),
    ('{"name": "a", "port": 1, "files": 5}', 'files'),
    ('{"name": "a", "port": 1, "rates_bps": {"b": -1}}', 'rates_bps'),
    ('[' * 100_000, '')])
def test_other_bodies_get_an_error_that_names_the_field(ask, body, said):
    status, answer = ask('POST', '/key/peers', body)
    assert status == 400
    assert said in json.loads(answer)['error']


def test_a_long_body_is_not_read(ask):
    status, answer = ask('POST', '/key/peers', 'x' * 300_000)
    assert status == 413
    assert json.loads(answer)['error'] == (
        'body: expected at most 262144 bytes, got 300000')


def test_who_comes_beyond_the_bound_is_refused(ask, monkeypatch):
    monkeypatch.setattr(trackers, 'MAX_MEMBERS', 1)
    status, answers = zip(*(
        ask('POST', '/key/peers', json.dumps({'name': name, 'port': 7}))
        for name in 'ab'))
    assert status == (200, 403)
    assert json.loads(answers[1])['error'] == '1 members are the most'


def test_a_body_of_the_most_bytes_is_read(ask):
    body = json.dumps({'name': 'a', 'port': 7})
    most = trackers._MAX_BODY_BYTES
    assert ask('POST', '/key/peers', body.ljust(most))[0] == 200
    assert ask('POST', '/key/peers', body.ljust(most + 1))[0] == 413


def test_a_member_is_where_it_asks_from(ask):
    for name, port in (('a', 7), ('b', 8), ('src', 9)):
        answer = ask('POST', '/key/peers', json.dumps(
            {'name': name, 'port': port, 'share': 1}))[1]
    assert {(peer['name'], peer['host'], peer['port'])
            for level in json.loads(answer)['swarms'] for peer in level} == {
                ('a', '127.0.0.1', 7), ('b', '127.0.0.1', 8)}


def test_all_is_planned_again_only_where_somebody_comes_or_goes(clock):
    plans = []

    def plan(source, members, seed):
        plans.append([one.name for one in members])
        return peers.plan(source, members, seed)

    tracker = trackers.Tracker('src', 1, clock, plan=plan)
    for _ in range(2):
        tracker.ask('src', ('10.0.0.1', 1), share=1)
        tracker.ask('a', ('10.0.0.2', 1))
    assert plans == [['src', 'a']]
    tracker.ask('b', ('10.0.0.3', 1))
    assert plans == [['src', 'a'], ['src', 'a', 'b']]


def test_members_are_bounded(tracker, monkeypatch):
    monkeypatch.setattr(trackers, 'MAX_MEMBERS', 1)
    tracker.ask('a', ('10.0.0.2', 1))
    with pytest.raises(OverflowError, match='1'):
        tracker.ask('b', ('10.0.0.3', 1))


def test_racks_are_seen_in_the_rates_of_former_casts():
    names = [f'{rack}{vm}' for rack in 'xy' for vm in range(4)]
    rates_bps = {(one, other): 9e6 if one[0] == other[0] else 2e6
                 for one in names for other in names if one < other
                 and (one, other) not in {('x0', 'x1'), ('x2', 'y2')}}
    found = clusters.infer(rates_bps)
    assert len({found[name] for name in names if name[0] == 'x'}) == 1
    assert len(set(found.values())) == 2


def test_one_rack_is_no_cluster():
    names = 'abcde'
    assert clusters.infer({(one, other): 5e6 for one in names
                           for other in names if one < other}) == {}
    assert clusters.infer({}) == {}


@pytest.mark.parametrize(('step', 'n_racks'), [(1.08, 1), (1.2, 2)])
def test_racks_that_differ_by_less_than_a_tenth_are_one(step, n_racks):
    names = [f'v{place}' for place in range(8)]
    found = clusters.infer({
        (src, dst): 1e6 * (step if one % 2 == other % 2 else 1)
        for one, src in enumerate(names) for other, dst in enumerate(names)
        if src != dst})
    assert len(set(found.values()) or {'one'}) == n_racks


@pytest.mark.parametrize('step, n_racks', [(1.0, 1), (4.0, 2)])
@pytest.mark.parametrize('of', ['src', 'dst'])
def test_fast_and_slow_members_are_no_racks(of, step, n_racks):
    """Half of them send, or receive, ten times as fast as the others."""
    names = [f'v{place}' for place in range(8)]
    rates_bps = {}
    for one, src in enumerate(names):
        for other, dst in enumerate(names):
            if src != dst:
                own = one if of == 'src' else other
                rates_bps[src, dst] = 1e6 * (10 if own < 4 else 1) * (
                    step if one % 2 == other % 2 else 1)
    found = clusters.infer(rates_bps)
    assert len(set(found.values()) or {'one'}) == n_racks
    assert len({found.get(name) for name in names[::2]}) == 1


def test_noise_divides_no_rack_and_hides_no_two():
    """Drawn rates, each pair seen both ways or one way only."""
    rng = np.random.default_rng(1)
    names = [f'v{place}' for place in range(9)]
    for step, n_racks in ((0.0, 1), (1.2, 2)):
        right = 0
        for _ in range(20):
            rates_bps = {
                (src, dst): 1e6 * np.exp(rng.normal(0, 0.4) + step * (
                    names.index(src) % 2 == names.index(dst) % 2))
                for src in names for dst in names
                if src != dst and rng.random() < 0.8}
            found = clusters.infer(rates_bps)
            right += len(set(found.values()) or {'one'}) == n_racks
        assert right >= 18, n_racks


@pytest.mark.parametrize(('n', 'seed', 'step', 'share'), [
    (6, 2, 0.6, 1.0), (6, 6, 0.6, 1.0), (7, 69, 0.6, 0.6), (8, 98, 0.9, 0.6)])
def test_two_racks_are_seen_where_the_shortest_description_has_two(
        n, seed, step, share):
    """Drawn rates of which one cluster more or less describes as well."""
    rng = np.random.default_rng([seed, n])
    names = [f'v{place}' for place in range(n)]
    found = clusters.infer({
        (src, dst): 1e6 * np.exp(rng.normal(0, 0.3) + step * (
            one % 2 == other % 2))
        for one, src in enumerate(names) for other, dst in enumerate(names)
        if one != other and rng.random() < share})
    racks = [{found[name] for name in names[first::2]} for first in (0, 1)]
    assert [len(rack) for rack in racks] == [1, 1] and racks[0] != racks[1]
