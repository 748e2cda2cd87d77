# SPDX-License-Identifier: Apache-2.0

"""How many groups fit where."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from virtco import exception
from virtco.topology import capacity
from virtco.topology.formats import plain

PLANE = plain.read({'planes': [{'name': 'front-end', 'nodes': [
    {'name': 'core', 'nodes': [
        {'name': 'r1', 'hosts': ['a', 'b']},
        {'name': 'r2', 'hosts': ['c']},
        {'name': 'r3', 'hosts': ['gone']}]}]}]}).planes[0]
DEMAND = {'vcpus': 2.0, 'memory_mb': 1024.0, 'disk_gb': 0.0}


def left(vcpus, memory_mb):
    return {'vcpus': vcpus, 'memory_mb': memory_mb, 'disk_gb': 0.0}


def test_groups_per_rack_and_what_limits():
    found = capacity.count(PLANE, 'rack', DEMAND, {
        'a': left(9, 9000), 'b': left(4, 9000), 'c': left(64, 3000),
        'alien': left(8, 8000)}, [4, 2])
    r1, r2, r3 = found.domains
    assert (r1.n_hosts, r1.slots, r1.most_per_host, r1.limiting) == (
        2, 6, 4, 'vcpus')
    assert r1.groups == {'2': 3, '4': 1}
    assert (r2.slots, r2.limiting) == (2, 'memory_mb')
    assert (r3.n_hosts, r3.slots, r3.limiting) == (0, 0, '')
    assert found.hosts_without_leaf == ['alien']
    (core,) = capacity.count(PLANE, 'pod', DEMAND, {
        'a': left(9, 9000), 'c': left(64, 3000)}, [2]).domains
    assert core.slots == 6


def test_one_of_a_resource_or_less_is_asked_for_too():
    for amount, slots in ((1.0, 3), (0.5, 6)):
        r1, *_others = capacity.count(
            PLANE, 'rack', {'vcpus': amount, 'memory_mb': 0.0},
            {'a': {'vcpus': 3.2}}, [2]).domains
        assert (r1.slots, r1.limiting) == (slots, 'vcpus')


def test_of_next_to_nothing_as_many_fit_as_json_can_tell():
    r1, *_others = capacity.count(
        PLANE, 'rack', {'vcpus': 5e-324},
        {'a': {'vcpus': 1e15}, 'b': {'vcpus': 0.0}}, [1]).domains
    assert (r1.slots, r1.groups) == (2 ** 31, {'1': 2 ** 31})


def test_a_host_without_a_resource_or_with_less_than_none_has_no_room():
    for free in ({'vcpus': 3.0}, {'vcpus': 3.0, 'gpus': -3.0}):
        r1, *_others = capacity.count(
            PLANE, 'rack', {'vcpus': 0.5, 'gpus': 0.5}, {'a': free}, [2]
            ).domains
        assert (r1.slots, r1.most_per_host, r1.limiting) == (0, 0, 'gpus')


def test_wrong_questions_are_named():
    with pytest.raises(exception.TopologyInvalid,
                       match="rack, pod, got 'row'"):
        capacity.count(PLANE, 'row', DEMAND, {}, [2])
    with pytest.raises(exception.Invalid, match='flavor'):
        capacity.count(PLANE, 'rack', dict.fromkeys(DEMAND, 0.0), {}, [2])


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20_000)),
                min_size=3, max_size=3), st.integers(1, 9))
def test_what_fits_below_switches_fits_above_them(rooms, size):
    free = {host: left(*room) for host, room in zip('abc', rooms)}
    racks = capacity.count(PLANE, 'rack', DEMAND, free, [size]).domains
    (core,) = capacity.count(PLANE, 'pod', DEMAND, free, [size]).domains
    assert sum(rack.slots for rack in racks) == core.slots
    (above,) = core.groups.values()
    assert sum(sum(rack.groups.values()) for rack in racks) <= above
