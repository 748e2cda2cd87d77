# SPDX-License-Identifier: Apache-2.0

"""Deadlines from the launch to the policy, and through a restart."""

import signal

import pytest

from tests.functional.controller import harness

#: Links of 100 Mbit/s: 8 s for each direction.
MATRIX = '[[0, "100MB"], ["100MB", 0]]'
APART = {'h0': 1, 'h1': 1}


def launch(tenant, first, name, deadline):
    answers = [tenant.place(first + n, name, MATRIX, hosts=APART,
                            launch_index=n, num_instances=2,
                            hints={'virtco:deadline': deadline})
               for n in range(2)]
    for n, answer in enumerate(answers):
        tenant.notify('instance.create.end', first + n, host=answer['host'])
    return answers


def test_a_promise_is_answered_kept_and_survives_a_restart(make):
    controller = make({'placement': {'default_link_bps': 1e8},
                       'api': {'port': 0}})
    tenant = controller.tenant()
    answer, other = launch(tenant, 0, 'a', '60')
    assert answer['deadline']['promised'] is True
    assert 'yes' in answer['why']
    assert controller.find_in_log('deadline 60.0: yes')
    coflow = tenant.coflow()
    assert coflow['promise'] == 'yes'
    assert coflow['deadline'] == pytest.approx(answer['deadline']['at'])
    assert [event['kind'] for event in tenant.events()
            if event['kind'] == 'deadline'] == ['deadline']

    edges = tenant.edges([answer['host'], other['host']])
    needed_bps = 8e8 / 60

    def guaranteed():
        policy = edges[answer['host']].policy()
        return [one for one in policy['classes']
                if one['coflow_id'] == coflow['id']
                and one['rate_bps'] >= needed_bps * 0.99]

    harness.wait_for(guaranteed, 'its rate')
    controller.stop(signal.SIGKILL)
    controller.start()
    assert tenant.coflow()['promise'] == 'yes'
    for edge in edges.values():
        edge.report()
    harness.wait_for(guaranteed, 'its rate after the restart')

    # What is promised is taken into account for those that come later.
    plan = {'groups': [{'name': 'b', 'tm': MATRIX, 'flavor': {
        'vcpus': 1, 'memory_mb': 512, 'disk_gb': 1}}], 'deadline': 10,
        'hosts': [{'host': tenant.host(host), 'free': {
            'vcpus': 1, 'memory_mb': 512, 'disk_gb': 1}}
            for host in APART]}
    found = tenant.call('POST', '/v1/plans', plan)['deadline']
    assert found['bound_here_s'] >= 8.0
    # A planner without time proves nothing about other hosts.
    assert found['bound_here_s'] >= found['bound_s'] >= 0.0
    assert found['promised'] == (found['earliest_s'] <= 10)
    plan['deadline'] = 5
    found = tenant.call('POST', '/v1/plans', plan)['deadline']
    assert found['promised'] is False
    assert found['earliest_s'] > 5
    assert 'could be promised' in found['why']
