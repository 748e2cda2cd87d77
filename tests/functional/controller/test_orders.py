# SPDX-License-Identifier: Apache-2.0

"""Orders of measurements through processes that do not lead."""

import contextlib
import signal
import threading

import pytest

from tests import patience
from tests.functional.controller import processes
from tests.functional.controller import test_checks

LINK_BPS = 1e8
LEAVES = {'leaf0': ('h0', 'h1'), 'leaf1': ('h2', 'h3')}
HOSTS = LEAVES['leaf0'] + LEAVES['leaf1']
#: Of what a host gets through the slow uplink.
SLOW = 0.25


class Edges(threading.Thread):
    """Edge modules that are connected, and answer trains by a rule."""

    def __init__(self, tenant, port):
        super().__init__(daemon=True)
        self.tenant = tenant
        self.over = threading.Event()
        self.edges = {host: processes.Edge(
            port, tenant.host(host), patience_s=0.02) for host in HOSTS}
        for edge in self.edges.values():
            edge.report(tenant, probe={'address': '10.0.0.1', 'port': 7472})

    def rate_bps(self, src, dst):
        leaves = {src in LEAVES['leaf0'], dst in LEAVES['leaf0']}
        is_slow = len(leaves) == 2 and src in LEAVES['leaf0']
        return LINK_BPS * (SLOW if is_slow else 1.0)

    def run(self):
        while not self.over.is_set():
            for host, edge in self.edges.items():
                edge.hear()
                trains, edge.trains = edge.trains, []
                for train in trains:
                    if train['role'] == 'receive':
                        continue
                    rate_bps = self.rate_bps(
                        host, self.tenant.name(train['peer']))
                    edge.say('measurement', measurement={
                        'probe_id': train['probe_id'], 'src': edge.host,
                        'dst': train['peer'], 'rate_bps': rate_bps,
                        'sent_bytes': 1000000,
                        **test_checks.Trains.answer(train, rate_bps)})


@pytest.fixture
def cloud(tmp_path):
    found = processes.Cloud(tmp_path, lease_s=processes.LONG_LEASE_S)
    yield found
    found.stop()


@contextlib.contextmanager
def connected(tenant, distributor):
    edges = Edges(tenant, processes.edge_port(distributor))
    edges.start()
    try:
        yield edges
    finally:
        edges.over.set()
        edges.join()
        for edge in edges.edges.values():
            edge.close()


def check(api, tenant, hosts=HOSTS):
    return api.call('POST', '/v1/checks', {
        'hosts': [tenant.host(host) for host in hosts]}, 202)['check_id']


def wait_check(api, check_id):
    return patience.wait_for(lambda: (found := api.call(
        'GET', f'/v1/checks/{check_id}'))['state'] in ('done', 'failed')
        and found, 'the check', log=api.log)


def poor(api):
    return {(one['kind'], one['subject'])
            for one in api.call('GET', '/v1/checks')['findings']}


def planned_cct_s(tenant, name, hosts):
    """Of 100 MB between the leaves, in both directions."""
    tenant.launch(2, first=100 * ord(name), name=name,
                  hosts=dict.fromkeys(hosts, 1), matrix='[[0, 1e8], [1e8, 0]]')
    return next(one for one in tenant.coflows() if one['name'] == name)[
        'cct_s']


def test_any_process_takes_orders_and_all_know_the_findings(cloud):
    """A scheduler leads; beside it an API, a controller that stands by, and a
    relay that has the edges.
    """
    options = {'probe': {'interval_s': 0.2, 'max_link_share': 1}}
    first = cloud.start('scheduler', **options)
    second = cloud.start('controller', **options)
    one = cloud.start('api', **options)
    tenant = one.tenant()
    one.call('PUT', '/v1/topology', {'planes': [{
        'name': 'front-end', 'levels': [
            {'name': 'rack', 'uplink': int(2 * LINK_BPS)}],
        'nodes': [{'name': leaf, 'hosts': [tenant.host(h) for h in hosts]}
                  for leaf, hosts in LEAVES.items()]}]})
    with connected(tenant, cloud.start('distributor')):
        patience.wait_for(lambda: all(len(api.call('GET', '/v1/hosts')[
            'hosts']) == len(HOSTS) for api in (one, second)), 'the hosts')
        # Each of them can be measured.
        patience.wait_for(lambda: one.call('GET', '/v1/probes', status=None
                                           ).get('n_hosts') == len(HOSTS),
                          'the schedule')
        checked = check(one, tenant)
        found = wait_check(second, checked)
        assert (found['state'], found['n_failed']) == ('done', 0), (
            first.log_text()[-1500:], found, one.call('GET', '/v1/probes'))
        assert ('leaf-uplink', 'leaf0') in {
            (seen['kind'], seen['subject']) for seen in found['findings']}
        watch = patience.Stopwatch()
        patience.wait_for(lambda: all(
            ('leaf-uplink', 'leaf0') in poor(api) for api in (one, second)),
            'the findings')
        assert watch.seconds() < 5
        metric = 'virtco_poor_ratio{kind="leaf-uplink",subject="leaf0"}'
        assert first.metrics()[metric] == pytest.approx(SLOW)
        assert metric not in second.metrics()
        # Placements know it where nobody leads.
        least_s = 8 * 1e8 / (SLOW * 2 * LINK_BPS)
        assert planned_cct_s(tenant, 'a', ('h0', 'h2')) >= least_s
        # What is asked for beside the checks.
        asked = one.call('POST', '/v1/probes', {
            'pairs': [[tenant.host('h0'), tenant.host('h2')]]}, 202)['id']
        found = patience.wait_for(lambda: (seen := second.call(
            'GET', f'/v1/probes/{asked}'))['done'] and seen, 'the probe')
        assert found['results'][0]['rate_bps'] == SLOW * LINK_BPS
        refuse(one)

        # Nobody leads: the order waits, and the next leader takes it up.
        first.stop(signal.SIGKILL)
        waiting = check(one, tenant, LEAVES['leaf0'])
        assert one.call('GET', f'/v1/checks/{waiting}')['state'] == 'waiting'
        processes.wait_leader(second, 2)
        assert second.metrics()[metric] == pytest.approx(SLOW)
        assert wait_check(one, waiting)['state'] == 'done'
        # Two hosts of a leaf say nothing of its uplink.
        assert ('leaf-uplink', 'leaf0') in poor(one)
        assert planned_cct_s(tenant, 'b', ('h1', 'h3')) >= least_s


def refuse(api):
    """What the leader would refuse, and what would be too much."""
    api.call('POST', '/v1/checks', {'hosts': ['a', 'b']}, 400)
    api.call('POST', '/v1/probes', {'pairs': [['a', 'a']]}, 400)
    api.call('GET', '/v1/checks/nobody', status=404)
    api.call('GET', '/v1/probes/nobody', status=404)
    # Hosts that never come are waited for.
    body = {'pairs': [['a', 'b']]}
    for _ in range(16):
        api.call('POST', '/v1/probes', body, 202)
    refused = api.call('POST', '/v1/probes', body, 400)
    assert '16 under way' in refused['error']['detail']
