# SPDX-License-Identifier: Apache-2.0

"""From Nova's offer to the planner's problem."""

from virtco.model import booking
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.place import problem

ONE = (1.0, 1.0, 1.0)
RING = coflow.Coflow.from_flows('ring', 3, [(0, 1, 5), (1, 2, 6),
                                            (2, 0, 7)])


def room(slots):
    return (float(slots),) * 3


def vms(*pinned, among='ab', **values):
    return tuple(cluster.Vm(
        f'v{i}', ONE, host, host is not None,
        None if host else frozenset(among), **values)
        for i, host in enumerate(pinned))


def build(found, free, coflows=(RING,), **values):
    hosts = set(free) | {vm.pinned for vm in found if vm.pinned}
    return problem.build(found, coflows, free,
                         {host: (1e8, 2e8) for host in hosts}, **values)


def test_open_rows_are_planned_on_the_candidates():
    found = build(vms(None, None, None), {'b': room(1), 'a': room(2)})
    assert [h.name for h in found.hosts] == ['a', 'b']
    assert found.vms == vms(None, None, None)
    assert found.coflows == (RING,)
    # Each VM sends through its host's port, whoever is beside it.
    assert found.hose_limits
    assert found.hosts[0].ingress_bps == 2e8
    assert found.resources == booking.RESOURCES


def test_hosts_of_vms_that_stay_belong_to_the_problem():
    found = build(vms(None, 'z', 'a'), {'a': room(2)})
    # Its host is no candidate: nothing else may go there.
    assert [(h.name, h.free) for h in found.hosts] == [
        ('a', room(2)), ('z', room(0))]


def test_coflows_among_some_of_their_vms():
    (found,) = problem.among([RING], [0, 2])
    # Of the ring only the flow between these two is left, renumbered.
    assert [(f.src, f.dst, f.size_bytes) for f in found.flows] == [(1, 0, 7)]
    assert found.n_vms == 2
    assert problem.among([RING], [0, 1, 2]) == (RING,)


def test_loads_elsewhere_do_not_matter():
    load = snapshot.ActiveCoflow('c', (('a', 5.0), ('far', 6.0)),
                                 (('far', 11.0),))
    found = build(vms(None, None, None), {'a': room(3)}, loads=(load,))
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
        return build(vms(None, None, None), {'a': room(3), 'b': room(3)},
                     loads=loads, **values).active

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
        return build(vms(None, None, None), {'a': room(3), 'b': room(3)},
                     pairs_bps=pairs_bps).pair_rate_bps

    slow = {('a', 'b'): 1e6, ('b', 'a'): 2e6}
    assert pairs(slow | {('a', 'far'): 1.0, ('far', 'b'): 2.0}) == slow
    assert pairs({('a', 'far'): 1.0}) is None
