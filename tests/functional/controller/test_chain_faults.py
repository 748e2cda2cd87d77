# SPDX-License-Identifier: Apache-2.0

"""Each fault of a chain that runs is found by its code, and nothing else is.

One controller has them all, one after the other; its edge modules are
pretended. Faults of a start have controllers of their own.
"""

import contextlib
import itertools
import json
import socket
import sqlite3
import time
import types

import pytest

from tests.functional.controller import harness
from tests.functional.controller import test_faults as faults
from tests.functional.controller import test_policies as policies
from virtco.osc import doctor
from virtco.osc import doctor_findings as findings
from virtco.osc import shell

PAIR = policies.PAIR % '10MB'
#: No train is ordered, whose rate would be none.
QUIET = {'probe': {'enabled': 'false'}}


class Chain:
    """A cloud in which all works: a coflow ``a`` from one host to another.

    :ivar spare: a host without VMs.
    """

    def __init__(self, controller):
        self.controller = controller
        self.url = controller.url
        self.tenant = tenant = controller.tenant()
        self.hosts, self.edges = policies.one_pair(tenant, size='1GB')
        self.sender = self.edges[self.hosts[0]]
        policies.settled(lambda: policies.classes(self.sender))
        self.spare = harness.Edge(tenant, 'h9')

    def hosts_of_own(self, number):
        """Two hosts with edge modules and room for one VM each."""
        names = {f'h{number}': 1, f'h{number + 1}': 1}
        self.edges |= {name: harness.Edge(self.tenant, name)
                       for name in names}
        self.heal()
        return names

    def launch(self, name, number, matrix=PAIR):
        """Launch two VMs on hosts of their own; hosts, and class of the first.
        """
        hosts = self.tenant.launch(2, number, name=name, matrix=matrix,
                                   hosts=self.hosts_of_own(number))
        for offset, host in enumerate(hosts):
            self.edges[host].vms.append(number + offset)
        self.heal()
        return hosts, policies.settled(lambda: policies.classes(
            self.edges[hosts[0]]).get(name))

    def heal(self):
        """Have each edge module say that it holds the latest policy."""
        for edge in self.edges.values():
            edge.generation = self.controller.streams.of(edge.name).generation
            edge.report()

    def forget_spare(self):
        self.tenant.call('DELETE', f'/v1/hosts/{self.spare.name}',
                         status=204)

    def delete(self, *numbers):
        for number in numbers:
            self.tenant.notify('instance.delete.end', number)


@pytest.fixture(scope='module')
def chain(tmp_path_factory):
    home = tmp_path_factory.mktemp('chain')
    with harness.running(home, QUIET) as found:
        yield Chain(found)


@pytest.fixture
def diagnose(capsys, monkeypatch):
    """Code and finding of each problem, without events of other tests."""
    began_s = time.time()

    def call(url, *argv, ahead_s=0.0):
        now_s = time.time() + ahead_s
        monkeypatch.setattr(findings, '_RECENT_S', now_s - began_s)
        monkeypatch.setattr(doctor, 'time', types.SimpleNamespace(
            time=lambda: now_s))
        code = shell.main(['--controller-url', url, 'doctor', *argv, '-f',
                           'json'])
        out, err = capsys.readouterr()
        assert 'Traceback' not in err
        rows = json.loads(out)
        assert code == any(row['state'] == 'error' for row in rows)
        return [(row['code'], row['finding']) for row in rows
                if row['state'] != 'ok']
    return call


@contextlib.contextmanager
def ignored_hint(chain):
    chain.tenant.place(10, 'broken', 'x', status='ignored')
    yield 'hints ignored in a day, at last: '


@contextlib.contextmanager
def other_host(chain):
    hosts = chain.hosts_of_own(20)
    planned = chain.tenant.place(20, 'moved', PAIR, num_instances=2,
                                 hosts=hosts)['host']
    other, = hosts.keys() - {planned}
    chain.tenant.notify('instance.create.end', 20, host=other)
    yield 'built 1 VMs on other hosts than planned in a day'
    chain.delete(20, 21)


def report(**changes):
    @contextlib.contextmanager
    def reported(chain):
        chain.sender.report(**changes)
        yield chain.sender.name
    return reported


@contextlib.contextmanager
def unknown_speed(chain):
    chain.spare.report(link={'dev': 'x', 'egress_bps': None,
                             'ingress_bps': None})
    yield f'{chain.spare.name} of unknown speed'
    chain.forget_spare()


@contextlib.contextmanager
def slow_link(chain):
    chain.spare.report()
    chain.controller.streams.measure(chain.spare.name,
                                     chain.tenant.host('h0'), 5e7)
    yield f'{chain.spare.name} measured below 70% of the nominal rate'
    chain.forget_spare()


@contextlib.contextmanager
def old_policy(chain):
    stream = chain.controller.streams.of(chain.sender.name)
    speeds_bps = itertools.count(2e8, 1e7)

    def is_behind():
        chain.sender.link_bps = next(speeds_bps)
        chain.sender.report()
        stream.hear()
        return stream.generation > chain.sender.generation + 5

    harness.wait_for(is_behind, 'six policies')
    yield f'{chain.sender.name} behind by more than 5'
    chain.sender.link_bps = 1e8


@contextlib.contextmanager
def late_coflow(chain):
    (src, dst), found = chain.launch('slow', 40, policies.PAIR % '1MB')
    sender, coflow_id = chain.edges[src], found['coflow_id']
    sender.count(coflow_id, 1e5, dst)
    sender.report()
    time.sleep(6 * chain.tenant.coflow('slow')['cct_s'])
    sender.count(coflow_id, 1e6, dst)
    sender.report()
    harness.wait_for(lambda: chain.tenant.coflow('slow')['state'] == 'done')
    chain.heal()
    yield 'slow took more than 1.5 times the planned time'
    chain.delete(40, 41)
    chain.tenant.call('DELETE', f'/v1/coflows/{coflow_id}', status=204)


FAULTS = {
    'hint that cannot be used': ('VC-061', ignored_hint),
    'VM on another host than planned': ('VC-062', other_host),
    'kernel that refuses': ('VC-067', report(health='error', error='no HTB')),
    'edge module without controller': (
        'VC-068', report(health='degraded', error='policy is over')),
    'link that tells no speed': ('VC-069', unknown_speed),
    'link that carries less': ('VC-070', slow_link),
    'edge module that refuses policies': ('VC-071', old_policy),
    'coflow that takes longer': ('VC-072', late_coflow),
}


def test_a_chain_that_works_has_no_problem(chain, diagnose):
    chain.heal()
    assert diagnose(chain.url, chain.tenant.coflow()['id']) == []


@pytest.mark.parametrize('name', FAULTS)
def test_a_fault_is_named_and_nothing_else(name, chain, diagnose):
    code, inject = FAULTS[name]
    chain.heal()
    with inject(chain) as words:
        found = diagnose(chain.url)
    assert [one[0] for one in found] == [code], found
    assert words in found[0][1]


def test_an_edge_module_that_is_silent(chain, diagnose):
    chain.spare.report()
    silent_s = time.time()
    chain.heal()
    found = diagnose(chain.url,
                     ahead_s=silent_s + 30 - time.time())
    chain.forget_spare()
    assert found == [('VC-066', f'{chain.spare.name} silent for 30 s')]


def test_vms_that_are_planned_and_do_not_run(chain, diagnose, monkeypatch):
    chain.tenant.place(30, 'late', PAIR, num_instances=2,
                       hosts=chain.hosts_of_own(30))
    soon = diagnose(chain.url, 'late')
    monkeypatch.setattr(findings, '_UNPLUGGED_S', 0.0)
    later = diagnose(chain.url)
    chain.delete(30, 31)
    assert soon == [('VC-080', 'is planned')]
    assert later == [('VC-063', 'late planned for 0 s and not running')]


def test_a_row_without_a_host(chain, diagnose):
    chain.launch('half', 50, '[[0, "1GB", 1], [0, 0, 0], [0, 0, 0]]')
    chain.heal()
    found = diagnose(chain.url, 'half')
    chain.delete(50, 51)
    assert found == [('VC-081', 'rows 2 without a host')]


def test_a_coflow_without_a_class(chain, diagnose):
    """It is a consequence: edge modules of its hosts do not report."""
    hosts = chain.tenant.launch(2, 60, name='nowhere', matrix=PAIR,
                                hosts={'h60': 1, 'h61': 1})
    chain.heal()
    harness.wait_for(lambda: chain.tenant.coflow('nowhere')['state']
                     == 'active', 'its begin')
    found = diagnose(chain.url, 'nowhere')
    chain.delete(60, 61)
    for host in hosts:
        # Not while the scheduler has not read that its VM is gone.
        path = f'/v1/hosts/{chain.tenant.host(host)}'
        harness.wait_for(lambda: 'error' not in (chain.tenant.call(
            'DELETE', path, status=None) or {}), 'the end of the host')
    names = ', '.join(map(chain.tenant.host, sorted(hosts)))
    assert found == [('VC-066', f'{names} silent for 30 s'),
                     ('VC-083', 'no hypervisor has a class for it')]


def test_packets_that_wait_below_the_rate(chain, diagnose):
    coflow_id = chain.tenant.coflow()['id']
    chain.sender.backlogs[coflow_id] = 90_000
    chain.heal()
    time.sleep(0.2)
    chain.sender.count(coflow_id, 1e4, chain.hosts[1])
    chain.heal()
    found = diagnose(chain.url, coflow_id)
    chain.sender.backlogs.clear()
    assert [code for code, _ in found] == ['VC-084'], found
    assert found[0][1].endswith('and packets wait')


def test_a_project_that_owes_bytes(chain, diagnose):
    (src, dst), found = chain.launch('liar', 70)
    chain.edges[src].backlogs[found['coflow_id']] = 30_000
    chain.edges[src].count(found['coflow_id'], 300e6, dst)
    chain.heal()
    harness.wait_for(lambda: chain.tenant.coflow('liar')['in_debt'], 'a debt')
    assert {code for code, _ in diagnose(chain.url, 'liar')} == {'VC-082'}


def test_no_controller(diagnose):
    (code, finding), = diagnose('http://127.0.0.1:1')
    assert code == 'VC-050' and 'connection refused' in finding


def test_a_controller_that_starts(make, tmp_path, diagnose):
    (tmp_path / 'own').mkdir()
    database = tmp_path / 'own' / 'virtco.sqlite'
    sqlite3.connect(database).close()
    with faults.locked(database):
        controller = make({'controller': {'db_timeout_s': 60}}, wait=False)
        controller.wait_port()
        harness.wait_for(lambda: 'reading the database'
                         in controller.log_text())
        assert diagnose(controller.url) == [
            ('VC-051', 'starting: reading the database')]


def test_a_controller_in_shadow_mode(make, diagnose):
    controller = make(QUIET | {'placement': {'mode': 'shadow'}})
    tenant = controller.tenant()
    for number, host in enumerate(('h0', 'h1')):
        tenant.place(number, matrix=PAIR, status='neutral', n_hosts=2,
                     num_instances=2)
        tenant.notify('instance.create.end', number, host=host)
    for edge in tenant.edges(['h0', 'h1']).values():
        edge.report()
    assert diagnose(controller.url) == [('VC-052', (
        'it is in shadow mode: it decides, and changes nothing'))]


def test_a_thread_of_the_controller_that_ended(make, diagnose):
    # It waits for that, outside of what it may fail at.
    controller = make(wait=False, constants={
        'virtco.periodic.WAITING': 'none'})
    controller.wait_port()
    harness.wait_for(lambda: controller.call(
        'GET', '/health', status=503)['status'] == 'failing', 'its end')
    assert diagnose(controller.url) == [
        ('VC-053', 'its keeper does not work')]


def test_a_port_of_edge_modules_that_is_taken(make, diagnose):
    with socket.create_server(('127.0.0.1', 0)) as taken:
        controller = make({'distributor': {'port': taken.getsockname()[1]}},
                          wait=False)
        controller.wait_port()
        harness.wait_for(lambda: controller.call(
            'GET', '/health', status=503)['status'] == 'failing', 'the port')
        assert diagnose(controller.url) == [
            ('VC-054', 'its distributor does not work')]


def test_a_cloud_that_just_begins(make, diagnose):
    controller = make(QUIET)
    tenant = controller.tenant()
    edge = harness.Edge(tenant, 'h0')
    edge.report()
    assert diagnose(controller.url) == [
        ('VC-060', 'has asked for no group yet')]
    tenant.call('DELETE', f'/v1/hosts/{edge.name}', status=204)
    tenant.place(0, matrix=PAIR, n_hosts=2, num_instances=2)
    assert diagnose(controller.url) == [('VC-065', 'none has reported')]
