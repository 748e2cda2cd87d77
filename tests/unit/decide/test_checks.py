# SPDX-License-Identifier: Apache-2.0

"""Checks of hosts, with a network that measures what it is told."""

import threading
import time
import types

import pytest

from tests import patience
from tests.unit import made
from virtco import exception
from virtco.decide import checks
from virtco.measure import discovery
from virtco.measure import preflight
from virtco.measure import rounds
from virtco.model import cluster
from virtco.topology import tree
from virtco.wire import check as wire

HOSTS = ('a', 'b', 'c', 'd')


class Network:
    """Prober and live state; each pair has one rate.

    :ivar orders: (pairs, transfer) that were ordered.
    :ivar silent: pairs of which nothing comes.
    """

    def __init__(self, tree=cluster.Tree()):
        self.orders, self.held = [], []
        self.nominal = []
        self.silent, self.windows = set(), [1000] * 100
        self._tree, self._answers = tree, []

    def hold(self, held):
        # A check does not keep the process from ending.
        assert threading.current_thread().daemon
        self.held.append(held)

    def order(self, pairs, transfer=None):
        self.orders.append((list(pairs), transfer))
        results = dict.fromkeys(pair for pair in pairs
                                if pair not in self.silent)
        self._answers += [(results, made.measurement(
            *pair, 1e9, sent_bytes=100,
            windows_bytes=self.windows if transfer else None))
            for pair in results]
        return results

    def is_idle(self):
        """Nothing is under way once its answers have been told."""
        while self._answers:
            results, found = self._answers.pop()
            results[found.src, found.dst] = found
        return True

    def afford(self, hosts, transfer, n_rounds):
        self.afforded = hosts, transfer, n_rounds

    def is_known(self, host):
        return host in HOSTS

    def wire_tree(self, _now_s, nominal=False):
        self.nominal.append(nominal)
        return self._tree

    def nominal_links_bps(self, hosts):
        return dict.fromkeys(hosts, (1e9, 1.25e9))


def start(network):
    concluded = []
    conf = types.SimpleNamespace(probe=types.SimpleNamespace(timeout_s=5))
    return checks.Checks(
        conf, network, network,
        lambda subjects, found: concluded.append((subjects, list(found))),
        lambda: 100.0), concluded


def check(hosts=HOSTS, trigger='command', **values):
    return checks.Check(wire.Check(check_id='id', hosts=list(hosts),
                                   trigger=trigger, asked=7.0, **values))


def ended(one):
    patience.wait_for(lambda: one.now.state in ('done', 'failed'))
    return one


def test_a_check_that_begins_again_has_done_nothing():
    one = check(purpose='discover', trigger='launch')
    began = one.now
    assert (began.check_id, began.hosts, began.trigger, began.asked,
            began.purpose, began.state) == (
        'id', list(HOSTS), 'launch', 7.0, 'discover', 'waiting')
    one.note(state='running', n_rounds_done=3, why='no')
    one.count(n_rounds_done=2, sent_bytes=5.0)
    assert (one.now.n_rounds_done, one.now.sent_bytes) == (5, 5.0)
    assert checks.Check(one.now).now == began


def test_who_may_be_checked():
    network = Network()
    found, _concluded = start(network)
    assert found.checked(['a', 'b', 'a'], 'check') == ['a', 'b']
    assert not hasattr(network, 'afforded')
    with pytest.raises(exception.Invalid, match='2 to 1024 different'):
        found.checked(['a', 'a'], 'check')
    with pytest.raises(exception.Invalid, match='a host that reports'):
        found.checked(['a', 'z'], 'check')
    many = [str(number) for number in range(1025)]
    with pytest.raises(exception.Invalid, match='hosts, got 1025'):
        found.checked(many, 'check')
    with pytest.raises(exception.Invalid, match='a host that reports'):
        found.checked(many[:1024], 'check')
    least, most = discovery.LEAST_HOSTS, discovery.MOST_HOSTS
    for n in (least - 1, most + 1):
        with pytest.raises(exception.Invalid,
                           match=f'{least} to {most} different'):
            found.checked(many[:n], 'discover')
    if least <= len(HOSTS):
        found.checked(HOSTS, 'discover')
        assert network.afforded == (list(HOSTS), rounds.DISCOVER, sum(map(
            len, discovery.mixed_rounds(HOSTS))))
    assert (checks.MOST_HOSTS, checks.MOST_WAITING, checks.TRIES) == (
        1024, 16, 2)


def test_all_rounds_are_run_and_concluded():
    network = Network()
    found, concluded = start(network)
    one = check()
    began_s = time.monotonic()
    found.take(one)
    ended(one)
    took_s = time.monotonic() - began_s
    planned = preflight.plan(HOSTS, {})
    assert (one.now.state, one.now.why) == ('done', None)
    assert one.now.n_rounds == one.now.n_rounds_done == len(planned)
    assert [pairs for pairs, _transfer in network.orders] == [
        list(some.pairs) for some in planned]
    assert [transfer for _pairs, transfer in network.orders] == [
        rounds.CHECK if some.loaded else None for some in planned]
    assert one.now.sent_bytes == 100 * sum(
        len(some.pairs) for some in planned)
    assert one.now.n_failed == 0 and 0 <= one.now.seconds <= took_s
    assert network.held == [True, False]
    assert network.nominal == [False, True]
    assert [subjects for subjects, _found in concluded] == [set(HOSTS)]
    # The next one finds a new thread.
    patience.wait_for(lambda: found._thread is None)
    found.take(again := check())
    assert ended(again).now.state == 'done'


def test_trains_without_a_rate_are_counted():
    network = Network()
    network.silent = {preflight.plan(HOSTS, {})[0].pairs[0]}
    found, _concluded = start(network)
    found.take(one := check())
    assert ended(one).now.n_failed == sum(
        pair in network.silent for some in preflight.plan(HOSTS, {})
        for pair in some.pairs)


@pytest.mark.parametrize(('away', 'subjects'), [
    ('', {*HOSTS, 'l1', 'l2'}),
    # A pair of lone rounds is within a leaf.
    ('d', set('ab')), (HOSTS, set())])
def test_findings_without_a_new_reading_are_kept(away, subjects):
    network = Network(types.SimpleNamespace(
        leaf_of={'a': 'l1', 'b': 'l1', 'c': 'l2', 'd': 'l2'}, subtrees=()))
    network.silent = {(src, dst) for src in HOSTS for dst in HOSTS
                      if src in away or dst in away}
    found, concluded = start(network)
    found.take(one := check())
    assert ended(one).now.state == 'done'
    assert concluded == [(subjects, [])]


@pytest.mark.parametrize('purpose', ['check', 'discover'])
def test_nothing_is_ordered_while_a_train_is_under_way(purpose):
    network = Network()
    busy, looked, states = [True] * 3, [], set()

    def is_idle():
        looked.append(len(network.orders))
        states.add(one.now.state)
        return not busy.pop() if busy else Network.is_idle(network)

    network.is_idle = is_idle
    found, _concluded = start(network)
    found.take(one := check(purpose=purpose))
    assert ended(one).now.state == 'done'
    assert looked[:4] == [0] * 4 and network.orders
    assert states == {'running'}


def test_a_train_that_does_not_tell_its_bytes_counts_none():
    network = Network()
    found, _concluded = start(network)
    network.is_idle = lambda: True
    network.order = lambda pairs, _transfer: {
        pair: made.measurement(*pair, 1e9) for pair in pairs}
    one = check()
    assert found._measure(one, [('a', 'b')])
    assert one.now.sent_bytes == 0


class Time:
    """A clock that only sleeping moves."""

    now_s = 7.0

    def monotonic(self):
        return self.now_s

    def sleep(self, lasts_s):
        self.now_s += lasts_s


@pytest.mark.parametrize(('transfer', 'limit_s'), [
    (None, 5 + 1), (rounds.CHECK, 5 + 1 + 0.5 + rounds.CHECK.most_s)])
def test_a_round_without_answers_ends(monkeypatch, transfer, limit_s):
    network = Network()
    network.is_idle = lambda: False
    network.order = lambda pairs, _transfer: {pairs[0]: None}
    found, _concluded = start(network)
    monkeypatch.setattr(checks, 'time', clock := Time())
    assert found._measure(check(), [('a', 'b')], transfer) == {}
    assert clock.now_s == pytest.approx(7.0 + limit_s, abs=0.05)


def test_a_check_waits_for_the_longest_order_before_it(monkeypatch):
    network, began_s = Network(), []
    found, _concluded = start(network)
    monkeypatch.setattr(checks, 'time', clock := Time())
    # The operator's order is fetched, sends, and is given up.
    ends_s = clock.now_s + 3 + 10 + 5
    network.is_idle = lambda: (clock.now_s >= ends_s
                               and Network.is_idle(network))
    order = network.order
    network.order = lambda *args: (began_s.append(clock.now_s),
                                   order(*args))[1]
    found.take(one := check())
    assert ended(one).now.state == 'done'
    assert began_s[0] == pytest.approx(ends_s, abs=0.05)


def test_what_fails_tells_why():
    network = Network()
    network.wire_tree = None
    found, concluded = start(network)
    found.take(one := check())
    assert ended(one).now.state == 'failed' and 'callable' in one.now.why
    assert network.held == [True, False] and concluded == []


def test_who_cannot_be_checked_is_not_taken():
    network = Network()
    found, _concluded = start(network)
    with pytest.raises(exception.Invalid, match='a host that reports'):
        found.take(check('az'))
    assert found._thread is None and network.held == []


def test_who_stops_takes_none():
    found, concluded = start(Network())
    found.stop()
    found.take(one := check())
    assert one.now.state == 'waiting' and found._thread is None


@pytest.mark.parametrize(('purpose', 'n_rounds'), [
    ('check', 1), ('check', len(preflight.plan(HOSTS, {}))), ('discover', 1)])
def test_who_leads_next_begins_anew_with_what_is_stopped(purpose, n_rounds):
    network = Network()
    found, concluded = start(network)
    order = network.order

    def stopping(*args):
        if len(network.orders) == n_rounds - 1:
            found.stop()
        return order(*args)

    network.order = stopping
    found.checked = lambda hosts, purpose: list(hosts)
    found.take(one := check(purpose=purpose))
    patience.wait_for(lambda: found._thread is None)
    assert network.held == [True, False]
    assert (one.now.state, one.now.why) == ('running', None)
    assert concluded == []


def test_a_discovery_that_is_stopped_fails():
    network = Network()
    found, _concluded = start(network)
    found.stop()
    with pytest.raises(exception.Starting, match='stops'):
        found._loaded_round(check(), (('a', 'b'),))
    assert network.orders == []


def test_a_loaded_round_has_rates_by_its_windows():
    network = Network()
    found, _concluded = start(network)
    pairs = [('a', 'b'), ('c', 'd')]
    assert found._together(check(), pairs, rounds.CHECK) == {
        pair: pytest.approx(rate_bps) for pair, rate_bps in
        rounds.rates_bps(dict.fromkeys(pairs, network.windows)).items()}


def test_a_loaded_round_is_tried_twice():
    network = Network()
    found, _concluded = start(network)
    network.silent = {('a', 'b')}
    one = check()
    assert found._together(one, [('a', 'b'), ('c', 'd')],
                           rounds.CHECK).keys() == {('c', 'd')}
    assert len(network.orders) == checks.TRIES
    assert one.now.n_failed == 1


def test_a_discovery_loads_each_uplink(monkeypatch):
    """Found branches are loaded one after the other, and count as rounds."""
    network = Network()
    found, _concluded = start(network)
    loads = [discovery.Load('r1', True, 'any', (('a', 'c'), ('b', 'd'))),
             discovery.Load('r1', False, 'any', (('c', 'a'),))]
    monkeypatch.setattr(discovery, 'loads', lambda branches: loads)
    monkeypatch.setattr(discovery, 'plane', lambda *args: tree.Plane(
        'p', (), (tree.Node(str([sorted(got) for _, got in args[3]])),)))
    found.take(one := check(purpose='discover'))
    assert ended(one).now.why is None
    n_rounds = sum(map(len, discovery.mixed_rounds(HOSTS)))
    assert one.now.n_rounds_done == one.now.n_rounds == n_rounds + 2
    assert [pairs for pairs, _ in network.orders[n_rounds:]] == [
        [('a', 'c'), ('b', 'd')], [('c', 'a')]]
    (plane,) = one.now.planes
    assert plane.nodes[0].name == str(
        [list(load.pairs) for load in loads])


def test_a_discovery_of_hosts_on_one_switch_finds_no_plane():
    network = Network()
    found, concluded = start(network)
    found.take(one := check(purpose='discover'))
    ended(one)
    assert (one.now.state, one.now.why, one.now.planes) == ('done', None, [])
    n_rounds = sum(map(len, discovery.mixed_rounds(HOSTS)))
    assert one.now.n_rounds_done == one.now.n_rounds >= n_rounds
    assert {transfer for _pairs, transfer in network.orders} == {
        rounds.DISCOVER}
    assert concluded == []
