# SPDX-License-Identifier: Apache-2.0

"""What is free: two questions to an OpenStack that answers so."""

import threading

import pytest

from tests import patience
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


def test_who_waits_for_a_nova_that_hangs_does_not_wait_again(api):
    now_s, n_came, hangs = [0.0], [0], threading.Event()

    def clock():
        n_came[0] += 1
        return now_s[0]

    found, failures = inventory.Inventory(test_nova.conf_of(api), clock), []

    def ask():
        hangs.wait(60)
        now_s[0] = 30.0
        raise exception.NovaUnavailable(why='no answer in 30 s')

    def free():
        with pytest.raises(exception.NovaUnavailable, match='30 s'):
            found.free()
        failures.append(now_s[0])

    found._ask = ask
    waiting = [threading.Thread(target=free) for _ in range(3)]
    for one in waiting:
        one.start()
    # Each looks at the clock when it comes, and one again when it asks.
    patience.wait_for(lambda: n_came[0] == 4, 'all to wait')
    found._ask = dict
    hangs.set()
    for one in waiting:
        one.join(60)
    assert failures == [30.0] * 3
    # Who comes later asks.
    now_s[0] = 31.0
    assert found.free() == {}
