# SPDX-License-Identifier: Apache-2.0

"""Hosts as they report: rates, links, strangers, and what stays the same."""


import numpy as np
import pytest

from tests.unit import made
from virtco.model import cluster
from virtco.state import host_state
from virtco.state import host_uplinks
from virtco.state import measured_rates
from virtco.state import schedule_input
from virtco.state import uplink_rates
from virtco.table import coflow_table


def report(sent=0, uplink=0, epoch='e', ports=(), egress_bps=1e9, **values):
    return made.report(
        epoch=epoch, uplink_sent_bytes=uplink,
        ports=[{'vm': vm, 'mac': f'02:00:00:00:00:0{i}'.upper()}
               for i, vm in enumerate(ports)],
        coflows=[{'coflow_id': 'c', 'sent_bytes': sent}],
        **{'link': {'egress_bps': egress_bps, 'ingress_bps': 3e9}, **values})


@pytest.fixture
def host():
    return host_state.HostState('h', 1.0, 5.0)


def test_a_first_report_is_of_no_time(host):
    assert host.known_link is None and host.vms == set()
    taken = host.take(report(100, 150, ports=('a',)), 10.0)
    assert (taken.since_s, taken.new_ports, taken.new_link) == (
        10.0, True, True)
    assert [delta.wire_bytes for delta in taken.deltas] == [100]
    assert host.background.value == 0.0 and host.observed == {}
    assert host.new_vms == host.vms == {'a'}
    assert host.macs == {'02:00:00:00:00:00'}
    assert host.known_link.egress_bps == 1e9


def test_addresses_of_the_host_itself_are_its_own(host):
    """Also where nothing else of a report changed."""
    host.take(report(ports=('a',)), 10.0)
    host.take(report(ports=('a',), link={
        'egress_bps': 1e9, 'ingress_bps': 3e9,
        'macs': ['02:00:00:00:00:09']}), 11.0)
    assert host.macs == {'02:00:00:00:00:00', '02:00:00:00:00:09'}


def test_rates_are_of_the_time_between_reports(host):
    host.take(report(100, 150), 10.0)
    taken = host.take(report(300, 750), 14.0)
    assert (taken.since_s, taken.new_ports, taken.new_link) == (
        10.0, False, False)
    assert host.background.value == (600 - 200) / 4 * 8
    assert host.observed['c'].value == 200 / 4 * 8
    host.take(report(300, 750), 15.0)
    # A second is the half-life of what is observed of a coflow.
    assert host.observed['c'].value == pytest.approx(200)
    assert host.background.value == pytest.approx(800 * 0.5 ** 0.2)
    view = host.view(uplink_rates.Capacity(5.0, 7.0))
    assert (view.host, view.capacity, view.last_report_s, view.report) == (
        'h', uplink_rates.Capacity(5.0, 7.0), 15.0, host.report)
    assert view.background_bps == host.background.value
    assert view.observed_bps == {'c': host.observed['c'].value}
    # Who is not reported any more is not observed.
    host.take(made.replaced(report(), coflows=[]), 16.0)
    assert host.observed == {}


@pytest.mark.parametrize(('values', 'lasts_s'), [
    ({'boot_ms': 7000}, 2.0), ({'boot_ms': 7000, 'boot_id': 'c'}, 4.0),
    # A host may not claim any rate.
    ({'boot_ms': 5001}, 1.0), ({'boot_ms': 5000}, 1.0), ({}, 4.0)])
def test_rates_are_of_the_time_by_the_hosts_clock(host, values, lasts_s):
    """Where it tells: a report may wait on its way."""
    host.take(report(100, 150, boot_id='b', boot_ms=5000), 10.0)
    taken = host.take(report(300, 350, **{'boot_id': 'b', **values}), 14.0)
    assert (taken.since_s, taken.lasts_s) == (10.0, lasts_s)
    assert host.observed['c'].value == 200 / lasts_s * 8


def test_a_sign_of_life_has_no_time_of_the_host(host):
    """Nothing was sent before it."""
    host.take(report(100, 150, boot_id='b', boot_ms=5000), 10.0)
    host.heard(39.0)
    taken = host.take(report(300, 350, boot_id='b', boot_ms=35_000), 40.0)
    assert taken.lasts_s == 1.0


def test_a_sign_of_life_after_a_report_with_bytes_is_no_look(host):
    host.take(report(100, 150, boot_id='b', boot_ms=5000), 10.0)
    host.take(report(200, 250, boot_id='b', boot_ms=6000), 11.0)
    host.heard(11.9)
    taken = host.take(report(300, 350, boot_id='b', boot_ms=7000), 12.0)
    assert (taken.since_s, taken.lasts_s) == (11.0, 1.0)
    assert host.observed['c'].value == 100 * 8
    host.heard(14.0)
    assert host.last_report == 14.0 and host.observed['c'].value < 400


def test_counters_that_begin_anew_are_of_no_time(host):
    host.take(report(100, 150), 10.0)
    taken = host.take(report(100, 150, 'f', egress_bps=2e9), 14.0)
    assert (taken.since_s, taken.new_link) == (14.0, True)
    assert host.observed == {}
    # Two reports of one moment neither.
    host.take(report(200, 250, 'f'), 14.0)
    assert host.observed == {}


def test_only_ports_that_came_are_new(host):
    host.take(report(ports=('a',)), 1.0)
    taken = host.take(report(ports=('a', 'b')), 2.0)
    assert taken.new_ports and host.new_vms == {'b'}
    assert not host.take(report(ports=('a', 'b')), 3.0).new_ports
    assert host.new_vms == set()


@pytest.mark.parametrize(('boot_id', 'boot_ms', 'overtaken'), [
    ('b', 3_600_099, True), ('b', 3_600_100, False),
    ('b', 3_600_101, False), ('c', 3_600_099, False), ('b', None, False),
    ('b', 100, True), ('b', 99, False)])
def test_a_report_that_was_overtaken(host, boot_id, boot_ms, overtaken):
    assert not host.has_overtaken(report(boot_id='b', boot_ms=1))
    host.take(report(boot_id='b', boot_ms=3_600_100), 1.0)
    assert host.has_overtaken(report(boot_id=boot_id, boot_ms=boot_ms)
                              ) is overtaken


def test_a_heartbeat_counts_nothing(host):
    host.heard(5.0)
    assert host.last_report is None
    host.take(report(100, 150), 10.0)
    host.heard(13.0)
    assert host.last_report == 13.0 and host.observed == {}
    host.take(report(200, 950), 14.0)
    before = host.background.value
    host.heard(14.0)
    assert host.background.value == before
    host.heard(19.0)
    assert host.background.value == pytest.approx(before / 2)
    assert host.observed['c'].value == pytest.approx(800 / 2 ** 5)
    assert host.last_report == 19.0
    # Background alone falls, too.
    host.observed = {}
    host.heard(24.0)
    assert host.background.value == pytest.approx(before / 4)
    host.heard(26.5)
    assert host.background.value == pytest.approx(before / 4 * 0.5 ** 0.5)


class Row:
    """As the database has a host."""

    def __init__(self, stored):
        for name, value in host_state.encoded(stored).items():
            setattr(self, name, value)


def test_a_host_is_as_it_was_stored(host):
    host.minors = coflow_table.Minors({'c': 4}, {'d': 9.0})
    host.take(report(100, 150, ports=('a',)), 10.0)
    host.take(report(200, 950, ports=('a',), unshaped_sent_bytes=400,
                     rdma_received_bytes=500), 12.0)
    row = Row(host.columns())
    again = host_state.HostState('h', 99.0, 5.0)
    assert again.load(row) and not again.load(row)
    assert (again.first_seen, again.last_report) == (1.0, 12.0)
    assert again.background.value == round(host.background.value)
    assert again.unshaped.value == host.unshaped.value == 1600
    assert again.received.value == host.received.value == 2000
    assert again.counters.values == host.counters.values
    assert again.counters.epoch == 'e'
    assert again.minors == host.minors
    assert again.report.link == host.report.link
    assert again.report.ports == host.report.ports
    assert again.macs == host.macs == {'02:00:00:00:00:00'}
    assert again.report.coflows == ()
    assert again.columns()['host'] == 'h'
    # What a restart counts goes on where it was.
    again.take(report(300, 1150), 14.0)
    assert again.observed['c'].value == 400.0


def test_one_that_never_reported_is_stored_too(host):
    row = Row(host.columns())
    again = host_state.HostState('h', 99.0, 5.0)
    assert again.load(row)
    assert again.known_link is None and again.minors == coflow_table.NO_MINORS
    assert again.background.value == 0.0


class Bench:
    """Uplinks of hosts whose reports say what they say."""

    def __init__(self, *names, max_age_s=100.0):
        self.hosts, self.rates = {}, measured_rates.Rates()
        self.uplinks = host_uplinks.HostUplinks(
            uplink_rates.Rules(8e9, max_age_s),
            schedule_input.Share(0.25, 0.5),
            self.rates, self.hosts)
        for number, name in enumerate(names, 1):
            self.add(name, number * 1e9)

    def add(self, name, egress_bps):
        self.hosts[name] = host_state.HostState(name, 0.0, 5.0)
        self.uplinks.rehost()
        self.report(name, report(egress_bps=egress_bps))

    def report(self, name, found, now_s=0.0):
        if self.hosts[name].take(found, now_s).new_link:
            self.uplinks.changed(name)
        self.uplinks.observed(name)

    def known(self, now_s=1.0):
        self.uplinks.refresh(now_s)
        return self.uplinks.known


def test_uplinks_are_told_by_name():
    bench = Bench('b', 'a')
    first, second = bench.known()
    assert second == schedule_input.Host('b', coflow_table.Link(
        'b', 1e9, 3e9, 0.25e9), 1e9, 3e9)
    assert first == schedule_input.Host('a', coflow_table.Link(
        'a', 2e9, 3e9, 0.5e9), 2e9, 3e9)
    assert bench.uplinks.capacities['a'] == uplink_rates.Capacity(
        2e9, 3e9, source='link')


def test_what_stays_the_same_is_the_same():
    bench = Bench('a', 'b')
    known = bench.known()
    assert bench.known() is known
    bench.report('a', report(100, 999, egress_bps=1e9), 1.0)
    assert bench.known() is known
    bench.report('a', report(egress_bps=5e9), 2.0)
    after = bench.known()
    assert after is not known and after[1] is known[1]
    assert after[0].egress_bps == 5e9
    # A change that changes nothing.
    bench.uplinks.changed('a')
    assert bench.known() is after
    bench.uplinks.rehost()
    assert bench.known() is after


def test_a_link_that_tells_no_speed_has_the_default():
    bench = Bench('a')
    bench.report('a', made.report(link={'egress_bps': None,
                                        'ingress_bps': None}), 1.0)
    (host,) = bench.known()
    assert (host.egress_bps, host.ingress_bps) == (8e9, 8e9)
    assert host.link == coflow_table.Link('a', 8e9, 8e9, 2e9)
    bench.hosts['n'] = host_state.HostState('n', 0.0, 5.0)
    bench.uplinks.rehost()
    assert bench.known()[1].link is None


def test_strangers_carry_nothing_until_they_are_known():
    bench = Bench('b')
    assert bench.uplinks.set_strangers({'a'})
    assert not bench.uplinks.set_strangers({'a'})
    known = bench.known()
    assert known[0] == schedule_input.Host('a', None, 0.0, 0.0)
    assert known.names == ('a', 'b')
    egress_bps, ingress_bps = bench.uplinks.residual(False)
    assert egress_bps.tolist() == [0.0, 0.75e9]
    assert ingress_bps.tolist() == [0.0, 2.25e9]
    # Nothing is known of what else they send, either.
    assert bench.uplinks.background_share() == 0.0
    assert bench.uplinks.set_strangers(set())
    assert bench.known().names == ('b',)


def test_background_is_taken_where_it_was_counted():
    bench = Bench('a', 'b')
    bench.known()
    bench.report('b', report(uplink=0, epoch='f', egress_bps=2e9), 10.0)
    bench.report('b', report(uplink=0.1e9, epoch='f',
                             egress_bps=2e9), 11.0)
    assert bench.uplinks.residual(False)[0].tolist() == [0.75e9, 1.2e9]
    assert bench.uplinks.residual(True)[0].tolist() == [0.75e9, 1.5e9]
    assert bench.uplinks.background_share() == 0.8e9 / 3e9
    # Also where hosts are told anew.
    bench.add('0', 4e9)
    bench.known()
    assert bench.uplinks.residual(False)[0].tolist() == [3e9, 0.75e9, 1.2e9]
    assert bench.uplinks.residual(False)[1].tolist() == [2.25e9] * 3
    assert bench.uplinks.residual(True)[0].tolist() == [3e9, 0.75e9, 1.5e9]


def test_what_passes_no_class_leaves_less_than_half_of_the_link():
    bench = Bench('a')
    bench.known()
    for at_s, sent_bytes in ((10.0, 0), (11.0, 75_000_000)):
        bench.report('a', report(epoch='f', uplink=sent_bytes,
                                 unshaped_sent_bytes=sent_bytes,
                                 rdma_received_bytes=2 * sent_bytes), at_s)
    egress_bps, ingress_bps = bench.uplinks.residual(False)
    assert (egress_bps.tolist(), ingress_bps.tolist()) == ([0.4e9], [1.8e9])
    # Also where hosts are told anew.
    bench.add('b', 1e9)
    bench.known()
    assert bench.uplinks.residual(False)[1].tolist() == [1.8e9, 2.25e9]
    bench.hosts['a'].heard(16.0)
    assert bench.hosts['a'].unshaped.value == 0.3e9
    assert bench.hosts['a'].received.value == 0.6e9


def test_received_rdma_fades_where_nothing_is_sent(host):
    for at_s, received_bytes in ((10.0, 0), (11.0, 1000)):
        host.take(made.report(epoch='e', rdma_received_bytes=received_bytes,
                              uplink_sent_bytes=0, coflows=[], ports=[]),
                  at_s)
    assert (host.received.value, host.background.value) == (8000.0, 0.0)
    host.heard(16.0)
    assert host.received.value == 4000.0


def test_the_background_share_is_at_most_all():
    assert Bench().uplinks.background_share() == 0.0
    bench = Bench('a')
    bench.known()
    bench.report('a', report(uplink=0, epoch='f'), 10.0)
    bench.report('a', report(uplink=0.5e9, epoch='f'), 11.0)
    assert bench.uplinks.background_share() == 1.0


def test_a_measurement_counts_until_it_is_too_old():
    bench = Bench('a', 'b')
    assert bench.known()[0].egress_bps == 1e9
    for at_s, src, dst in ((10.0, 'a', 'b'), (60.0, 'b', 'a')):
        bench.rates.add(made.measurement(src, dst, 0.5e9), at_s)
    known = bench.known(70.0)
    assert [(one.egress_bps, one.ingress_bps) for one in known] == [
        (0.5e9, 0.5e9), (0.5e9, 0.5e9)]
    # At its own speed a host shapes, whatever was measured.
    assert (known[0].link.egress_bps, known[0].link.ingress_bps) == (1e9,
                                                                     3e9)
    assert bench.known(110.0) is known
    late = bench.known(110.1)
    assert late is not known
    assert [one.egress_bps for one in late] == [1e9, 2e9]
    assert bench.known(500.0) is late


def test_uplinks_hold_until_the_first_measurement_is_too_old():
    bench = Bench('a', 'b', 'c')
    bench.rates.add(made.measurement('a', 'b', 0.5e9), 10.0)
    bench.rates.add(made.measurement('c', 'b', 0.4e9), 60.0)
    assert [one.egress_bps for one in bench.known(70.0)] == [0.5e9, 2e9,
                                                             0.4e9]
    assert [one.egress_bps for one in bench.known(111.0)] == [1e9, 2e9,
                                                              0.4e9]
    assert [one.egress_bps for one in bench.known(160.0)] == [1e9, 2e9,
                                                              0.4e9]
    assert [one.egress_bps for one in bench.known(160.1)] == [1e9, 2e9, 3e9]


def test_a_measurement_counts_to_the_last_moment_of_its_age():
    """Also where it is the only one, and was known from the beginning."""
    bench = Bench('a', 'b')
    bench.rates.add(made.measurement('a', 'b', 0.5e9), 10.0)
    assert bench.known(110.0)[0].egress_bps == 0.5e9
    assert bench.known(110.1)[0].egress_bps == 1e9


TREE = cluster.Tree(
    (cluster.Subtree('p0', 4e9, 5e9), cluster.Subtree('r0', 2e9, 3e9, 'p0'),
     cluster.Subtree('r1', 6e9, 1e9, 'p0'), cluster.Subtree('r2', 7e9, 8e9)),
    {'a': 'r0', 'b': 'r1', 'c': 'r2', 'd': 'r0'})


@pytest.mark.parametrize(('src', 'dst', 'rate_bps'), [
    ('a', 'b', 1e9), ('b', 'a', 3e9), ('a', 'c', 2e9), ('c', 'a', 3e9),
    ('b', 'c', 4e9), ('c', 'b', 1e9), ('a', 'd', None), ('a', 'x', 2e9),
    ('x', 'a', 3e9), ('x', 'y', None)])
def test_the_slowest_uplink_between_two_hosts(src, dst, rate_bps):
    assert measured_rates._between(TREE, [(src, dst)]) == (
        {} if rate_bps is None else {(src, dst): rate_bps})
    assert measured_rates._between(cluster.Tree(), [(src, dst)]) == {}


def test_what_is_measured_after_hosts_were_forgotten_is_estimated():
    pairs = measured_rates.Rates(measured_rates.DEPTH, 7200.0, 3600.0)
    for dst in 'bc':
        pairs.add(made.measurement('a', dst, 5e8), 1.0)
    assert pairs.refresh(2.0)
    pairs.forget({'x'})
    assert not pairs.refresh(3.0)
    pairs.forget({'c'})
    pairs.add(made.measurement('a', 'd', 7e8), 4.0)
    assert pairs.refresh(5.0)
    assert pairs.known.table.hosts == ('a', 'b', 'd')
    # As many readings of each pair as RPCA takes.
    assert measured_rates.DEPTH == 10


def test_estimators_are_compared_every_ten_minutes():
    pairs = measured_rates.Rates(10, 7200.0, 3600.0)
    assert pairs.estimator is None and pairs.errors == {}
    assert pairs.refresh(0.0)  # of nothing, once
    assert not pairs.refresh(1.0)
    for turn in range(3):
        for src, dst, rate_bps in (('a', 'b', 5e8), ('b', 'a', 9e8)):
            pairs.add(made.measurement(src, dst, rate_bps * (1 + turn / 7)),
                      float(turn))
    assert pairs.newest_s() == 2.0
    assert pairs.refresh(10.0)
    first = pairs.errors
    assert first and pairs.estimator == pairs.known.component.estimator
    pairs.add(made.measurement('a', 'b', 7e8), 11.0)
    assert pairs.refresh(609.0) and pairs.errors is first
    pairs.add(made.measurement('a', 'b', 6e8), 12.0)
    assert pairs.refresh(610.0) and pairs.errors is not first
    assert [
        rate_bps for _, rate_bps, _ in made.readings(pairs, 'b', 'a')
    ] == pytest.approx([9e8 * (1 + turn / 7) for turn in range(3)])


def test_old_readings_are_forgotten():
    pairs = measured_rates.Rates(2, 100.0, 50.0)
    pairs.add(made.measurement('a', 'b', 5e8), 10.0)
    pairs.add(made.measurement('a', 'b', 7e8), 60.0)
    pairs.refresh(120.0)
    assert np.isnan(pairs.known.table.rates_bps).sum() == 1
    pairs.add(made.measurement('b', 'a', 7e8), 60.0)
    pairs.refresh(110.0)
    assert not np.isnan(pairs.known.table.rates_bps[:, 0]).any()
    assert pairs.table(60.0).rates_bps[-1].tolist() == [7e8, 7e8]


def test_stored_readings_have_their_places():
    pairs = measured_rates.Rates(3, 1e6, 1e6)
    assert pairs.add(made.measurement('a', 'b', 5e8), 10.0) == 0
    assert pairs.add(made.measurement('a', 'b', 6e8), 11.0) == 1
    pairs.refresh(12.0)

    class Row:
        src, dst, rate_bps, lower_bound = 'a', 'b', 9e8, False
        rtt_s = rtt_median_s = rtt_p99_s = None
        loss, method = 0.0, ''

        def __init__(self, slot, measured_at):
            self.slot, self.measured_at = slot, measured_at

    pairs.load([Row(0, 9.0)])
    assert not pairs.refresh(12.0)
    pairs.load([Row(2, 13.0)])
    assert pairs.refresh(13.0)
    again = measured_rates.Rates(3, 1e6, 1e6)
    again.load([Row(0, 9.0)])
    assert again.refresh(13.0)
    assert [
        rate_bps for _, rate_bps, _ in made.readings(pairs, 'a', 'b')
    ] == [5e8, 6e8, 9e8]


def test_rates_of_pairs_are_rows():
    found = measured_rates.Rates()
    found.add(made.measurement('b', 'a', 5e8, lower_bound=True, loss=0.25,
                               rtt_s=0.1, method='train'), 10.0)
    found.add(made.measurement('a', 'b', 4e8), 10.0)
    first, second = found.pairs(1810.0)
    assert (first.src, first.dst, first.rate_bps, first.age_s,
            first.confidence) == ('a', 'b', 4e8, 1800.0, 0.5)
    assert (second.src, second.confidence, second.lower_bound,
            second.loss, second.rtt_s, second.method) == (
                'b', 0.25, True, 0.25, 0.1, 'train')
    assert found.age_s(30.0) == {('a', 'b'): 20.0, ('b', 'a'): 20.0}
    assert measured_rates.Rates().hosts() == {}


def test_a_slow_pair_is_planned_by_unless_an_uplink_explains_it():
    pairs = measured_rates.Rates(10, 7200.0, 3600.0)
    for turn in range(4):
        for src in 'abcd':
            for dst in set('abcd') - {src}:
                rate_bps = 2e8 if (src, dst) == ('a', 'b') else 1e9
                pairs.add(made.measurement(src, dst, rate_bps), float(turn))
    nothing = pairs.choose({'a', 'b'}, 5.0, cluster.Tree)
    assert nothing.rates_bps == {} and nothing.text == ''
    pairs.refresh(5.0)
    assert set(pairs.known.slow) == {('a', 'b')}
    hosts = {'a', 'b', 'c'}
    assert pairs.choose(hosts, 5.0, cluster.Tree).rates_bps == {
        ('a', 'b'): pytest.approx(2e8)}
    assert pairs.choose(hosts, 3604.1, cluster.Tree).rates_bps == {}
    for out_bps, is_slow in ((2e8, False), (1e9, True)):
        tree = cluster.Tree((cluster.Subtree('r', out_bps, 9e9),),
                            {'a': 'r'})
        assert bool(pairs.choose(hosts, 5.0, lambda: tree).rates_bps
                    ) is is_slow
