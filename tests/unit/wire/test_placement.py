# SPDX-License-Identifier: Apache-2.0

"""Nova's question: the names of all of its hosts are looked at."""

import msgspec
import pytest

from virtco.wire import placement

ROOM = {'vcpus': 1, 'memory_mb': 2, 'disk_gb': 3}
LEAST = {'project_id': 'p', 'hints': {}, 'flavor': ROOM}


def read(*names, **values):
    return msgspec.convert(LEAST | {'hosts': [
        {'host': name, 'free': ROOM} for name in names]} | values,
        placement.Placement)


def test_what_nova_may_leave_out():
    found = msgspec.to_builtins(read('h1'))
    assert {name: value for name, value in found.items()
            if name not in LEAST and name != 'hosts'} == {
        'egress_cap_bps': None, 'ingress_cap_bps': None,
        'egress_burst_bytes': 0, 'ingress_burst_bytes': 0, 'metadata': {},
        'user_id': None, 'display_name': None, 'reservation_id': None,
        'launch_index': None, 'num_instances': 1, 'server_group': None,
        'unplanned_passes': 0, 'instance_uuid': ''}


def test_a_host_is_feasible_unless_told():
    assert placement.RankedHost('h1', 0).feasible


@pytest.mark.parametrize('bad', ['', 'h 2', 'h/2', 'h2\n', 'hé'])
def test_the_first_host_with_a_bad_name_is_told(bad):
    names = ['h1', 'rack1:h@2_x.y-z', bad, 'h3', bad]
    assert [offer.host for offer in read(*names[:2]).hosts] == names[:2]
    with pytest.raises(msgspec.ValidationError,
                       match=r'`\$\.hosts\[2\]\.host`$'):
        read(*names)


@pytest.mark.parametrize('name, good, bad', [
    ('egress_cap_bps', [0.5, 1e15], [0, 1.1e15]),
    ('egress_burst_bytes', [0, 1e15], [-1, 1.1e15]),
    ('num_instances', [1, 100_000], [0, 100_001]),
    ('unplanned_passes', [0, 2 ** 31 - 1], [-1, 2 ** 31]),
    ('hints', [{'a': ['x'] * 16}, {str(n): '' for n in range(1024)}],
     [{'a': ['x'] * 17}, {str(n): '' for n in range(1025)}, {'a': 1}])])
def test_values_have_bounds(name, good, bad):
    for value in good:
        assert getattr(read('h1', **{name: value}), name) == value
    for value in bad:
        with pytest.raises(msgspec.ValidationError, match=name):
            read('h1', **{name: value})
