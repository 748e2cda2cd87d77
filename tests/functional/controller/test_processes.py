# SPDX-License-Identifier: Apache-2.0

"""Several processes over one database: who leads, and who is refused."""

import contextlib
import re
import signal
import sys
import time

import pytest

from tests import forks
from tests import patience
from tests.functional.controller import processes

Edge = processes.Edge
LEASE_S = processes.LONG_LEASE_S
leader_of, wait_leader = processes.leader_of, processes.wait_leader
edge_port = processes.edge_port


@pytest.fixture
def cloud(tmp_path):
    found = processes.Cloud(tmp_path, lease_s=LEASE_S)
    yield found
    found.stop()


def test_parts_apart_and_a_leader_that_is_killed(cloud):
    """API, two schedulers and a distributor; kill -9 of the one that leads."""
    first = cloud.start('scheduler', 'first')
    assert leader_of(first)['here']
    second = cloud.start('scheduler', 'second')
    assert not leader_of(second)['here']
    distributor = cloud.start('distributor')
    api = cloud.start('api')
    tenant = api.tenant()
    hosts = tenant.launch(4, matrix=processes.MATRIX)
    edge = Edge(edge_port(distributor), tenant.host(hosts[0]))
    edge.report(tenant, [n for n, at in enumerate(hosts) if at == hosts[0]])
    edge.wait_policy(1)
    before = edge.generation
    first.stop(signal.SIGKILL)
    # At once, not when the lease is over.
    assert wait_leader(second, 2) < LEASE_S
    edge.wait_policy(2, before)
    assert edge.epoch == 2
    # Nothing is lost: the distributor repeats the report that the first one
    # may not have taken in yet. The API finds the new one.
    patience.wait_for(lambda: [c['state'] for c in tenant.coflows()]
                      == ['active'], 'what the report says')
    patience.wait_for(lambda: leader_of(api)['reached']
                      and leader_of(api)['epoch'] == 2, 'the new leader')
    before = edge.generation
    api.call('PATCH', '/v1/settings', {'ceil': 'rate'})
    edge.wait_policy(2, before)
    edge.close()


def test_a_leader_that_stood_still_is_refused(cloud):
    """By the database, and by edges that heard of the next one."""
    first = cloud.start('controller', 'first')
    second = cloud.start('controller', 'second')
    assert leader_of(first)['here'] and not leader_of(second)['here']
    tenant = second.tenant()
    lost = Edge(edge_port(second), tenant.host('h1'))
    assert lost.wait_refused() == (
        'another process leads', f'127.0.0.1:{edge_port(first)}')
    edge = Edge(edge_port(first), tenant.host('h1'))
    edge.report(tenant)
    edge.wait_policy(1)
    cloud.halt(first)
    wait_leader(second, 2)
    edge = Edge(edge_port(second), edge.host, edge.epoch, edge.generation)
    edge.report(tenant)
    edge.wait_policy(2)
    first.process.send_signal(signal.SIGCONT)
    # It finds itself deposed, and begins anew as one that stands by.
    first.find_in_log('Epoch 1 is over, another scheduler leads')
    first.wait_begun_anew()
    assert not leader_of(first)['here']
    assert leader_of(second)['here']
    # It tells edges who leads, and what edges are told, when it is asked.
    patience.wait_for(lambda: leader_of(first)['reached'], 'its leader')
    other = Edge(edge_port(first), tenant.host('h2'), epoch=edge.epoch)
    assert other.wait_refused()[1] == f'127.0.0.1:{edge_port(second)}'
    told = f'/v1/hosts/{edge.host}/policy'
    assert first.call('GET', told) == second.call('GET', told)
    assert first.stream_port() == edge_port(second)


def test_no_byte_is_lost_when_the_leader_dies(cloud):
    """Nor is one counted twice, whatever was written down before."""
    never = {'virtco.state.state.FLUSH_S': 3600}
    first = cloud.start('controller', 'first', constants=never)
    second = cloud.start('controller', 'second', constants=never)
    tenant = first.tenant()
    hosts = tenant.launch(4, matrix=processes.MATRIX)
    edge = tenant.edges(hosts)[hosts[0]]
    (coflow,) = tenant.coflows()
    path = f'/v1/coflows/{coflow["id"]}'
    edge.wait_class(coflow['id'])
    dst = next(host for host in hosts if host != hosts[0])
    counted = []
    for _ in range(3):
        edge.count(coflow['id'], 1e8, dst)
        edge.report()
        counted.append(first.call('GET', path)['sent_bytes'])
    step_bytes = counted[2] - counted[1]
    assert step_bytes > 9e7
    first.stop(signal.SIGKILL)
    wait_leader(second, 2)
    tenant.controller, tenant.call = second, second.call
    edge.report()

    def wait_counted(sent_bytes):
        # Those within hosts count once the scheduler has read the group.
        patience.wait_for(
            lambda: second.call('GET', path)['sent_bytes'] == pytest.approx(
                sent_bytes, rel=1e-6), f'{sent_bytes:.0f} bytes', 20)

    wait_counted(counted[2])
    edge.count(coflow['id'], 1e8, dst)
    edge.report()
    wait_counted(counted[2] + step_bytes)


def test_a_coflow_has_its_class_while_the_leader_stands_still(cloud):
    """It is launched meanwhile, and its hosts are a relay's."""
    first = cloud.start('scheduler', 'first')
    second = cloud.start('scheduler', 'second')
    relay = cloud.start('distributor')
    api = cloud.start('api')
    tenant = api.tenant()
    edges = {f'h{n}': Edge(edge_port(relay), tenant.host(f'h{n}'))
             for n in range(4)}
    for edge in edges.values():
        edge.report(tenant)
        edge.wait_policy(1)
    cloud.halt(first)
    watch = patience.Stopwatch()
    hosts = tenant.launch(2, matrix='[[0, 1e9], [0, 0]]', slots=1)
    for n, host in enumerate(hosts):
        edges[host].report(tenant, [n])
    sender = edges[hosts[0]]

    def has_class():
        assert sender.hear(wait=False), sender.refused
        return sender.policy['classes']

    patience.wait_for(has_class, 'a class of the coflow')
    # Two leases of slack for a busy machine.
    assert watch.seconds() < LEASE_S + 1 + 2 * LEASE_S
    assert leader_of(second)['here']
    assert sender.epoch == 2


def test_a_leader_without_a_database_stops(cloud):
    """Not without a peer's word: a peer that has one may lead next."""
    first = cloud.start('controller', 'first')
    tenant = first.tenant()
    edge = Edge(edge_port(first), tenant.host('h1'))
    edge.report(tenant)
    edge.wait_policy(1)
    api = cloud.start('api')
    patience.wait_for(lambda: leader_of(api)['reached'], 'the leader')
    with contextlib.closing(cloud.locked()):
        # The file of the database can be read, and nobody can write.
        assert edge.wait_refused()[0] == (
            'the leader is not known, or not reached, from here')
        assert not leader_of(first)['reached']
    patience.wait_for(lambda: leader_of(first)['reached'], 'the leader')
    again = Edge(edge_port(first), edge.host, edge.epoch, edge.generation)
    again.report(tenant, link_bps=5e7)
    again.wait_policy(1, edge.generation)
    api.stop()
    patience.wait_for(lambda: re.findall(r'Peer \S+ (joined|left)',
                                         first.log_text())[-1] == 'left',
                      'its connection to end')
    # A peer that left is missed until the next beat is written.
    beats = cloud.beats()
    patience.wait_for(lambda: cloud.beats() >= beats + 2, 'two beats')
    with contextlib.closing(cloud.locked()):
        # By the clock of the lease: a Stopwatch stands still while several
        # threads wait for a processor.
        until_s = time.monotonic() + LEASE_S + 1
        patience.wait_for(lambda: time.monotonic() > until_s,
                          'the end of the lease')
        # Alone it goes on, after one more turn if it stood still for a lease.
        edge = None

        def has_policy():
            nonlocal edge
            if edge is None or not edge.hear():
                edge = Edge(edge_port(first), again.host, again.epoch,
                            again.generation)
                edge.report(tenant, link_bps=6e7)
            return edge.generation > again.generation

        patience.wait_for(has_policy, 'a policy')


def test_the_epoch_is_raised_above_that_of_the_edges(cloud):
    """Their database was lost, and they heard of epoch 9."""
    controller = cloud.start('controller')
    with contextlib.closing(Edge(edge_port(controller), 'h3', 9)) as ahead:
        patience.wait_for(lambda: not ahead.hear(), 'the end')
    raised = re.search('"virtco-manage (.*)"', ahead.refused)[1].split()
    assert raised == ['epoch', 'raise', '9']
    command = [sys.executable, '-m', 'virtco.cmd.manage', '--config-file',
               str(controller.config)]
    forks.run([*command, *raised], check=True)
    again = forks.run([*command, *raised])
    assert again.returncode == 1
    assert 'epoch: expected an epoch above 9' in again.stderr
    controller.wait_begun_anew()
    wait_leader(controller, 10)
    shown = forks.run([*command, 'epoch', 'show'], check=True).stdout
    assert shown.startswith('epoch 10, ') and shown.endswith(' leads\n')
    tenant = controller.tenant()
    with contextlib.closing(Edge(edge_port(controller), tenant.host('h3'),
                                 9)) as edge:
        edge.report(tenant)
        edge.wait_policy(10)


def test_a_leader_that_ends_in_order_is_followed_at_once(cloud):
    first = cloud.start('scheduler', 'first')
    second = cloud.start('scheduler', 'second')
    assert first.stop() == 0
    assert wait_leader(second, 2) < LEASE_S
