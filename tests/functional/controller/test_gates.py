# SPDX-License-Identifier: Apache-2.0

"""Gates of training jobs, from their hints to the edge modules' policies."""

import pytest

from tests.functional.controller import harness

WIRE = 1.0456
#: A second of a host's uplink of 100 Mbit/s, as it is left to coflows.
SECOND_BYTES = 98e6 / 8 / WIRE
JOB = ('[{{"name": "{name}", "iterations": 0, "compute": 1.0, '
       '"tm": [[0, {size:.0f}], [{size:.0f}, 0]]}}]')


def launch(tenant, name, first, hosts):
    """A job of two VMs that sends for 0.8 s of 1.8, both ways; its hosts."""
    return tenant.launch(2, first, name=name, matrix=JOB.format(
        name=name, size=0.8 * SECOND_BYTES), hosts=hosts)


def gates(edge):
    policy = edge.policy()
    return {c['name']: c['gate'] for c in (policy or {}).get('classes', ())}


def test_two_jobs_of_one_uplink_have_turns_and_off_means_none(make):
    tenant = make().tenant()
    first = launch(tenant, 'a', 0, {'h0': 1, 'h1': 1})
    edges = tenant.edges(first)
    # What the first one took counts until Nova says so.
    launch(tenant, 'b', 2, {'h0': 2, 'h1': 2})
    edge, other = edges.values()
    told = harness.wait_for(
        lambda: all((found := gates(edge)).values()) and len(found) == 2
        and found, f'gates, but {gates(edge)}')
    a, b = told['a'], told['b']
    # With a tenth more sending than was hinted.
    assert a['period_s'] == b['period_s'] == pytest.approx(1.88, rel=0.01)
    apart_s = (a['offset_s'] - b['offset_s']) % 1.88
    assert 0.87 < apart_s < 1.01
    assert a['iteration_bytes'] == pytest.approx(0.8 * 98e6 / 8, rel=0.01)
    assert a['epoch'] == b['epoch'] > 0
    # All hosts of a job have the same turns.
    harness.wait_for(lambda: gates(other) == told, 'gates elsewhere')
    edge.report(gates=[a_state := {
        'coflow_id': tenant.coflow('a')['id'], 'period_s': 1.88,
        'offset_s': 0.0, 'open_s': 0.88, 'is_open': False, 'opened': 7,
        'missed': 2, 'held_s': 0.5, 'open_share': 0.4}])
    other.report(why_gates_open='no daemon keeps the clock')
    kept, open_ = tenant.call('GET', f'/v1/coflows/{a_state["coflow_id"]}')[
        'gates']
    assert kept['host'] == edge.name and kept['why_open'] is None
    assert kept == kept | {name: a_state[name] for name in (
        'is_open', 'opened', 'missed', 'held_s', 'open_share')}
    assert kept['offset_s'] == open_['offset_s'] == a['offset_s']
    assert open_['is_open'] and open_['why_open'] == (
        'no daemon keeps the clock')
    tenant.call('PATCH', '/v1/settings', {'gates': 'off'})
    harness.wait_for(lambda: not any(gates(edge).values()), 'no gates')
    tenant.call('PATCH', '/v1/settings', {'gates': 'on'})
    harness.wait_for(lambda: all(gates(edge).values()), 'gates again')


def test_jobs_that_share_no_link_have_none(make):
    tenant = make().tenant()
    first = launch(tenant, 'a', 0, {'h0': 1, 'h1': 1})
    edges = tenant.edges(first)
    second = launch(tenant, 'b', 2, {'h2': 1, 'h3': 1})
    edges |= tenant.edges(second)
    # A third one that meets the first: when it has a gate, all were planned.
    launch(tenant, 'c', 4, {'h0': 2, 'h1': 2})
    harness.wait_for(lambda: gates(edges[first[0]]).get('c'), 'a gate')
    harness.wait_for(lambda: 'b' in gates(edges[second[0]]), 'a class')
    assert gates(edges[second[0]]) == {'b': None}
