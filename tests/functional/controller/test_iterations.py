# SPDX-License-Identifier: Apache-2.0

"""Recurring coflows: done, and active again when their VMs send again."""

import contextlib
import signal
import sqlite3

import pytest

from tests.functional.controller import harness

SIZE = 10e6
WIRE = 1.0456
MATRIX = '[{"name": "a", "iterations": %d, "tm": [[0, 10000000], [0, 0]]}]'


@pytest.fixture
def launch():
    """The sender of a recurring coflow, which has its policy."""
    def make(tenant, iterations=0):
        hosts = tenant.launch(2, matrix=MATRIX % iterations,
                              hosts={'h0': 1, 'h1': 1})
        edge = tenant.edges(hosts)[hosts[0]]
        settled(tenant, lambda: flows(edge))
        return edge
    return make


def flows(edge):
    policy = edge.policy()
    return policy and policy['flows']


def settled(tenant, check):
    return harness.wait_for(check, f'it, but {tenant.coflow()}')


def send(tenant, edge, fraction):
    edge.count(tenant.coflow()['id'], fraction * SIZE * WIRE)
    edge.report()


def seen(tenant):
    coflow = tenant.coflow()
    return coflow['state'], coflow['iteration']


def stored(controller, column):
    with contextlib.closing(sqlite3.connect(controller.database)) as db:
        return db.execute(f'SELECT {column} FROM coflows').fetchone()[0]


def test_iterations_come_and_go(tenant, launch):
    edge = launch(tenant)
    coflow = tenant.coflow()
    assert (coflow['iteration'], coflow['iterations']) == (1, 0)
    for iteration in range(1, 4):
        send(tenant, edge, 0.5)
        settled(tenant, lambda: seen(tenant) == ('active', iteration))
        coflow = tenant.coflow()
        assert coflow['remaining_bytes'] == pytest.approx(SIZE / 2, rel=1e-3)
        assert coflow['ended'] is None
        send(tenant, edge, 0.5)
        settled(tenant, lambda: seen(tenant) == ('done', iteration))
        coflow = tenant.coflow()
        assert coflow['remaining_bytes'] == 0
        assert coflow['ended'] >= coflow['arrival']
        # The class stays, with the rate that nobody else needs.
        (one,) = edge.policy()['classes']
        assert one['rate_bps'] == pytest.approx(98e6)


def test_the_times_of_an_iteration_are_kept_and_shown(tenant):
    tenant.launch(2, hosts={'h0': 1, 'h1': 1}, matrix="""[
        {"name": "a", "iterations": 9, "period": "800ms", "compute": 0.5,
         "order": "mrtf", "rank_hint": true,
         "tm": [[0, 10000000], [0, 0]]}]""")
    coflow = tenant.coflow()
    assert (coflow['period_s'], coflow['compute_s'], coflow['order'],
            coflow['rank_hint']) == (0.8, 0.5, 'mrtf', True)
    # What is counted is known once the scheduler has read the group.
    coflow = settled(tenant, lambda: (
        found := tenant.coflow())['counted_compute_s'] is not None and found)
    assert (coflow['measured_period_s'], coflow['counted_compute_s']) == (
        None, 0.5)


def test_between_iterations_it_is_served_last(make):
    tenant = make().tenant()
    hosts = tenant.launch(2, hosts={'h0': 1, 'h1': 1}, matrix="""[
        {"name": "a", "iterations": 0, "dst_port": 5001,
         "tm": [[0, 10000000], [0, 0]]},
        {"name": "b", "dst_port": 5002, "tm": [[0, "1GB"], [0, 0]]}]""")
    edge = tenant.edges(hosts)[hosts[0]]

    def order():
        return {c['name']: c['prio'] for c in edge.policy()['classes']}

    settled(tenant, lambda: order() == {'a': 0, 'b': 1})
    send(tenant, edge, 1)
    settled(tenant, lambda: order() == {'b': 0, 'a': 1})
    assert seen(tenant) == ('done', 1)
    # With the bytes of its next iteration it is the shorter one again.
    send(tenant, edge, 0.2)
    settled(tenant, lambda: order() == {'a': 0, 'b': 1})
    assert seen(tenant) == ('active', 2)


@pytest.mark.parametrize('when', ['active', 'done'])
def test_a_declared_end_is_final(tenant, launch, when):
    edge = launch(tenant)
    send(tenant, edge, 1 if when == 'done' else 0.3)
    settled(tenant, lambda: seen(tenant) == (when, 1))
    tenant.call('PATCH', f'/v1/coflows/{tenant.coflow()["id"]}',
                {'state': 'done'})
    settled(tenant, lambda: not flows(edge))
    send(tenant, edge, 1)
    send(tenant, edge, 1)
    assert seen(tenant) == ('done', 1)
    coflow = tenant.coflow()
    assert (coflow['iterations'], coflow['why'][-13:]) == (1, 'declared done')


def test_the_last_iteration_is_the_end(tenant, launch):
    edge = launch(tenant, iterations=2)
    for iteration in (1, 2):
        send(tenant, edge, 1)
        settled(tenant, lambda: seen(tenant) == ('done', iteration))
    settled(tenant, lambda: not flows(edge))


def test_iterations_survive_kills(make, launch):
    """Killed while active, killed while it rests: it goes on from there."""
    controller = make()
    tenant = controller.tenant()
    edge = launch(tenant)

    def kill(column, least):
        harness.wait_for(lambda: stored(controller, column) >= least)
        controller.stop(signal.SIGKILL)
        controller.start()
        settled(tenant, lambda: flows(edge))

    send(tenant, edge, 1)
    settled(tenant, lambda: seen(tenant) == ('done', 1))
    kill("state = 'done'", 1)
    assert seen(tenant) == ('done', 1)
    send(tenant, edge, 0.5)
    settled(tenant, lambda: seen(tenant) == ('active', 2))
    kill('iteration', 2)
    assert seen(tenant) == ('active', 2)
    assert tenant.coflow()['sent_bytes'] == pytest.approx(SIZE / 2, rel=1e-3)
    send(tenant, edge, 0.5)
    settled(tenant, lambda: seen(tenant) == ('done', 2))


def test_without_classes_the_pairs_tell(make, launch):
    controller = make({'scheduler': {'order': 'fair'}})
    tenant = controller.tenant()
    edge = launch(tenant)
    sent = 0

    def count(fraction):
        nonlocal sent
        sent += fraction * SIZE * WIRE
        edge.report(pairs=[{
            'dev': 'tap0', 'src_ip': '10.1.0.0', 'dst_ip': '10.1.0.1',
            'dst_port': None, 'sent_bytes': sent}])

    for iteration in (1, 2, 3):
        count(0.5)
        settled(tenant, lambda: seen(tenant) == ('active', iteration))
        count(0.5)
        settled(tenant, lambda: seen(tenant) == ('done', iteration))
        assert [flow['minor'] for flow in flows(edge)] == [2]
    count(0.5)
    settled(tenant, lambda: stored(controller, 'iteration') == 4)
    controller.stop(signal.SIGKILL)
    controller.start()
    settled(tenant, lambda: flows(edge))
    count(0.1)
    assert seen(tenant) == ('active', 4)
    assert 0.4 * SIZE < tenant.coflow()['sent_bytes'] < 0.7 * SIZE
