# SPDX-License-Identifier: Apache-2.0

"""From Nova's offer to the planner's problem."""

import math

import pytest

from virtco.model import booking
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.place import problem
from virtco.wire import placement as wire

ONE = (1.0, 1.0, 1.0)
RING = coflow.Coflow.from_flows('ring', 3, [(0, 1, 5), (1, 2, 6),
                                            (2, 0, 7)])


def room(slots):
    return (float(slots),) * 3


def question(rows, free, **kwargs):
    hosts = set(free) | {row.host for row in rows if row.host}
    return problem.Question(
        **{'asked': 0, 'members': tuple(rows), 'coflows': (RING,),
           'free': free, 'capacities': {h: (1e8, 2e8) for h in hosts}}
        | kwargs)


def rows(*hosts, **kwargs):
    return [problem.Member(i, ONE, host, **kwargs)
            for i, host in enumerate(hosts)]


def test_open_rows_are_planned_on_the_candidates():
    found, order = problem.build(question(
        rows(None, None, None), {'a': room(2), 'b': room(1)}))
    assert order == (0, 1, 2)
    assert [h.name for h in found.hosts] == ['a', 'b']
    assert {vm.allowed for vm in found.vms} == {frozenset('ab')}
    assert {(vm.pinned, vm.counted) for vm in found.vms} == {(None, False)}
    # Each VM sends through its host's port, whoever is beside it.
    assert found.hose_limits
    assert found.hosts[0].ingress_bps == 2e8
    assert found.resources == booking.RESOURCES


def test_vms_that_run_are_pinned_and_counted():
    running = problem.Member(1, ONE, 'z', 'i1', fixed=True)
    found, _order = problem.build(question(
        [problem.Member(0, ONE), running, problem.Member(2, ONE)],
        {'a': room(2)}))
    vm = found.vms[1]
    assert (vm.pinned, vm.counted) == ('z', True)
    # Its host is no candidate: nothing else may go there.
    assert next(h for h in found.hosts if h.name == 'z').free == room(0)
    assert found.vms[0].allowed == frozenset('a')


def test_caps_are_those_of_the_members():
    limited = (3e8, 4e8, 5.0, 6.0)
    found, _order = problem.build(question(
        [problem.Member(0, ONE, caps=limited),
         problem.Member(1, ONE, 'z', 'i1', True, limited),
         problem.Member(2, ONE)], {'a': room(2)}))
    assert [(vm.egress_cap_bps, vm.ingress_cap_bps, vm.egress_burst_bytes,
             vm.ingress_burst_bytes) for vm in found.vms] == [
        limited, limited, (math.inf, math.inf, 0, 0)]


def test_planned_rows_can_stay():
    asked = question(rows('a', 'b', 'b'), {'a': room(1), 'b': room(2)})
    found, _order = problem.build(asked, keep_planned=True)
    assert [vm.pinned for vm in found.vms] == [None, 'b', 'b']
    found, _order = problem.build(asked)
    assert [vm.pinned for vm in found.vms] == [None, None, None]


def test_alone_leaves_out_rows_without_a_vm():
    fixed = problem.Member(2, ONE, 'b', 'i2', fixed=True)
    found, order = problem.build(question(
        [*rows(None, 'a'), fixed], {'a': room(1)}), alone=True)
    assert order == (0, 2)
    # Of the ring only the flow between these two is left, renumbered.
    assert [(f.src, f.dst, f.size_bytes)
            for f in found.coflows[0].flows] == [(1, 0, 7)]
    assert found.coflows[0].n_vms == 2


def test_loads_elsewhere_do_not_matter():
    load = snapshot.ActiveCoflow('c', (('a', 5.0), ('far', 6.0)),
                                 (('far', 11.0),))
    found, _order = problem.build(question(
        rows(None, None, None), {'a': room(3)}, loads=(load,)))
    assert found.active == (snapshot.ActiveCoflow('c', (('a', 5.0),), ()),)


def load(*pairs):
    """What these pairs, with their bytes, put onto their ports."""
    return snapshot.ActiveCoflow(
        'c', tuple((src, size) for src, _dst, size in pairs),
        tuple((dst, size) for _src, dst, size in pairs), pairs)


def test_of_loads_those_pairs_are_kept_that_touch_a_host():
    out, into = ('a', 'far', 5.0), ('far', 'b', 6.0)
    within, beyond = ('a', 'b', 7.0), ('far', 'off', 8.0)

    def active(*loads, **values):
        found, _order = problem.build(question(
            rows(None, None, None), {'a': room(3), 'b': room(3)},
            loads=loads, **values))
        return found.active

    assert active(load(out, into, within, beyond)) == (
        snapshot.ActiveCoflow('c', (('a', 5.0), ('a', 7.0)), (
            ('b', 6.0), ('b', 7.0)), (out, into, within)),)
    # A load that leaves the hosts, or enters, on one side only.
    assert active(load(out)) == (
        snapshot.ActiveCoflow('c', (('a', 5.0),), (), (out,)),)
    assert active(load(into)) == (
        snapshot.ActiveCoflow('c', (), (('b', 6.0),), (into,)),)
    # One that stays is left as it is, whatever the others do.
    assert active(load(within), load(beyond)) == (
        load(within), snapshot.ActiveCoflow('c', (), (), ()))
    # Where the fabric is known it passes uplinks.
    tree = cluster.Tree((cluster.Subtree('r', 1e9, 1e9, None, 'rack'),), {})
    assert active(load(beyond), tree=tree) == (load(beyond),)


def test_slow_pairs_are_those_between_two_hosts_of_the_problem():
    def pairs(pairs_bps):
        found, _order = problem.build(question(
            rows(None, None, None), {'a': room(3), 'b': room(3)},
            pairs_bps=pairs_bps))
        return found.pair_rate_bps

    slow = {('a', 'b'): 1e6, ('b', 'a'): 2e6}
    assert pairs(slow | {('a', 'far'): 1.0, ('far', 'b'): 2.0}) == slow
    assert pairs({('a', 'far'): 1.0}) is None


@pytest.mark.parametrize('policy', list(snapshot.GroupPolicy))
def test_a_server_group_over_known_and_coming_rows(policy):
    fixed = problem.Member(2, ONE, 'b', 'i2', fixed=True)
    found, _order = problem.build(question(
        [*rows(None, None), fixed], {'a': room(2), 'b': room(2)},
        batch=frozenset({0, 1}),
        server_group=wire.ServerGroup(
            policy, ['i0', 'i2', 'other'], ['b', 'z'], 2)))
    (group,) = found.server_groups
    assert group.members == (0, 1, 2)
    # Row 2 accounts for b; somebody unknown is on z.
    assert group.taken_hosts == frozenset('z')
    assert (group.policy, group.max_per_host) == (policy, 2)


def test_hosts_of_a_server_group_are_taken_but_by_members_that_stay():
    """Not by the asked one, nor by a VM that is in no server group."""
    members = [problem.Member(row, ONE, host, f'i{row}', fixed=True)
               for row, host in enumerate('abc')]
    members.append(problem.Member(3, ONE, 'd'))
    found, _order = problem.build(question(
        members, {'a': room(2), 'd': room(2)}, batch=frozenset({3}),
        server_group=wire.ServerGroup(
            'affinity', ['i0', 'i1'], ['a', 'b', 'c', 'd'])))
    (group,) = found.server_groups
    assert group.members == (0, 1, 3)
    assert group.taken_hosts == frozenset('acd')
    assert group.max_per_host == 1
