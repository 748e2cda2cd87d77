# SPDX-License-Identifier: Apache-2.0

"""Groups that are planned again while they are built."""

from benchmarks import online
from benchmarks import replanning
from virtco.model import coflow as coflow_model
from virtco_lab.sim import cloud
from virtco_lab.sim import groups

BUDGET_S = 0.005


def group(name, n_vms, arrival_s, size_bytes=1e9):
    return groups.of_slots(name, [coflow_model.Coflow.from_flows(
        name, n_vms, ((0, vm, size_bytes) for vm in range(1, n_vms)))],
        arrival_s)


def run(its_groups, way, build_s=2.0, n_hosts=3, slots=3):
    """Return the result, and the free room at the end."""
    hosts = groups.equal_hosts(n_hosts, slots, 1e9)
    scheme = online.SCHEMES[online.OURS]
    one = replanning._Cloud(hosts, scheme, 0, scheme.config(), True,
                            BUDGET_S, build_s=build_s, way=way)
    result = cloud.serve(one, its_groups)
    return result, [float(free[0]) for free in one.free.values()]


def test_without_building_nothing_is_planned_again():
    its_groups = [group('a', 4, 0.0), group('b', 3, 1.0), group('c', 5, 2.0)]
    once, _ = run(its_groups, 'once', 0.0)
    ways = {way: run(its_groups, way, 0.0)[0].hosts
            for way in replanning.WAYS}
    assert all(hosts == once.hosts for hosts in ways.values())
    assert once.hosts == cloud.simulate(
        groups.equal_hosts(3, 3, 1e9), its_groups,
        online.SCHEMES[online.OURS], budget_s=BUDGET_S).hosts


def test_a_small_group_that_is_being_built_makes_way():
    """Two hosts have one slot left each when ``c`` comes."""
    its_groups = [group('a', 3, 0.0, 1e6), group('b', 3, 0.5, 1e9),
                  group('c', 2, 1.0, 1e9)]
    n_hosts = {}
    for way in replanning.WAYS:
        result, free = run(its_groups, way, n_hosts=2, slots=4)
        assert free == [4.0, 4.0]
        assert [row.start_s for row in result.coflows] == [2.0, 2.5, 3.0]
        n_hosts[way] = len(set(result.hosts['c']))
    assert n_hosts == {'once': 2, 'again': 1, 'all but one': 1,
                       'as asked': 1}
