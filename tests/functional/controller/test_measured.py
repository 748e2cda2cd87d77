# SPDX-License-Identifier: Apache-2.0

"""What happened stands beside what was planned."""

import signal
import sqlite3
import time

import pytest

from tests.functional.controller import harness

PAIR = '{"n": 2, "flows": [[0, 1, "100MB"]]}'
SIZE = 100e6
WIRE = 1.05


@pytest.fixture
def controller(tmp_path):
    with harness.running(tmp_path) as found:
        yield found


def launch(tenant):
    hosts = tenant.launch(2, hosts={'h0': 1, 'h1': 1}, matrix=PAIR)
    edge = tenant.edges(hosts)[hosts[0]]
    harness.wait_for(lambda: edge.policy()['classes'])
    return edge


def send(tenant, edge, fraction):
    edge.count(tenant.coflow()['id'], fraction * SIZE * WIRE)
    edge.report()


def test_the_measured_cct_stands_beside_the_planned_one(controller):
    tenant = controller.tenant()
    edge = launch(tenant)
    coflow = tenant.coflow()
    assert coflow['cct_s'] > 0
    assert [coflow[name] for name in (
        'measured_cct_s', 'measured_cct_error_s', 'first_byte',
        'last_byte')] == [None] * 4
    started_s = time.time()
    send(tenant, edge, 0.3)
    harness.wait_for(lambda: tenant.coflow()['first_byte'])
    assert tenant.coflow()['measured_cct_s'] is None
    # Killed half-way: the first byte is remembered.
    harness.wait_for(lambda: stored(controller)['first_byte_at'])
    controller.stop(signal.SIGKILL)
    controller.start()
    harness.wait_for(lambda: edge.policy()['classes'])
    send(tenant, edge, 0.7)
    harness.wait_for(lambda: tenant.coflow()['state'] == 'done')
    ended_s = time.time()
    coflow = tenant.coflow()
    measured_s = coflow['measured_cct_s']
    assert 0 < measured_s - coflow['measured_cct_error_s'] + 1e-6
    assert measured_s - coflow['measured_cct_error_s'] <= ended_s - started_s
    assert coflow['first_byte'] < coflow['last_byte'] <= ended_s
    metrics = harness.wait_for(lambda: (
        found := controller.metrics())['virtco_coflow_cct_seconds_count']
        and found)
    assert metrics['virtco_coflow_cct_seconds_count'] == 1
    assert metrics['virtco_coflow_cct_seconds_sum'] == pytest.approx(
        measured_s)
    assert metrics['virtco_coflow_cct_ratio_sum'] == pytest.approx(
        measured_s / coflow['cct_s'])
    assert f'took {measured_s:.3f} s' in controller.log_text()
    # It outlives the servers.
    harness.wait_for(lambda: stored(controller)['state'] == 'done')
    for number in range(2):
        tenant.notify('instance.delete.end', number, host=None)
    harness.wait_for(lambda: tenant.coflow()['state'] == 'retired')
    assert tenant.coflow()['measured_cct_s'] == pytest.approx(measured_s)


def test_what_was_not_sent_to_the_end_has_no_cct(controller):
    tenant = controller.tenant()
    send(tenant, launch(tenant), 0.5)
    harness.wait_for(lambda: stored(controller)['first_byte_at'])
    for number in range(2):
        tenant.notify('instance.delete.end', number, host=None)
    harness.wait_for(lambda: tenant.coflow()['state'] == 'retired')
    coflow = tenant.coflow()
    assert coflow['measured_cct_s'] is None
    assert controller.metrics()['virtco_coflow_cct_seconds_count'] == 0


def test_a_declared_end_keeps_what_was_measured(controller):
    tenant = controller.tenant()
    edge = launch(tenant)
    send(tenant, edge, 0.2)
    send(tenant, edge, 0.2)
    done = tenant.call('PATCH', f'/v1/coflows/{tenant.coflow()["id"]}',
                       {'state': 'done'})
    assert 0 < done['measured_cct_s'] == tenant.coflow()['measured_cct_s']


def shown(tenant, name='a'):
    return tenant.call('GET', f'/v1/coflows/{tenant.coflow(name)["id"]}')


def test_what_nova_chose_stands_beside_the_plan(controller):
    tenant = controller.tenant()
    planned = [tenant.place(n, launch_index=n, num_instances=2, slots=1,
                            matrix=PAIR)['host'] for n in range(2)]
    other = next(h for h in ('h0', 'h1', 'h2', 'h3') if h not in planned)

    def rows():
        return [(tenant.name(m['planned_host']), tenant.name(m['host']))
                for m in shown(tenant)['members']]

    def running():
        metrics = controller.metrics()
        return [metrics['virtco_running_vms{host="%s"}' % where]
                for where in ('planned', 'other', 'none')]

    assert rows() == list(zip(planned, planned))
    tenant.notify('instance.create.end', 0, host=planned[0])
    tenant.notify('instance.create.end', 1, host=other)
    assert rows() == [(planned[0], planned[0]), (planned[1], other)]
    assert tenant.coflow()['n_elsewhere'] == 1
    harness.wait_for(lambda: running() == [1, 1, 0], 'what is counted')
    # A move is planned, too.
    port = tenant.coflow()['planned_bottleneck']
    assert (port['level'], tenant.name(port['port'])) in [
        ('host', host) for host in planned]
    answer = tenant.place(1, matrix=PAIR, hosts={'h2': 1, 'h3': 1})
    assert rows()[1] == (answer['host'], other)
    tenant.notify('instance.live_migration_post_dest.end', 1,
                  host=answer['host'])
    assert tenant.coflow()['n_elsewhere'] == 0
    harness.wait_for(lambda: running() == [2, 0, 0], 'what is counted')


def test_the_bottleneck_and_those_before_are_data(controller):
    tenant = controller.tenant()
    for i, (name, size) in enumerate((('long', '2GB'), ('short', '1GB'))):
        for row in range(2):
            tenant.place(10 * i + row, name, num_instances=2, launch_index=row,
                         hosts={'h0': 2, 'h1': 2}, matrix=(
                             '{"n": 2, "flows": [[0, 1, "%s"]]}' % size))
        for row in range(2):
            tenant.notify('instance.create.end', 10 * i + row,
                          host=f'h{row}')
    for host in ('h0', 'h1'):
        harness.Edge(tenant, host).report()
    found = harness.wait_for(
        lambda: all(c['bottleneck'] for c in tenant.coflows())
        and {c['name']: c for c in tenant.coflows()})
    assert (found['short']['n_before'], found['long']['n_before']) == (0, 1)
    long = shown(tenant, 'long')
    assert long['waits_for'] == [found['short']['id']]
    assert long['bottleneck']['direction'] in ('egress', 'ingress')
    assert long['bottleneck']['busy_s'] == pytest.approx(
        3 * found['short']['bottleneck']['busy_s'], rel=1e-3)


def stored(controller):
    """The one coflow as the database has it."""
    with sqlite3.connect(controller.database) as connection:
        connection.row_factory = sqlite3.Row
        return dict(connection.execute('SELECT * FROM coflows').fetchone())
