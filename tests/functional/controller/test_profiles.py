# SPDX-License-Identifier: Apache-2.0

"""What VM pairs send, by hour: counted, kept, shown to their tenant."""

import json

import pytest

from tests.functional.controller import harness
from virtco import exception
from virtco.client import v1
from virtco.osc import shell
from virtco.wire import profile as profile_wire

APART = {'h0': 1, 'h1': 1}
WIRE = 1.0456


@pytest.fixture(scope='module')
def controller(tmp_path_factory):
    with harness.running(
            tmp_path_factory.mktemp('profiles'),
            constants={'virtco.objects.profiles.FLUSH_S': 0.2}) as found:
        yield found


@pytest.fixture
def tenant(controller):
    return controller.tenant()


def sends(tenant, hosts, edges, name, size_bytes):
    """Row 0 sends to row 1."""
    sends_to(tenant, edges[hosts[0]], name, hosts[1], size_bytes)


def sends_to(tenant, edge, name, host, size_bytes, **changes):
    coflow_id = tenant.coflow(name)['id']
    edge.wait_class(coflow_id)
    edge.count(coflow_id, size_bytes * WIRE, host)
    edge.report(**changes)


def shown(tenant, name, size_bytes):
    """The profile, once so many bytes are in it."""
    client = v1.Client(tenant.controller.url)

    def found():
        try:
            profile = client.call(profile_wire.SHOW, name, tenant.project)
        except exception.NotFound:
            return None
        return profile if profile.size_bytes >= size_bytes else None

    return harness.wait_for(found, 'the profile')


def test_bytes_of_a_pair_are_kept_and_a_hint_again(tenant, capsys):
    hosts = tenant.launch(2, matrix='[[0, "20MB"], [0, 0]]', hosts=APART)
    edges = tenant.edges(hosts)
    sends(tenant, hosts, edges, 'a', 6e6)
    sends(tenant, hosts, edges, 'a', 4e6)
    found = shown(tenant, 'a', 9.99e6)
    (pair,) = found.pairs
    assert (pair.src, pair.dst, pair.is_seen) == (0, 1, True)
    assert pair.size_bytes == pytest.approx(1e7, rel=1e-3)
    assert sum(hour.size_bytes for hour in pair.hours) == pair.size_bytes
    assert pair.next_hour.method in ('last-hour', 'none')

    def call(*argv, code=0):
        assert shell.main(['--controller-url', tenant.controller.url,
                           *argv]) == code
        return capsys.readouterr()

    told = call('profile', 'show', 'a', '--project', tenant.project)
    assert '10 MB in 1 hours' in told.err
    assert tenant.project in call('profile', 'list', '--long').out
    hint = json.loads(call('hint', 'from-observed', 'a', '--project',
                           tenant.project, '--format', 'tm').out)
    ((_src, _dst, size_bytes),) = hint['flows']
    assert size_bytes == pytest.approx(1e7, rel=1e-3)
    assert 'not found' in call('profile', 'show', 'b', '--project',
                               tenant.project, code=1).err


def test_of_several_pairs_between_two_hosts_each_has_its_own(tenant):
    """By the pairs' counters, whatever the hint says."""
    hosts = tenant.launch(
        4, matrix='{"n": 4, "flows": [[0, 2, "10MB"], [1, 3, "10MB"], '
        '[0, 1, "30MB"], [2, 3, "30MB"]]}', hosts={'h0': 2, 'h1': 2})
    assert hosts[0] == hosts[1] != hosts[2] == hosts[3]
    edges = tenant.edges(hosts)
    sends_to(tenant, edges[hosts[0]], 'a', hosts[2], 8e6, pairs=[
        {'dev': f'tap{src}', 'src_ip': f'10.1.0.{src}',
         'dst_ip': f'10.1.0.{dst}', 'dst_port': None, 'sent_bytes': sent}
        for src, dst, sent in ((0, 2, 6e6), (1, 3, 2e6))])
    found = shown(tenant, 'a', 7.9e6)
    sizes = {(pair.src, pair.dst): pair.size_bytes
             for pair in found.pairs if pair.is_seen}
    assert sizes == pytest.approx({(0, 2): 6e6, (1, 3): 2e6}, rel=1e-3)
    # What stays in a host is not taken for silence.
    assert {(pair.src, pair.dst) for pair in found.pairs
            if not pair.is_seen} == {(0, 1), (2, 3)}


def test_a_restart_keeps_what_was_counted(make):
    controller = make(constants={'virtco.objects.profiles.FLUSH_S': 3600.0})
    tenant = controller.tenant()
    hosts = tenant.launch(2, matrix='[[0, "20MB"], [0, 0]]', hosts=APART)
    edges = tenant.edges(hosts)
    sends(tenant, hosts, edges, 'a', 3e6)
    controller.stop()
    controller.options['api']['port'] = controller.url.rpartition(':')[2]
    controller.start()
    shown(tenant, 'a', 2.99e6)
    sends(tenant, hosts, edges, 'a', 2e6)
    controller.stop()
    controller.start()
    assert shown(tenant, 'a', 4.9e6).size_bytes == pytest.approx(
        5e6, rel=1e-3)


GATHER = [(0, 2), (1, 2)]
LAUNCH = {'matrix': None, 'hosts': {'h0': 1, 'h1': 1, 'h2': 1}}


def gather(tenant, name, size_bytes, first):
    """A launch without a matrix, in which rows 0 and 1 send to row 2."""
    hosts = tenant.launch(3, first, name=name, reservation_id=f'r-{name}',
                          hints={'virtco:app': 'sort'}, **LAUNCH)
    assert len(set(hosts)) == 3
    edges = {host: harness.Edge(tenant, host, [first + row])
             for row, host in enumerate(hosts)}
    for edge in edges.values():
        edge.report()
    for src, dst in GATHER:
        sends_to(tenant, edges[hosts[src]], name, hosts[dst], size_bytes)
    return hosts, edges


def test_the_next_launch_of_an_application_gets_what_was_learned(
        tenant, capsys):
    """The first is estimated while it sends; the second is a hint."""
    gather(tenant, 'one', 4e7, 0)
    coflow = tenant.coflow('one')
    assert (coflow['n_flows'], coflow['iterations']) == (6, 0)
    shown(tenant, 'one', 7.9e7)
    # Its size follows what was counted: 6 MB was the first guess.
    harness.wait_for(lambda: tenant.coflow('one')['size_bytes'] > 7.9e7,
                     'the estimated size')
    client = v1.Client(tenant.controller.url)
    learned = client.call(profile_wire.SHOW_APP, 'sort',
                          project_id=tenant.project)
    assert learned.size_bytes == pytest.approx(8e7, rel=1e-3)
    assert 'gather' in learned.how
    larger = client.call(profile_wire.SHOW_APP, 'sort', n_vms=5,
                         project_id=tenant.project)
    assert larger.tm == {'pattern': 'gather', 'senders': 4,
                            'size': pytest.approx(8e7, rel=1e-3)}

    def launch(name, first, n_vms, **hints):
        for row in range(n_vms):
            tenant.place(first + row, name, None, num_instances=n_vms,
                         launch_index=row, reservation_id=name,
                         hosts={f'g{first}-{i}': 1 for i in range(n_vms)},
                         hints={'virtco:app': 'sort', **hints})
        return tenant.coflow(name)

    two = launch('two', 10, 3)
    assert (two['n_flows'], two['iterations']) == (2, 1)
    assert two['size_bytes'] == pytest.approx(8e7, rel=1e-3)
    assert launch('five', 20, 5)['n_flows'] == 4
    # The tenant sees why, and may refuse it.
    told = [event['detail'] for event in tenant.events()
            if event['kind'] == 'app_learned']
    assert any('gather' in text and 'scaled to 5' in text for text in told)
    assert launch('own', 30, 3, **{'virtco:app_refuse': 'true'})[
        'n_flows'] == 6
    # Another project learns nothing of it.
    other = tenant.controller.tenant()
    other.place(0, 'other', None, num_instances=3, hints={
        'virtco:app': 'sort'})
    assert other.coflow('other')['n_flows'] == 6
    assert shell.main(['--controller-url', tenant.controller.url, 'app',
                       'show', 'sort', '--project', tenant.project]) == 0
    assert 'gather' in capsys.readouterr().out
    client.call(profile_wire.FORGET_APP, 'sort', tenant.project)
    assert launch('six', 40, 3)['n_flows'] == 6
    with pytest.raises(exception.NotFound):
        client.call(profile_wire.SHOW_APP, 'sort', project_id=tenant.project)


def test_an_application_alone_has_bounds(tenant):
    for number, (n_vms, told) in enumerate(((1, 'virtco:tm beside it'),
                                            (65, 'at most 64 servers'))):
        answer = tenant.place(number, f'b{n_vms}', None, status='ignored',
                              num_instances=n_vms,
                              hints={'virtco:app': 'x'})
        assert told in answer['why']
    answer = tenant.place(9, 'c', '[[0, 1], [0, 0]]', status='ignored',
                          hints={'virtco:app_refuse': 'true'})
    assert 'nothing without virtco:app' in answer['why']


def test_an_unknown_size_is_served_after_a_small_known_one(tenant):
    """What it has sent tells that it is large; MRTF goes by that."""
    hosts, edges = gather(tenant, 'unknown', 9e8, 0)
    small = tenant.launch(2, 5, name='small', matrix='[[0, "2MB"], [0, 0]]',
                          hosts={hosts[0]: 2, hosts[2]: 2})
    edges[hosts[0]].vms.append(5 + small.index(hosts[0]))
    edges[hosts[2]].vms.append(5 + small.index(hosts[2]))
    for edge in edges.values():
        edge.report()

    def is_behind():
        for src, dst in GATHER:  # it goes on
            sends_to(tenant, edges[hosts[src]], 'unknown', hosts[dst], 2e8)
        # Who is silent is served last.
        sends_to(tenant, edges[small[0]], 'small', small[1], 1e4)
        found = {coflow['name']: coflow['rank']
                 for coflow in tenant.coflows()}
        return None not in found.values() and (
            found['small'] < found['unknown'])

    harness.wait_for(is_behind, 'the small one first')
