# SPDX-License-Identifier: Apache-2.0

"""What is free: two questions to an OpenStack that answers so."""

import pytest

from tests.unit.follow import test_nova
from virtco import exception
from virtco.follow import inventory

api = test_nova.api


def hypervisor(uuid, host, status='enabled'):
    return {'id': uuid, 'state': 'up', 'status': status,
            'service': {'host': host}}


def provider(**used):
    return {'resources': {
        name: {'capacity': 10, 'used': used[name]} for name in used}}


def test_what_is_free_on_hosts_that_take_vms(api):
    api.answers |= {
        '/os-hypervisors/detail': (200, {'hypervisors': [
            hypervisor('u1', 'h1'), hypervisor('u2', 'h2', 'disabled'),
            hypervisor('u3', 'h3'), hypervisor('u4', 'full')]}),
        '/allocation_candidates': (200, {'provider_summaries': {
            'u1': provider(VCPU=4, MEMORY_MB=3, DISK_GB=12),
            'u2': provider(VCPU=0), 'u3': provider(VCPU=1, MEMORY_MB=2),
            'shared': provider(DISK_GB=0)}})}
    conf = test_nova.conf_of(api)
    now_s = [0.0]
    found = inventory.Inventory(conf, lambda: now_s[0])
    wanted = {'h1': (6, 7, 0), 'h3': (9, 8, 0)}
    assert found.free() == wanted
    assert found.free() == wanted
    assert len(api.asked) == 2
    now_s[0] = 60.0
    for body in (b'away', {'provider_summaries': {}}):
        api.answers['/allocation_candidates'] = (503, body)
        with pytest.raises(exception.NovaUnavailable):
            found.free()
