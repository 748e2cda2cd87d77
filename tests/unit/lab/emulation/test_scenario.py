# SPDX-License-Identifier: Apache-2.0

"""The demo's workloads, and what the models expect of them."""

import dataclasses

import pytest

from virtco import hints
from virtco.model import coflow as coflow_model
from virtco_lab.emulation import bed
from virtco_lab.emulation import calibration
from virtco_lab.emulation import prediction
from virtco_lab.emulation import runner
from virtco_lab.emulation import scenario
from virtco_lab.emulation import traffic

RATE_BPS = 100e6


def _rates(n_hosts):
    return dict.fromkeys(bed.host_names(n_hosts), RATE_BPS)


def test_fig1_has_the_papers_flows():
    workload = scenario.fig1(RATE_BPS, slots=7, unit_s=2.0)
    (group,) = workload.groups
    unit = round(RATE_BPS * scenario.PAYLOAD_FRACTION / 8 * 2.0)
    flows = [{(f.src, f.dst): f.size_bytes / unit for f in coflow.flows}
             for coflow in group.coflows]
    assert flows == [{(0, 1): 5, (1, 2): 1, (2, 0): 2},
                     {(1, 2): 1, (2, 1): 2}]
    ports = [coflow.dst_port for coflow in group.coflows]
    assert len(set(ports)) == 2 and None not in ports
    assert [coflow.n_vms for coflow in group.coflows] == [3, 3]
    # A host holds two of the VMs, not three.
    assert 2 * group.vm_slots <= 7 < 3 * group.vm_slots


def test_fig1_simulated_gives_the_papers_averages():
    workload = scenario.fig1(RATE_BPS, slots=2)
    done = [runner.run_simulated(workload, scheme, _rates(3), 2, seed=0)
            for scheme in workload.schemes]
    means = [scheme.mean_measured_s / workload.unit_s for scheme in done]
    # All but what is left to traffic that is no coflow.
    share = 1 - prediction.DEFAULT_SHARE
    assert means == pytest.approx([mean / share for mean in (4.5, 3.0, 2.5)],
                                  rel=1e-3)
    predicted = [scheme.mean_predicted_s for scheme in done]
    assert predicted == pytest.approx(
        [scheme.mean_measured_s for scheme in done], rel=1e-6)


@pytest.mark.parametrize('n_hosts', [3, 4, 6, 12, 18])
@pytest.mark.parametrize('seed', [0, 7])
def test_mix_fits_and_has_the_load_asked_for(n_hosts, seed):
    workload = scenario.mix(n_hosts, RATE_BPS, seed, load_s=5.0)
    n_vms = [group.n_vms for group in workload.groups]
    slots = scenario.slots_per_host(n_hosts)
    assert sum(n_vms) <= slots * n_hosts
    if n_hosts == 18:
        assert n_vms == [10, 20, 40, 10, 20, 40]
    else:
        assert len(n_vms) == 4
    if 6 <= n_hosts < 18:
        assert min(n_vms) > slots
    total = sum(group.coflows[0].size_bytes for group in workload.groups)
    assert total * 8 / (n_hosts * scenario.goodput_bps(RATE_BPS)) == (
        pytest.approx(5.0, rel=1e-4))
    for group in workload.groups:
        for flow in group.coflows[0].flows:
            assert flow.size_bytes == int(flow.size_bytes) >= 1
    assert scenario.mix(n_hosts, RATE_BPS, seed, load_s=5.0) == workload


@pytest.mark.parametrize('n_hosts', [6, 18])
def test_mix_fits_into_what_nova_carries_as_hints(n_hosts):
    for group in scenario.mix(n_hosts, 1e9, 0).groups:
        text = hints.encode(hints.Hint(group.name, coflows=group.coflows))
        found = hints.parse(text)
        assert found.coflows[0].flows == group.coflows[0].flows


def test_mix_simulated_keeps_the_capacities_and_the_order_of_schemes():
    workload = scenario.mix(6, RATE_BPS, seed=0)
    slots = scenario.slots_per_host(6)
    done = [runner.run_simulated(workload, scheme, _rates(6), slots, seed=0)
            for scheme in workload.schemes]
    for scheme in done:
        used = [host for hosts in scheme.hosts.values() for host in hosts]
        assert max(used.count(host) for host in set(used)) <= slots
    baseline, traffic_aware, virtco = [s.mean_measured_s for s in done]
    assert virtco < 0.9 * traffic_aware < 0.5 * baseline


def test_plans_avoid_a_slow_host_in_the_simulator():
    rates = _rates(6)
    rates['h1'] /= 2
    workload = scenario.fig1(RATE_BPS, scenario.slots_per_host(6))
    done = runner.run_simulated(workload, workload.schemes[-1], rates,
                                scenario.slots_per_host(6), seed=0)
    assert 'h1' not in done.hosts['fig1']
    assert done.uplink_bytes['h1'] == (0, 0)
    loads = done.uplink_bytes.values()
    unit = workload.groups[0].coflows[0].flows[1].size_bytes
    assert sorted(loads, reverse=True)[:2] == [(5 * unit, 2 * unit),
                                               (2 * unit, 5 * unit)]


def test_flows_between_hosts_are_added_up_and_others_left_out():
    coflow = scenario.fig1(RATE_BPS, 2, unit_s=1.0).groups[0].coflows[0]
    unit = coflow.flows[1].size_bytes
    placed = prediction.Placed(coflow, ('a', 'b', 'b'))
    assert placed.between_hosts() == {
        ('a', 'b'): (5 * unit, 1), ('b', 'a'): (2 * unit, 1)}
    assert prediction.Placed(coflow, ('a', 'a', 'a')).between_hosts() == {}
    assert prediction.simulate(
        [prediction.Placed(coflow, ('a', 'a', 'a'))], {'a': 1e6},
        'mrtf') == [0.0]


def test_fair_sharing_counts_every_flow():
    """Two flows between the same hosts: the long one is alone at the end."""
    coflows = [coflow_model.Coflow.from_flows('a', 4, [(0, 2, 1), (1, 3, 3)]),
               coflow_model.Coflow.from_flows('b', 2, [(0, 1, 2)])]
    placed = [prediction.Placed(coflows[0], ('x', 'x', 'y', 'y')),
              prediction.Placed(coflows[1], ('x', 'y'))]
    # Thirds until 3, halves until 5, then all.
    assert prediction.simulate(placed, {'x': 8.0, 'y': 8.0},
                               'fair') == pytest.approx([6, 5])


def test_local_flows_share_their_hosts_pace():
    coflows = [coflow_model.Coflow.from_flows('a', 4, [(0, 2, 1), (1, 3, 3)]),
               coflow_model.Coflow.from_flows('b', 2, [(0, 1, 2)])]
    placed = [prediction.Placed(coflows[0], ('x', 'x', 'x', 'y')),
              prediction.Placed(coflows[1], ('x', 'x'))]
    assert prediction.simulate_local(placed, 8.0) == pytest.approx([2, 3])
    assert prediction.simulate_local([prediction.Placed(
        coflows[1], ('x', 'y'))], 8.0) == [0]


def test_tied_coflows_are_predicted_in_the_order_that_was_taken():
    coflows = [coflow_model.Coflow.from_flows(name, 2, [(0, 1, size)])
               for name, size in (('a', 2), ('b', 2), ('c', 1))]
    placed = [prediction.Placed(coflow, ('x', 'y')) for coflow in coflows]
    rates = {'x': 8.0, 'y': 8.0}
    for factor in (1, 1000):
        assert prediction.ties(placed, {
            host: factor * rate_bps for host, rate_bps in rates.items()
        }, 'sebf') == [[0, 1]]
    assert prediction.ties(placed, rates, 'fair') == []
    assert prediction.ties(placed[1:], rates, 'sebf') == []
    for measured in ([3.1, 5.2, 1.1], [5.2, 3.1, 1.1]):
        found = prediction.simulate_as_taken(placed, rates, 'sebf', measured)
        assert found == pytest.approx([round(m) for m in measured])


def test_coflows_that_send_nothing_are_no_tie():
    coflow = coflow_model.Coflow.from_flows('a', 2, [(0, 1, 2)])
    placed = [prediction.Placed(coflow, ('x', 'x'))] * 2
    assert prediction.ties(placed, {'x': 8.0}, 'sebf') == []


@pytest.mark.parametrize('carried_bps, n_hosts, rate_bps', [
    (50e6 * 6 * 11 * 1.5 / 0.8, 6, 50e6), (49e6 * 6 * 11 * 1.5 / 0.8, 6, 40e6),
    (15e6 * 18 * 11 * 2.5 / 0.8, 18, 15e6), (1e6, 6, 5e6), (1e12, 6, 50e6)])
def test_rate_of_uplinks_is_what_the_machine_carries(
        carried_bps, n_hosts, rate_bps):
    assert calibration.choose_rate_bps(carried_bps * 1.0001,
                                       n_hosts) == rate_bps


def test_a_rate_that_just_fits_is_chosen():
    carried_bps = 20e6 * 18 * 11 / 0.32
    assert carried_bps * 0.32 / 18 / 11 == 20e6
    assert calibration.choose_rate_bps(carried_bps, 18) == 20e6


def test_windows_of_a_link_fit_into_a_short_queue():
    def window(n_flows, rate_bps):
        return traffic.window_bytes([
            *(('h0', f'h{i + 1}') for i in range(n_flows)),
            *[('h0', 'h0')] * 100], rate_bps)

    assert window(1, 50e6) == traffic.MAX_WINDOW_BYTES
    assert window(16, 50e6) == int(50e6 / 8 * 0.08 / 16)
    assert window(200, 50e6) == 16 * 1024
    assert window(0, 10e6) == traffic.MAX_WINDOW_BYTES


def test_schemes_speak_the_controllers_language():
    for scheme in (*scenario.FIG1_SCHEMES, scenario.BASELINE,
                   scenario.SEBF_TA, scenario.VIRTCO):
        assert scheme.settings() == {
            'planner': scheme.planner, 'order': scheme.order,
            'objective': 'online'}
    assert dataclasses.replace(scheme, ceil='rate').settings()[
        'ceil'] == 'rate'
