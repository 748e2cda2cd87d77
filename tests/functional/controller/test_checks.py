# SPDX-License-Identifier: Apache-2.0

"""A check through the real controller; the edges' trains are made up."""

import collections
import contextlib
import json
import threading
import time

import pytest

from tests import patience
from tests.functional.controller import harness
from virtco.decide import probes
from virtco.osc import shell
from virtco.topology import hostlist

HOSTS = ('h0', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'h7')
LINK_BPS = 1e8
LEAVES = {'leaf0': HOSTS[:4], 'leaf1': HOSTS[4:]}
# Well before a host counts as silent.
REPORT_S = probes.STALE_REPORT_S / 10


@pytest.fixture
def controller(tmp_path):
    with harness.running(tmp_path, {'probe': {
            'enabled': 'false', 'max_link_share': 1}}) as found:
        yield found


@pytest.fixture
def tenant(controller):
    found = controller.tenant()
    found.edges(HOSTS, link_bps=LINK_BPS)
    return found


@pytest.fixture
def virtco(capsys):
    """Runs ``virtco`` in this process; (exit code, out, err)."""
    def call(controller, *argv):
        code = shell.main(['--controller-url', controller.url, *argv])
        return code, *capsys.readouterr()
    return call


class Trains(threading.Thread):
    """Fetches all trains, answers by a rule, and goes on reporting."""

    def __init__(self, tenant, rate_of):
        super().__init__(daemon=True)
        self.tenant, self.rate_of = tenant, rate_of
        self.over = threading.Event()
        self.streams = tenant.controller.streams

    def run(self):
        next_s = time.monotonic() + REPORT_S
        while not self.over.is_set():
            if time.monotonic() >= next_s:
                self.tenant.edges(HOSTS, link_bps=LINK_BPS)
                next_s = time.monotonic() + REPORT_S
            trains = [
                (host, train) for host in HOSTS
                for train in self.streams.trains(self.tenant.host(host))
                if train['role'] != 'receive']
            if not trains:
                self.over.wait(0.03)
            for host, train in trains:
                rate_bps = self.rate_of(host,
                                        self.tenant.name(train['peer']))
                self.streams.measure(
                    self.tenant.host(host), train['peer'], wait=False, **{
                        'rate_bps': rate_bps, 'probe_id': train['probe_id'],
                        'sent_bytes': 1000000} | self.answer(
                            train, rate_bps))

    @staticmethod
    def answer(train, rate_bps):
        if train['traffic']['op'] != 'bulk':
            return {'loss': 0.0, 'rtt_s': 0.001, 'method': 'train'}
        assert 0 <= train['start_in_s'] < 1
        return {'method': 'bulk', 'windows_bytes': [
            round(rate_bps * train['traffic']['window_s'] / 8)] * 100}


@contextlib.contextmanager
def answered(tenant, rate_of):
    trains = Trains(tenant, rate_of)
    trains.start()
    try:
        yield
    finally:
        trains.over.set()
        trains.join()


def check(tenant, rate_of):
    """The result of a check of all hosts."""
    with answered(tenant, rate_of):
        begun = tenant.call('POST', '/v1/checks', {
            'hosts': [tenant.host(host) for host in HOSTS]}, 202)
        return harness.wait_for(lambda: (
            found := tenant.call('GET', f'/v1/checks/{begun["check_id"]}'))[
                'state'] == 'done' and found)


def test_a_slow_host_reaches_placements_and_the_alert(controller, tenant):
    found = check(tenant, lambda src, dst: LINK_BPS * (
        0.5 if 'h2' in (src, dst) else 1.0))
    assert {(one['kind'], tenant.name(one['subject']))
            for one in found['findings']} == {
                ('host-egress', 'h2'), ('host-ingress', 'h2')}
    assert found['n_failed'] == 0 and found['sent_bytes'] > 0
    host = tenant.host('h2')
    since = patience.Answer()
    shown = harness.wait_for(lambda: (
        one := tenant.call('GET', f'/v1/hosts/{host}'))[
            'rate_source'] == 'measured' and one)
    assert shown['egress_bps'] == pytest.approx(LINK_BPS / 2)
    planned = tenant.place(0, hosts={'h0': 1, 'h2': 1}, num_instances=2,
                           matrix='{"n": 2, "flows": [[0, 1, "100MB"]]}')
    assert since.seconds() < 5
    assert planned['cct_s'] == pytest.approx(
        100e6 * 8 / (LINK_BPS / 2), rel=0.1)
    metrics = controller.metrics()
    assert metrics[f'virtco_poor_ratio{{kind="host-egress",subject="{host}"}}'
                   ] == pytest.approx(0.5)
    assert metrics[f'virtco_host_measured_bps{{host="{host}",way="egress"}}'
                   ] == pytest.approx(LINK_BPS / 2)
    assert f'host-egress of {host}: 50 instead of 100' in (
        controller.log_text())
    # Well again.
    found = check(tenant, lambda src, dst: LINK_BPS)
    assert found['findings'] == []
    assert not [name for name in controller.metrics()
                if name.startswith('virtco_poor_ratio')]


def test_a_slow_leaf_uplink_limits_plans(controller, tenant):
    tenant.call('PUT', '/v1/topology', {'planes': [{
        'name': 'front-end', 'levels': [
            {'name': 'rack', 'uplink': int(4 * LINK_BPS)}],
        'nodes': [{'name': leaf, 'hosts': [tenant.host(h) for h in hosts]}
                  for leaf, hosts in LEAVES.items()]}]})

    def rate_of(src, dst):
        apart = (src in LEAVES['leaf0']) != (dst in LEAVES['leaf0'])
        slow = apart and src in LEAVES['leaf0']
        return LINK_BPS * (0.1 if slow else 1.0)

    found = check(tenant, rate_of)
    since = patience.Answer()
    harness.wait_for(lambda: 'virtco_poor_ratio{kind="leaf-uplink",'
                     'subject="leaf0"}' in controller.metrics())
    senders = tenant.launch(8, hosts=dict.fromkeys(HOSTS, 1), matrix=(
        '{"pattern": "shuffle", "senders": 4, "receivers": 4, '
        '"size": "400MB"}'))[:4]
    assert since.seconds() < 5
    # Findings are those of the hosts that the scheduler has read.
    harness.wait_for(lambda: tenant.coflow()['state'] == 'active')
    # Two of them below the slow uplink would take longer than their links.
    assert sum(host in LEAVES['leaf0'] for host in senders) <= 1
    (told,) = tenant.call('GET', f'/v1/placements/{tenant.instance(0)}/'
                                 'explanation')['findings']
    assert (told['kind'], told['subject']) == ('leaf-uplink', 'leaf0')
    assert told['rate_bps'] == pytest.approx(0.4 * LINK_BPS, rel=0.01)
    named = {(one['kind'], one['subject']) for one in found['findings']}
    assert ('leaf-uplink', 'leaf0') in named
    assert not {kind for kind, _ in named if kind.startswith('host')}
    # The readings of loaded rounds are no rates of pairs.
    assert all(pair['rate_bps'] == LINK_BPS for pair in tenant.call(
        'GET', '/v1/rates')['pairs'])


def test_the_tree_is_discovered_and_imported(controller, tenant, virtco):
    def rate_of(src, dst):
        apart = (src in LEAVES['leaf0']) != (dst in LEAVES['leaf0'])
        return LINK_BPS * (0.25 if apart else 1.0)

    hosts = ','.join(tenant.host(host) for host in HOSTS)
    argv = ('topology', 'import', '--measure', '--hosts', hosts, '--levels',
            'leaf')
    with answered(tenant, rate_of):
        code, out, err = virtco(controller, *argv)
        assert (code, tenant.call('GET', '/v1/topology')['planes']) == (0, [])
        assert 'plane front-end: 2 nodes of 1 levels, 8 hosts' in out
        assert 'changes; --apply makes them.' in out
        assert err.startswith('8 hosts, ')
        code, again, err = virtco(controller, *argv, '--apply')
    assert code == 0, err
    assert again.splitlines()[:-1] == out.splitlines()[:-1]
    (plane,) = tenant.call('GET', '/v1/topology')['planes']
    assert plane['levels'] == [{'name': 'leaf'}]
    for node, members in zip(plane['nodes'], LEAVES.values(), strict=True):
        assert set(hostlist.expand(node['hosts'], 9)) == {
            tenant.host(host) for host in members}
        assert node['uplink'] == '100Mbit'
    # Nobody else saw these readings.
    assert tenant.call('GET', '/v1/rates')['pairs'] == []
    with answered(tenant, lambda *_pair: LINK_BPS):
        assert 'No uplink is oversubscribed' in virtco(controller, *argv)[1]


class Connections(Trains):
    """Those that leave leaf0 get half of it beside each other.

    Each path is measured alone first, and then beside the first other one.
    """

    def __init__(self, tenant):
        super().__init__(tenant, lambda src, dst: LINK_BPS)
        self.seen = collections.Counter()

    def answer(self, train, rate_bps):
        if train['traffic']['op'] != 'bulk':
            return super().answer(train, rate_bps)
        dst = self.tenant.name(train['peer'])
        self.seen[dst] += 1
        is_shared = dst in LEAVES['leaf1'] and self.seen[dst] == 2
        return {'method': 'bulk',
                'rate_bps': rate_bps / (2 if is_shared else 1)}


def test_the_level_of_a_shared_bottleneck(tmp_path, virtco):
    with harness.running(tmp_path, {'probe': {
            'interval_s': 0.1, 'max_link_share': 1}}) as controller:
        tenant = controller.tenant()
        tenant.edges(HOSTS, link_bps=LINK_BPS)
        tenant.call('PUT', '/v1/topology', {'planes': [{
            'name': 'front-end', 'levels': [{'name': 'rack'}],
            'nodes': [{'name': leaf, 'hosts': [tenant.host(h) for h in hosts]}
                      for leaf, hosts in LEAVES.items()]}]})
        connections = Connections(tenant)
        connections.start()
        try:
            code, out, err = virtco(
                controller, 'measure', 'paths', *map(tenant.host, (
                    'h0', 'h4', 'h1', 'h5', 'h2', 'h3')), '-f', 'json')
        finally:
            connections.over.set()
            connections.join()
    assert code == 0, err
    # Each path was measured beside both others; only two of them pass leaf0.
    rows = json.loads(out)
    assert len(rows) == 6
    assert [tenant.name(row['src']) for row in rows
            if row['shares_bottleneck']] == ['h0', 'h1']
    assert ('out of rack leaf0 or into rack leaf1: explains 3 of 3 pairs'
            in ' '.join(err.split()))


def test_what_cannot_be_checked(tenant):
    for body, said in (({'hosts': [tenant.host('h0')]}, 'hosts'),
                       ({'hosts': [tenant.host('h0'), 'nobody']}, 'nobody'),
                       ({}, 'hosts'), ({'purpose': 'guess'}, 'purpose'),
                       ({'hosts': [tenant.host(host) for host in HOSTS[:3]],
                         'purpose': 'discover'}, '4 to 256')):
        found = tenant.call('POST', '/v1/checks', body, 400)
        assert said in json.dumps(found)
    tenant.call('POST', '/v1/checks', {'group': 'nobody'}, 404)
    tenant.call('GET', '/v1/checks/nobody', status=404)


def test_the_hosts_of_a_new_group_are_checked(tmp_path):
    with harness.running(tmp_path, {'probe': {
            'enabled': 'false', 'check_groups': 'always'}}) as controller:
        tenant = controller.tenant()
        tenant.edges(HOSTS, link_bps=LINK_BPS)
        trains = Trains(tenant, lambda src, dst: LINK_BPS)
        trains.start()
        try:
            hosts = tenant.launch(2, hosts={'h0': 1, 'h1': 1}, matrix=(
                '{"n": 2, "flows": [[0, 1, "100MB"]]}'))
            (found,) = harness.wait_for(lambda: [
                one for one in tenant.call('GET', '/v1/checks')['checks']
                if one['state'] == 'done'])
        finally:
            trains.over.set()
            trains.join()
        assert found['trigger'] == 'launch'
        assert {tenant.name(host) for host in found['hosts']} == set(hosts)


@pytest.mark.parametrize('offered', [True, False])
def test_a_tenant_asks_for_a_check(tmp_path, offered):
    with harness.running(tmp_path, {'probe': {
            'enabled': 'false',
            'check_groups': 'hinted' if offered else 'never'}}) as found:
        tenant = found.tenant()
        tenant.edges(HOSTS, link_bps=LINK_BPS)
        with answered(tenant, lambda src, dst: LINK_BPS * (
                0.5 if 'h2' in (src, dst) else 1.0)):
            tenant.launch(4, hosts=dict.fromkeys(HOSTS[4:], 1), name='b')
            wanted = {host: 1 for host in HOSTS[:4]}
            tenant.launch(4, first=4, hosts=wanted, hints={
                'virtco:preflight': 'true'})
            path = f'/v1/placements/{tenant.instance(4)}/explanation'
            if offered:
                # An explanation costs so much that few may be asked for.
                harness.wait_for(lambda: [
                    one for one in tenant.call('GET', '/v1/checks')['checks']
                    if one['state'] == 'done'])
                told = harness.wait_for(
                    lambda: tenant.call('GET', path)['findings'])
        checks = tenant.call('GET', '/v1/checks')['checks']
        (event,) = [one for one in tenant.events()
                    if one['kind'].startswith('preflight')]
    if not offered:
        assert checks == []
        assert event['kind'] == 'preflight_off'
        return
    assert event['kind'] == 'preflight'
    # Nobody asked for one of the other group.
    assert [({tenant.name(host) for host in one['hosts']}, one['trigger'])
            for one in checks] == [(set(HOSTS[:4]), 'launch')]
    assert {(one['kind'], tenant.name(one['subject'])) for one in told} == {
        ('host-egress', 'h2'), ('host-ingress', 'h2')}


def test_matrices_and_poor_performers(controller, tenant, virtco, tmp_path):
    for turn in range(3):
        for src in HOSTS:
            for dst in HOSTS:
                if src != dst:
                    tenant.controller.streams.measure(
                        tenant.host(src), tenant.host(dst),
                        LINK_BPS * (0.3 if src == 'h5' else 1.0)
                        * (1 + 0.01 * turn), loss=0.0,
                        rtt_s=0.001 * (1 + turn), method='train')
    found = harness.wait_for(lambda: (one := tenant.call(
        'GET', '/v1/performers'))['hosts'] and all(
            host['n_peers'] == len(HOSTS) - 1 and abs(
                host['rtt_s'] - 0.002) < 1e-9 for host in one['hosts'])
        and one)
    poor = [one for one in found['hosts'] if one['reasons']]
    assert [tenant.name(one['host']) for one in poor] == ['h5']
    assert 'egress 3' in poor[0]['reasons'][0]
    assert found['trust'] == 'stable'
    hosts = ','.join(tenant.host(host) for host in HOSTS)
    matrix = tenant.call('GET', '/v1/matrices/rate', params={'hosts': hosts})
    assert matrix['values'][0][1] == pytest.approx(1.01 * LINK_BPS)
    assert matrix['values'][5][1] == pytest.approx(0.303 * LINK_BPS)
    assert matrix['values'][3][3] is None
    matrix = tenant.call('GET', '/v1/matrices/latency', params={
        'statistic': 'most', 'hosts': hosts})
    assert matrix['values'][0][1] == pytest.approx(0.003)
    matrix = tenant.call('GET', '/v1/matrices/rate', params={
        'statistic': 'latest', 'at': 1.0, 'hosts': hosts})
    assert matrix['values'][0][1] is None
    # The same by command, and as a picture.
    code, out, err = virtco(controller, 'measure', 'matrix', 'rate',
                            '--hosts', hosts)
    assert code == 0, err
    first, *rows = out.splitlines()
    assert first == 'rate bit/s,' + hosts
    assert float(rows[5].split(',')[2]) == pytest.approx(0.303 * LINK_BPS)
    path = tmp_path / 'rates.png'
    code, _out, err = virtco(controller, 'measure', 'matrix', 'rate',
                             '--plot', str(path))
    assert code == 0, err
    assert path.read_bytes().startswith(b'\x89PNG')
    code, out, err = virtco(controller, 'rate', 'list', '--hosts', '-f',
                            'json')
    assert [tenant.name(one['host']) for one in json.loads(out)] == ['h5']
    assert ': stable.' in err
    for path in ('rate?statistic=x', 'speed', 'latency?statistic=constant',
                 'rate?hosts=nobody'):
        tenant.call('GET', f'/v1/matrices/{path}', status=400)
