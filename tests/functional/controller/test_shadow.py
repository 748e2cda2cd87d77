# SPDX-License-Identifier: Apache-2.0

"""Shadow mode: everything is decided, and nothing follows."""

import re

import pytest

from tests.functional.controller import harness
from tests.functional.controller import test_policies as policies

PAIR = '[[0, 10000000], [0, 0]]'


def test_nova_and_the_edges_are_left_alone(make):
    controller = make({'placement': {'mode': 'shadow'}})
    tenant = controller.tenant()
    both = {'h0': 2, 'h1': 2}
    answers = [tenant.place(n, matrix=PAIR, status='neutral', hosts=both,
                            num_instances=2) for n in range(2)]
    for answer in answers:
        # Nova's order, as it came.
        assert [entry['host'] for entry in answer['hosts']] == ['h0', 'h1']
        assert 'shadow mode: planned on ' in answer['why']
        assert answer['host'] is None and 'rows' not in answer
    # What would have been answered can be looked up: both on one host.
    planned = [tenant.stored(n) for n in range(2)]
    assert [p['status'] for p in planned] == ['planned', 'planned']
    assert planned[0]['host'] == planned[1]['host']
    # Nova takes two.
    for n in range(2):
        tenant.notify('instance.create.end', n, host=f'h{n}')
    edges = tenant.edges(['h0', 'h1'])
    policy = policies.settled(lambda: policies.with_flows(edges['h0']))
    assert policy['classes'] == []
    sender = edges['h0']
    for sent in (3e6, 7e6):
        sender.uplink += sent * policies.WIRE
        sender.report(pairs=[{
            'dev': 'tap0', 'src_ip': '10.1.0.0', 'dst_ip': '10.1.0.1',
            'dst_port': None,
            'sent_bytes': sender.uplink}])
    harness.wait_for(lambda: tenant.coflow()['state'] == 'done')
    coflow = tenant.coflow()
    assert coflow['cct_s'] == 0
    metrics = controller.metrics()
    assert metrics['virtco_shadow_placements_total{status="planned"}'] == 2
    assert metrics['virtco_shadow_coflows_total{plan="faster"}'] == 1
    assert metrics['virtco_shadow_saved_seconds_total'] == pytest.approx(
        coflow['measured_cct_s'])
    assert metrics['virtco_shadow_lost_seconds_total'] == 0
    assert re.search(r'Shadow mode: coflow .* would have been saved',
                     controller.log_text())
    health = controller.call('GET', '/health')
    assert (health['status'], health['mode']) == ('ok', 'shadow')
    assert tenant.place(9, 'x', 'x', status='ignored')
