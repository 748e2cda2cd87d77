# SPDX-License-Identifier: Apache-2.0

"""Rounds of trains: disjoint, one after the other, given up in time."""

import types

import msgspec
import pytest

from tests.unit import made as plain
from virtco.decide import asked
from virtco.decide import probes
from virtco.measure import round_schedule
from virtco.state import measured_rates
from virtco.wire import probe as wire
from virtco.wire import probe_order

LINKS_BPS = {'a': 1e9, 'b': 2e9, 'c': 3e9, 'd': 1e9}
HOSTS = list(LINKS_BPS)


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def made():
    clock = Clock()
    conf = types.SimpleNamespace(probe=types.SimpleNamespace(
        enabled=True, interval_s=1.0, freshness_s=100.0, bursts=10,
        packets=200, packet_bytes=1472, max_link_share=1.0,
        max_bytes_per_hour=None))
    found = measured_rates.Rates()
    targets = {host: (f'10.0.0.{i}', 7000 + i)
               for i, host in enumerate(HOSTS)}

    def again():
        return probes.Prober(
            conf, found, lambda *_args: round_schedule.Measurable(
                targets, {host: LINKS_BPS[host] for host in targets}),
            clock=clock)

    return types.SimpleNamespace(
        prober=again(), again=again, clock=clock, rates=found,
        targets=targets, conf=conf)


def fetch(made):
    """What is to be sent; what is to be expected is told to the receivers."""
    found = {host: made.prober.next_train(host)
             for host in made.prober.called()}
    expected = {host: order for host, order in found.items()
                if isinstance(order, probe_order.Receive)}
    trains = {host: order for host, order in found.items()
              if host not in expected}
    assert {train.peer: (host, train.key, train.probe_id)
            for host, train in trains.items()} == {
        host: (order.peer, order.key, order.probe_id)
        for host, order in expected.items()}
    return trains


def answer(made, trains):
    for host, train in trains.items():
        measurement = plain.measurement(
            host, train.peer, 1e8, probe_id=train.probe_id,
            sent_bytes=10 * 200 * 1472)
        made.rates.add(measurement, made.clock())
        made.prober.done(measurement)
    made.clock.now += 1


def test_a_round_is_disjoint_and_says_where_to_send(made):
    trains = fetch(made)
    busy = [*trains, *(t.peer for t in trains.values())]
    assert sorted(busy) == HOSTS
    for train in trains.values():
        target = made.targets[train.peer]
        assert (train.address, train.port) == target
        assert train.traffic == probe_order.Train(10, 200, 1472)
    # A train is handed out once, and no new round begins before its end.
    assert fetch(made) == {}


def test_every_pair_is_measured_once_and_then_there_is_rest(made):
    pairs = []
    while trains := fetch(made):
        pairs += [(host, t.peer) for host, t in trains.items()]
        answer(made, trains)
    assert sorted(pairs) == sorted((a, b) for a in HOSTS for b in HOSTS
                                   if a != b)
    state = made.prober.state()
    assert state.n_fresh == state.n_hosts == 4
    assert state.last_hour_bytes == 12 * 10 * 200 * 1472
    assert state.under_way == []
    made.clock.now += 50
    assert fetch(made) == {}
    made.clock.now += 51
    assert len(fetch(made)) == 2


def test_what_was_measured_before_a_start_is_not_measured_again(made):
    for src in HOSTS:
        for dst in HOSTS:
            if src != dst and {src, dst} != {'b', 'd'}:
                made.rates.add(plain.measurement(src, dst, 1e8),
                               made.clock())
    trains = fetch(made)
    assert [{host, t.peer} for host, t in trains.items()] == [{'b', 'd'}]


def test_what_was_measured_before_a_start_is_taken_in_its_order(made):
    """The schedule forgets the oldest reading of a host first."""
    for dst, measured_s in (('c', 970.0), ('b', 950.0), ('d', 990.0)):
        made.rates.add(plain.measurement('a', dst, 1e8), measured_s)
    made.prober.state()
    assert list(made.prober._plan._sent['a'].items()) == [
        ('b', 950.0), ('c', 970.0), ('d', 990.0)]


def test_a_train_without_an_answer_is_given_up_and_tried_later(made):
    first = fetch(made)
    made.clock.now += 4
    assert fetch(made) == {}
    made.clock.now += 2
    second = fetch(made)
    assert second
    assert {(h, t.peer) for h, t in first.items()}.isdisjoint(
        {(h, t.peer) for h, t in second.items()})
    retried = set()
    for _turn in range(60):
        answer(made, second)
        made.clock.now += probes.RETRY_S / 10
        second = fetch(made)
        retried |= {(h, t.peer) for h, t in second.items()}
    assert {(h, t.peer) for h, t in first.items()} <= retried


def test_a_measurement_of_another_controllers_train_counts(made):
    made.prober.done(plain.measurement('a', 'b', 1e8))
    trains = fetch(made)
    assert ('a', 'b') not in {(h, t.peer) for h, t in trains.items()}


def test_a_result_of_another_pair_ends_no_train(made):
    """The receiver would have been taken for busy for good."""
    pairs = {(host, train.peer) for host, train in fetch(made).items()}
    (src, dst), (other, _) = sorted(pairs)
    made.prober.done(plain.measurement(
        src, other, 1e8, probe_id=made.prober._trains[src].probe_id))
    assert set(made.prober._plan.under_way) == pairs
    made.clock.now += 100
    made.prober.look()
    assert (src, dst) not in made.prober._plan.under_way
    assert dst in {*fetch(made), *made.prober._expected}


def test_a_host_that_went_is_left_out(made):
    made.targets.pop('d')
    trains = fetch(made)
    assert 'd' not in {*trains, *(t.peer for t in trains.values())}


def test_a_host_that_asks_begins_a_round(made):
    assert all(made.prober.next_train(host) for host in HOSTS)


def test_nothing_when_it_is_off(made):
    made.conf.probe.enabled = False
    assert fetch(made) == {}


def test_each_train_has_a_key_of_its_own(made):
    keys = []
    while trains := fetch(made):
        keys += [train.key for train in trains.values()]
        answer(made, trains)
    assert len(set(keys)) == len(keys) == 12
    assert {len(bytes.fromhex(key)) for key in keys} == {32}
    assert 'key' not in str(made.prober.state())
    # Nor is it in a log that shows the train.
    made.prober.order([('a', 'b')])
    (train,) = made.prober._trains.values()
    assert train.orders['a'].key not in repr(train)


def answered(made, one):
    made.prober.is_idle()  # looks
    return one.to_dict()


def measure_all(made):
    while trains := fetch(made):
        answer(made, trains)


def test_what_is_asked_for_is_measured_at_the_same_time_and_not_kept(made):
    measure_all(made)
    one = made.prober.ask(wire.ProbeRequest(
        pairs=[('a', 'b'), ('c', 'd')], kind='bulk', lasts_s=2.0))
    made.clock.now += 1
    trains = fetch(made)
    assert {(h, t.peer, t.traffic) for h, t in trains.items()} == {
        ('a', 'b', probe_order.Bulk(2.0)), ('c', 'd', probe_order.Bulk(2.0))}
    assert answered(made, one) == {'done': False, 'results': []}
    assert not made.prober.done(plain.measurement(
        'a', 'b', 9e7, probe_id=trains['a'].probe_id, method='bulk',
        sent_bytes=500, windows_bytes=[1, 2]))
    made.clock.now += 20
    found = answered(made, one)
    assert found['done']
    assert sorted(found['results'], key=str) == sorted([
        {'src': 'a', 'dst': 'b', 'rate_bps': 9e7, 'lower_bound': False,
         'loss': 0.0, 'rtt_s': None, 'sent_bytes': 500,
         'windows_bytes': [1, 2]}, {'src': 'c', 'dst': 'd'}], key=str)
    # Of a connection without an answer nobody knows what it sent.
    assert made.prober.state().last_hour_bytes == (
        12 * 10 * 200 * 1472 + 500)
    assert fetch(made) == {}


def test_asked_trains_take_turns_where_they_share_a_host(made):
    measure_all(made)
    one = made.prober.ask(wire.ProbeRequest(
        pairs=[('a', 'b'), ('a', 'c')], bursts=3, packets=50))
    made.clock.now += 1
    for peer in 'bc':
        (train,) = fetch(made).values()
        assert (train.peer, train.traffic, train.repeats) == (
            peer, probe_order.Train(3, 50, 1472), False)
        assert not made.prober.done(plain.measurement(
            'a', peer, 1e8, probe_id=train.probe_id, sent_bytes=9))
        made.clock.now += 1
    assert answered(made, one)['done']
    # It counts in the budget with what it sent.
    assert made.prober.state().last_hour_bytes == (
        12 * 10 * 200 * 1472 + 2 * 9)


def test_what_was_asked_for_is_not_kept_when_it_comes_late_or_again(made):
    measure_all(made)
    one = made.prober.ask(wire.ProbeRequest(pairs=[('a', 'b')], bursts=3))
    made.clock.now += 1
    (train,) = fetch(made).values()
    made.clock.now += 20
    assert answered(made, one)['done']
    late = plain.measurement('a', 'b', 1e8, probe_id=train.probe_id)
    for prober in (made.prober, made.prober, made.again()):
        assert not prober.done(late)
    assert made.prober.done(plain.measurement('a', 'b', 1e8))


def test_a_host_that_never_comes_ends_a_request(made):
    one = made.prober.ask(wire.ProbeRequest(pairs=[('a', 'gone')]))
    made.clock.now += asked.PATIENCE_S + 1
    assert answered(made, one) == {
        'done': True, 'results': [{'src': 'a', 'dst': 'gone'}]}


def test_requests_are_forgotten_once_they_are_done(made):
    one = made.prober.ask(wire.ProbeRequest(pairs=[('a', 'gone')]))
    assert not answered(made, one)['done']
    assert made.prober._asked == [one]
    one.results['a', 'gone'] = None
    made.clock.now += 1
    assert answered(made, one)['done']
    assert made.prober._asked == []


def sample(metric, *labels):
    return metric.labels(*labels)._value.get()


def counts(made):
    found = made.prober._counts
    return {name: sample(found.probes, name)
            for name in ('measured', 'failed')} | {
        name: sample(found.probe_hosts, name)
        for name in ('fresh', 'held', 'due')} | {
        'bytes': found.probe_bytes._value.get()}


TRAIN_BYTES = 10 * 200 * 1472


def test_what_is_counted(made):
    trains = fetch(made)
    assert counts(made) == {
        'measured': 0, 'failed': 0, 'fresh': 0, 'held': 0, 'due': 4,
        'bytes': 2 * TRAIN_BYTES}
    (first, train), (_second, _other) = sorted(trains.items())
    made.prober.done(plain.measurement(
        first, train.peer, 1e8, probe_id=train.probe_id,
        sent_bytes=7))
    assert counts(made)['measured'] == 1
    assert counts(made)['bytes'] == TRAIN_BYTES + 7
    # Of the same train nothing is counted twice.
    made.prober.done(plain.measurement(
        first, train.peer, 1e8, probe_id=train.probe_id,
        sent_bytes=7))
    assert counts(made)['measured'] == 1
    made.clock.now += 5
    assert not made.prober.is_idle()
    assert counts(made)['failed'] == 1
    measure_all(made)
    assert counts(made) | {'bytes': 0, 'held': 0} == {
        'measured': 11, 'failed': 1, 'fresh': 2, 'held': 0, 'due': 2,
        'bytes': 0}
    made.clock.now += probes.RETRY_S
    measure_all(made)
    assert counts(made) | {'bytes': 0} == {
        'measured': 12, 'failed': 1, 'fresh': 4, 'held': 0, 'due': 0,
        'bytes': 0}


def test_hosts_without_a_budget_are_counted(made):
    made.conf.probe.max_bytes_per_hour = 1
    made.prober = made.again()
    assert fetch(made) == {}
    assert counts(made) == {'measured': 0, 'failed': 0, 'fresh': 0,
                            'held': 4, 'due': 4, 'bytes': 0}


@pytest.mark.parametrize(('kind', 'most_s'), [
    ('train', 5 + 3), ('bulk', 5 + 3 + 2)])
def test_when_what_was_asked_for_is_given_up(made, kind, most_s):
    """It takes a while to come to the edge modules, and lasts."""
    measure_all(made)
    one = made.prober.ask(wire.ProbeRequest(pairs=[('a', 'b')], kind=kind,
                                            lasts_s=2.0))
    made.clock.now += 1
    assert len(fetch(made)) == 1
    made.clock.now += most_s - 0.01
    assert not answered(made, one)['done']
    made.clock.now += 0.01
    assert answered(made, one)['done']
    # It is no reading that failed: nobody retries it.
    assert made.prober.state().n_held == 0
    assert made.prober.state().under_way == []


def test_it_looks_once_in_an_interval(made):
    made.conf.probe.interval_s = 10.0
    answer(made, fetch(made))
    made.clock.now += 8.99
    assert fetch(made) == {}
    made.clock.now += 0.01
    assert len(fetch(made)) == 2


def test_nothing_begins_while_a_check_has_the_network(made):
    made.prober.hold(True)
    assert fetch(made) == {} and made.prober.is_idle()
    made.prober.hold(False)
    assert len(fetch(made)) == 2 and not made.prober.is_idle()


def test_which_measurements_are_kept(made):
    usual = plain.measurement('a', 'b', 1e8)
    bulk = plain.measurement('a', 'c', 1e8, method='bulk')
    assert made.prober.done(usual) and not made.prober.done(bulk)
    state = made.prober.state()
    assert (state.n_hosts, state.last_hour_bytes) == (0, 0)
    pairs = set()
    while trains := fetch(made):
        pairs |= {(host, train.peer) for host, train in trains.items()}
        answer(made, trains)
    # What TCP got is no reading of the pair.
    assert ('a', 'b') not in pairs and ('a', 'c') in pairs


def test_the_state_says_what_is_configured(made):
    made.conf.probe.max_link_share = 0.5
    made.conf.probe.max_bytes_per_hour = 10 ** 12
    made.prober = made.again()
    trains = fetch(made)
    assert msgspec.to_builtins(made.prober.state()) == {
        'enabled': True, 'n_hosts': 4, 'n_fresh': 0, 'n_held': 0,
        'all_pairs': True, 'freshness_s': 100.0,
        'under_way': [{'src': src, 'dst': trains[src].peer}
                      for src in sorted(trains)],
        'max_link_share': 0.5, 'max_bytes_per_hour': 10 ** 12,
        'last_hour_bytes': 2 * TRAIN_BYTES}


def test_hosts_that_are_awaited_are_measured_again_earlier(made):
    found = made.prober._measurable(0, 0, False)
    measure_all(made)
    made.prober._measurable = lambda *_args: round_schedule.Measurable(
        found.targets, found.links_bps, frozenset('a'))
    made.clock.now += 13
    assert fetch(made) == {}
    made.clock.now += 6
    trains = fetch(made)
    assert trains and all('a' in (host, train.peer)
                          for host, train in trains.items())
