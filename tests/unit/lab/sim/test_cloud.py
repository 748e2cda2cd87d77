# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json

import numpy as np
import pytest

from virtco import exception
from virtco import own_policies
from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco_lab.sim import cloud
from virtco_lab.sim import groups
from virtco_lab.sim import schemes
from virtco_lab.sim import simulation

GB = 1e9
FIG1 = groups.of_slots('fig1', (
    coflow_model.Coflow.from_flows('C1', 3, [
        (0, 1, 5 * GB), (1, 2, GB), (2, 0, 2 * GB)]),
    coflow_model.Coflow.from_flows('C2', 3, [(1, 2, GB), (2, 1, 2 * GB)])))


def pair(name, size_bytes, arrival_s=0.0, slots=1.0):
    return groups.of_slots(name, [coflow_model.Coflow.from_flows(
        name, 2, [(0, 1, size_bytes)])], arrival_s, slots)


def run(hosts, its_groups, scheme='virtco', **kwargs):
    return cloud.simulate(hosts, its_groups, schemes.get(scheme), **kwargs)


@pytest.mark.parametrize('scheme, mean_s', [
    ('sebf-r', 4.5), ('sebf-ta', 3.0), ('virtco-printed', 3.0),
    ('virtco', 2.5), ('virtco-joint', 2.5)])
def test_figure_1(scheme, mean_s):
    """VirtCO Fig. 1: 1 GB takes a second; TA puts the 5 GB pair together."""
    hosts = groups.equal_hosts(3, 2, 8e9)
    if scheme == 'sebf-r':
        hosts = groups.equal_hosts(3, 1, 8e9)
    found = run(hosts, [FIG1], scheme)
    assert found.mean_cct_s == pytest.approx(mean_s)
    assert found.mean_response_s == found.mean_cct_s


def test_groups_arrive_and_leave():
    hosts = groups.equal_hosts(2, 1, 8e9)
    result = run(hosts, [pair('late', 2 * GB, 1.0), pair('early', 3 * GB)])
    late, early = result.coflows
    assert (early.start_s, early.cct_s) == (0.0, pytest.approx(3.0))
    # All slots are taken until the first group has gone.
    assert (late.start_s, late.cct_s) == (pytest.approx(3.0),
                                          pytest.approx(2.0))
    assert late.arrival_s == 1.0


def test_a_group_leaves_when_all_of_its_coflows_have_ended():
    two = groups.of_slots('two', [
        coflow_model.Coflow.from_flows(name, 2, [(0, 1, size_bytes)])
        for name, size_bytes in (('small', GB), ('large', 3 * GB))])
    *_, late = run(groups.equal_hosts(2, 1, 8e9),
                   [two, pair('late', GB, 0.5)]).coflows
    assert late.start_s == pytest.approx(4.0)


@pytest.mark.parametrize('stay_s, size_bytes, start_s', [
    (5.0, 3 * GB, 5.0), (2.0, 3 * GB, 3.0), (7.5, 0.0, 7.5)])
def test_vms_stay_for_their_stay_and_until_their_coflow_has_ended(
        stay_s, size_bytes, start_s):
    first = dataclasses.replace(pair('first', size_bytes), stay_s=stay_s)
    _, late = run(groups.equal_hosts(2, 1, 8e9),
                  [first, pair('late', GB, 1.0)]).coflows
    assert late.start_s == pytest.approx(start_s)
    assert late.response_s == pytest.approx(start_s)


def test_vms_that_never_leave_make_no_room():
    with pytest.raises(exception.PlacementInfeasible):
        run(groups.equal_hosts(2, 1, 8e9), [
            dataclasses.replace(pair('first', GB), stay_s=5.0),
            pair('second', GB)], leave=False)


def test_each_plan_is_told_before_and_after():
    told = []
    run(groups.equal_hosts(4, 1, 8e9),
        [pair('one', GB), pair('two', GB, 0.5)],
        on_plan=lambda: told.append('plan'),
        on_planned=lambda: told.append('planned'))
    assert told == ['plan', 'planned'] * 2


def test_what_fits_nowhere_is_refused():
    with pytest.raises(exception.PlacementInfeasible):
        run(groups.equal_hosts(2, 1, 8e9), [pair('big', GB, slots=2.0)])
    with pytest.raises(exception.PlacementInfeasible):
        run(groups.equal_hosts(2, 1, 8e9),
            [pair('first', GB), pair('second', GB)], leave=False)


def windowed(window_s):
    return dataclasses.replace(schemes.get('virtco'), window_s=window_s)


def test_groups_of_one_window_are_planned_together():
    hosts = groups.equal_hosts(8, 1, 8e9)
    its_groups = [pair('a', GB), pair('b', GB, 0.02), pair('c', GB, 0.06)]
    result = cloud.simulate(hosts, its_groups, windowed(0.05))
    assert len(result.planned_s) == 2
    assert [row.start_s for row in result.coflows] == pytest.approx(
        [0.05, 0.05, 0.11])
    assert result.mean_response_s - result.mean_cct_s == pytest.approx(
        (0.05 + 0.03 + 0.05) / 3)
    apart = cloud.simulate(hosts, its_groups, windowed(None))
    assert len(apart.planned_s) == 3
    assert apart.mean_response_s == pytest.approx(apart.mean_cct_s)


def test_first_of_a_window_goes_alone_where_not_all_fit():
    hosts = groups.equal_hosts(2, 1, 8e9)
    result = cloud.simulate(hosts, [pair('a', GB), pair('b', GB, 0.02)],
                            windowed(0.05))
    assert [row.start_s for row in result.coflows] == pytest.approx(
        [0.05, 1.05])


def test_newcomer_sees_what_runs():
    """The second group avoids the host that the first keeps busy."""
    hosts = groups.equal_hosts(4, 1, 8e9)
    busy = groups.Group('busy', ((1.0,), (1.0,)), pair('x', 9 * GB).coflows)
    result = run(hosts, [busy, pair('new', GB, 1.0)])
    assert not set(result.hosts['busy']) & set(result.hosts['new'])
    assert result.coflows[1].cct_s == pytest.approx(1.0)


def test_same_seed_same_result():
    hosts = groups.equal_hosts(4, 2, 8e9)
    several = [pair(f'g{i}', (i + 1) * GB, i / 10) for i in range(4)]
    assert run(hosts, several, seed=3) == run(hosts, several, seed=3)


def test_a_scheme_may_have_the_installed_policy(monkeypatch):
    installed = simulation.POLICIES['sincronia']
    monkeypatch.setattr(own_policies, 'installed', lambda: installed)
    config = dataclasses.replace(schemes.get('virtco'), order='own').config()
    assert config.chosen() is installed


def test_never_faster_than_alone():
    hosts = groups.equal_hosts(3, 4, 8e9)
    several = [pair(f'g{i}', (i + 1) * GB, i / 10) for i in range(5)]
    for scheme in schemes.SCHEMES:
        for row in run(hosts, several, scheme).coflows:
            assert row.cct_s >= row.alone_s * (1 - 1e-9)


def test_demand_leaves_out_traffic_inside_a_host():
    coflow = coflow_model.Coflow.from_flows(
        'x', 3, [(0, 1, 1.0), (0, 2, 2.0), (1, 2, 4.0)])
    demand = cloud.demand_of(coflow, np.array([5, 5, 7]))
    assert (demand.src_host.tolist(), demand.dst_host.tolist()) == ([5], [7])
    assert demand.bits.tolist() == [48.0] and demand.weight.tolist() == [2.0]


def test_groups_from_json(tmp_path):
    path = tmp_path / 'groups.json'
    path.write_text(json.dumps({
        'hosts': {'count': 3, 'slots': 2, 'rate': '8Gbit'},
        'groups': [{'name': 'a', 'arrival_s': 1.5,
                    'tm': [[0, '5GB'], ['1GB', 0]]},
                   {'name': 'b', 'tm': {'n': 2, 'flows': [[0, 1, '1GB']]}}]}))
    hosts, found = groups.read(path)
    assert hosts == groups.equal_hosts(3, 2.0, 8e9)
    assert found[0].arrival_s == 1.5
    assert found[0].coflows[0].size_bytes == 6e9


def written(tmp_path, hosts, *rows):
    path = tmp_path / 'groups.json'
    path.write_text(json.dumps({'hosts': hosts, 'groups': rows}))
    return path


def test_hosts_may_be_listed(tmp_path):
    hosts, (group,) = groups.read(written(
        tmp_path, [{'name': 'big', 'slots': 1e9, 'egress': '2Gbit',
                    'ingress': '1Gbit'},
                   {'slots': 0, 'egress': 5e8, 'ingress': '3Gbit'}],
        {'tm': [[0, 1], [0, 0]]}))
    assert hosts == (cluster.Host('big', (1e9,), 2e9, 1e9),
                     cluster.Host('h1', (0.0,), 5e8, 3e9))
    assert (group.name, group.arrival_s, group.vm_demands) == (
        'group-0', 0.0, ((1.0,),) * 2)


@pytest.mark.parametrize('hosts, row, named', [
    ({'count': 100_001, 'slots': 1, 'rate': 1}, {},
     'hosts.count.* at most 100000'),
    ({'count': 1, 'slots': 1e9 + 1, 'rate': 1}, {},
     r'hosts.slots.* at most 1000000000'),
    ([{'slots': 1e9 + 1, 'egress': 1, 'ingress': 1}], {},
     r'hosts\[0\].slots.* at most 1000000000'),
    ([{'name': 'h1', 'slots': 1, 'egress': 1, 'ingress': 1},
      {'slots': 1, 'egress': 1, 'ingress': 1}], {}, 'hosts.*a name twice'),
    ({'count': 1, 'slots': 0, 'rate': 1}, {'name': 'group-1'},
     'groups.*a name twice'),
    ({'count': 1, 'slots': 0, 'rate': 1}, {'arrival_s': 1e12 + 1},
     r'arrival_s.* at most 1000000000000'),
    ({'count': 1, 'slots': 0, 'rate': 1}, {'vm_slots': 1e9 + 1},
     r'vm_slots.* at most 1000000000')])
def test_a_limit_is_named(tmp_path, hosts, row, named):
    tm = {'tm': [[0, 1], [0, 0]]}
    with pytest.raises(exception.Invalid, match=named):
        groups.read(written(tmp_path, hosts, {**tm, **row}, tm))
    read = groups.read(written(
        tmp_path, {'count': 1, 'slots': 0, 'rate': 1},
        {**tm, 'arrival_s': 1e12, 'vm_slots': 0}, {**tm, 'vm_slots': 1e9}))
    assert [group.vm_demands[0] for group in read[1]] == [(0.0,), (1e9,)]


@pytest.mark.parametrize('document, named', [
    ('[]', 'groups: expected an object'),
    ('{"hosts": {"count": 0}}', 'hosts.count'),
    ('{"hosts": {"count": 1, "slots": 1, "rate": "fast"},'
     ' "groups": [{"tm": [[0]]}]}', 'hosts.rate'),
    ('{"hosts": [], "groups": []}', 'hosts'),
    ('{"hosts": [3], "groups": []}', r'hosts\[0\]: expected an object'),
    ('{"hosts": {"count": 1, "slots": 1, "rate": 1}, "groups": []}',
     'groups: expected at least 1 entry'),
    ('{"hosts": {"count": 1, "slots": 1, "rate": 1}, "groups": [{}]}',
     r'groups\[0\]'),
    ('{"hosts": {"count": 1, "slots": 1, "rate": 1},'
     ' "groups": [{"tm": [[0]], "arrival_s": -1}]}', 'arrival_s'),
    ('nonsense', 'JSON'),
])
def test_broken_json_is_named(tmp_path, document, named):
    path = tmp_path / 'groups.json'
    path.write_text(document)
    with pytest.raises(exception.Invalid, match=named):
        groups.read(path)
