# SPDX-License-Identifier: Apache-2.0

"""``virtco topology …`` and ``/v1/topology`` against a real controller."""

import json
import time

import msgspec
import pytest

from tests.functional.controller import harness
from virtco import exception
from virtco.client import v1
from virtco.osc import shell
from virtco.wire import topology as topology_wire

RACKS = '''
planes:
- name: front-end
  nodes:
  - name: core
    nodes:
    - {name: rack1, hosts: "n[1-4]", uplink: 10Gbit}
    - {name: rack2, hosts: "n[5-8]", oversubscription: 4}
'''


@pytest.fixture(scope='module')
def controller(tmp_path_factory):
    """One without edges, whose topology changes."""
    with harness.running(tmp_path_factory.mktemp('topology')) as found:
        yield found


@pytest.fixture
def cli(controller, capsys):
    """Commands against that controller, which begins without planes."""
    def call(*argv, code=0):
        found = shell.main(['--controller-url', controller.url, 'topology',
                            *argv])
        out, err = capsys.readouterr()
        assert found == code, err
        call.out = out
        return out + err

    call.controller = controller
    yield call
    client = v1.Client(controller.url)
    for plane in client.call(topology_wire.SHOW).planes:
        client.call(topology_wire.DELETE, plane.name)


def test_import_is_a_dry_run_until_applied(cli, tmp_path):
    path = tmp_path / 'racks.yaml'
    path.write_text(RACKS)
    assert 'There is no topology' in cli('show')
    out = cli('import', str(path))
    assert '+ host n5: below rack2' in out
    assert '14 changes; --apply makes them.' in out
    assert 'There is no topology' in cli('show')
    assert '14 changes applied.' in cli('import', str(path), '--apply')
    assert 'Nothing would change.' in cli('import', str(path))
    path.write_text(RACKS.replace('n[5-8]', 'n[5-7]')
                    .replace('n[1-4]', 'n[1-4],n8'))
    assert '~ host n8: below rack2 -> below rack1' in cli('import',
                                                          str(path))
    shown = cli('show')
    assert '├─ rack1 (rack) 10 Gbit/s 4 hosts: n[1-4]' in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_planes_are_kept_beside_each_other_and_through_a_restart(
        cli, tmp_path):
    path = tmp_path / 'racks.yaml'
    path.write_text(RACKS)
    cli('import', str(path), '--apply')
    slurm = tmp_path / 'topology.yaml'
    slurm.write_text('- topology: rdma\n  tree:\n    switches:\n'
                     '    - {switch: rail1, nodes: "n[1-8]"}\n')
    cli('import', str(slurm), '--apply', '--levels', 'rail')
    cli.controller.stop()
    cli.controller.options['api']['port'] = cli.controller.url.rpartition(
        ':')[2]
    cli.controller.start()
    assert 'plane rdma: rail; 8 hosts' in cli('show')
    exported = tmp_path / 'out'
    for name in ('yaml', 'slurm-yaml'):
        cli('show', '--format', name)
        exported.write_text(cli.out)
        again = cli('import', str(exported), *(
            ['--levels', 'rail', '--plane', 'rdma'] if name != 'yaml'
            else []), code=0 if name == 'yaml' else 1)
        assert ('Nothing would change.' in again
                or 'nothing for a file with 2 planes' in again)
    for name in ('topograph', 'slurm-conf'):
        cli('show', '--format', name, '--plane', 'front-end')
        exported.write_text(cli.out)
        # Rates are lost, and that is told.
        assert '- uplink rack2: 4:1' in cli('import', str(exported))
    cli('delete', 'rdma')
    assert 'rdma' not in cli('show')
    assert 'was not found' in cli('delete', 'rdma', code=1)


def test_hosts_that_are_in_no_leaf_are_listed(cli, tmp_path):
    edge = harness.Edge(cli.controller.tenant(), 'h0')
    edge.report()
    path = tmp_path / 'racks.yaml'
    path.write_text(RACKS)
    told = f'1 hosts are in no leaf of plane front-end: {edge.name}'
    assert told in cli('import', str(path))
    cli('import', str(path), '--apply')
    assert told in cli('show')
    path.write_text(RACKS.replace('n[5-8]', f'n5,{edge.name}'))
    assert 'in no leaf' not in cli('import', str(path), '--apply')


def test_a_wrong_file_changes_nothing(cli, tmp_path):
    path = tmp_path / 'racks.yaml'
    path.write_text(RACKS.replace('n[5-8]', 'n[4-8]'))
    out = cli('import', str(path), '--apply', code=1)
    assert f'{path}, line 8: plane front-end, node rack2' in out
    assert 'There is no topology' in cli('show')
    assert 'can be read' in cli('import', str(tmp_path / 'none'), code=1)
    path.write_bytes(b'\xff\xfe')
    assert 'UTF-8' in cli('import', str(path), code=1)
    assert '--os-auth-type' in cli('import', '--from-nova', code=1)


def test_the_api_reads_the_document_itself(cli):
    client = v1.Client(cli.controller.url)
    plane = {'name': 'front-end', 'nodes': [
        {'name': 'r1', 'hosts': ['n1', 'n2'], 'uplink': 1e10}]}
    found = client.call(topology_wire.IMPORT, [plane])
    assert found.applied
    generation = found.generation
    with pytest.raises(exception.Conflict):
        client.call(topology_wire.IMPORT, [plane], generation=generation + 1)
    for nodes, told in (
            ([{'name': 'r1', 'hosts': ['n1', 'n1']}], 'r1: hosts'),
            ([{'name': 'r1', 'uplink': -1}], 'node r1: uplink'),
            ([{'name': 'r1', 'uplink': True}], 'nodes[0].uplink'),
            ([{'name': 'r1', 'x': 1}], 'node'),
            ([{'name': 'r1', 'hosts': 'n[0-999999]'}], '100000')):
        with pytest.raises(exception.Invalid) as error:
            client.call(topology_wire.IMPORT, [plane | {'nodes': nodes}])
        assert told in str(error.value)
    assert client.call(topology_wire.SHOW).generation == generation


def test_a_picture(cli, tmp_path):
    pytest.importorskip('matplotlib')
    path = tmp_path / 'racks.yaml'
    path.write_text(RACKS)
    cli('import', str(path), '--apply')
    picture = tmp_path / 'racks.png'
    cli('show', '--plot', str(picture))
    assert picture.read_bytes().startswith(b'\x89PNG')
    assert '*.png' in cli('show', '--plot', str(tmp_path / 'a.txt'), code=1)


def test_another_process_hears_of_it(cli, make, tmp_path):
    other = make({'database': {
        'connection': f'sqlite:///{cli.controller.database}'}}, 'other')
    v1.Client(cli.controller.url).call(
        topology_wire.IMPORT, [{'name': 'front-end', 'nodes': [
            {'name': 'r1'}]}])
    harness.wait_for(
        lambda: v1.Client(other.url).call(topology_wire.SHOW).planes,
        'the topology in the other process')


def test_json_in_the_answer_is_what_is_sent(cli):
    client = v1.Client(cli.controller.url)
    plane = {'name': 'a', 'levels': [{'name': 'rack'}], 'nodes': [
        {'name': 'r1', 'uplink': {'up': '10Gbit', 'down': '5Gbit'},
         'hosts': 'n[1-2]'}]}
    client.call(topology_wire.IMPORT, [plane])
    found = client.call(topology_wire.SHOW)
    assert msgspec.to_builtins(found.planes) == [plane]


GATHER = ('[[0, 0, 0, "30MB"], [0, 0, 0, "30MB"], [0, 0, 0, "30MB"], '
          '[0, 0, 0, 0]]')


def put_racks(tenant, uplink_bps, free=None):
    """Racks h0 h1 and h2 h3 of 100 Mbit/s hosts, with edges."""
    v1.Client(tenant.controller.url).call(topology_wire.IMPORT, [{
        'name': 'front-end', 'nodes': [
            {'name': name, 'uplink': uplink_bps,
             'hosts': [tenant.host(h) for h in hosts]}
            for name, hosts in (('left', ('h0', 'h1')),
                                ('right', ('h2', 'h3')))]}])
    for host in ('h0', 'h1', 'h2', 'h3'):
        harness.Edge(tenant, host).report()


def test_a_group_stays_in_one_rack_when_uplinks_are_oversubscribed(cli):
    """At 4:1 two pairs in one rack each beat a pair of hosts apart."""
    tenant = cli.controller.tenant()
    put_racks(tenant, 5e7)
    hosts = tenant.launch(4, matrix=GATHER, hosts={f'h{i}': 2
                                                   for i in range(4)})
    assert {*hosts} in ({'h0', 'h1'}, {'h2', 'h3'})


def test_explain_names_the_limiting_uplink(cli, capsys):
    tenant = cli.controller.tenant()
    put_racks(tenant, 5e7)
    # One VM per host: half of the traffic has to leave its rack.
    answer = tenant.place(0, matrix=GATHER, num_instances=4,
                          hosts={f'h{i}': 1 for i in range(4)})
    assert answer['bottleneck'].startswith('rack ')
    assert shell.main(['--controller-url', cli.controller.url, 'placement',
                       'explain', tenant.instance(0)]) == 0
    assert f'Limiting: {answer["bottleneck"]}' in capsys.readouterr().err
    # 60 MB over 49 Mbit/s of the uplink, less headers.
    assert answer['cct_s'] == pytest.approx(60 * 8 / 49 * 1.0456, rel=0.01)


def test_rates_over_an_uplink_add_up_to_what_it_carries(cli):
    tenant = cli.controller.tenant()
    put_racks(tenant, 5e7)
    edges = {}
    for first, name, pair in ((0, 'a', ('h0', 'h2')), (2, 'b', ('h1', 'h3'))):
        for n, host in enumerate(pair, first):
            answer = tenant.place(
                n, name, '[[0, "50MB"], [0, 0]]', hosts={host: 1},
                launch_index=n - first, num_instances=1,
                reservation_id=f'{name}{n}')
            tenant.notify('instance.create.end', n, host=answer['host'])
            edges[host] = harness.Edge(tenant, host, [n])
    for edge in edges.values():
        edge.report()

    def rates():
        found = [c['rate_bps'] for host in ('h0', 'h1')
                 for c in edges[host].policy()['classes']]
        return found if len(found) == 2 else None

    found = harness.wait_for(rates, 'both policies')
    assert sum(found) == pytest.approx(0.98 * 5e7, rel=0.04)
    # A wider uplink: both hosts' links decide again.
    put_racks(tenant, 1e9)
    harness.wait_for(lambda: sum(rates() or [0]) > 1.9e8,
                     'rates without the uplink')


def test_a_group_that_wants_one_rack_gets_one_or_is_told(cli):
    tenant = cli.controller.tenant()
    put_racks(tenant, 1e9)
    wish = {'virtco:within': 'rack:required'}
    room = {'h0': 1, 'h1': 2, 'h2': 2, 'h3': 2}
    hosts = tenant.launch(4, matrix=GATHER, hosts=room, hints=wish)
    assert {*hosts} == {'h2', 'h3'}
    answer = tenant.place(9, 'late', matrix=GATHER, num_instances=4,
                          hosts={**room, 'h3': 1}, hints=wish,
                          status='neutral')
    assert '3 of 4 fit at level rack' in answer['why']
    assert answer['refused'] == {'level': 'rack', 'fitting': 3, 'wanted': 4,
                                 'limiting': 'vcpus'}
    # A preferred wish never stands in the way.
    met = tenant.place(20, 'soft', matrix=GATHER, num_instances=4,
                       hosts={**room, 'h2': 3, 'h3': 3},
                       hints={'virtco:within': 'rack'})
    assert '3 of 4 fit at level rack' in met['why']


def test_a_failed_vm_is_replaced_in_its_rack(cli):
    tenant = cli.controller.tenant()
    put_racks(tenant, 1e9)
    wish = {'virtco:within': 'rack:required'}
    tenant.launch(4, matrix=GATHER, hosts={'h0': 3, 'h1': 3, 'h2': 1,
                                           'h3': 1}, hints=wish)
    assert {*tenant.coflow()['hosts']} <= {'h0', 'h1'}
    tenant.notify('instance.delete.end', 1)
    # Any of the senders may be the one without room beside the receiver.
    answer = tenant.place(7, matrix=GATHER, hints=wish, hosts={
        'h0': 1, 'h1': 1, 'h2': 9, 'h3': 9})
    assert answer['row'] == 1 and answer['host'] in ('h0', 'h1')


def test_capacity_counts_what_is_left(cli, tmp_path):
    tenant = cli.controller.tenant()
    put_racks(tenant, 1e9)
    path = tmp_path / 'free.json'
    path.write_text(json.dumps({
        tenant.host(name): {'vcpus': slots, 'memory_mb': slots * 512,
                            'disk_gb': slots}
        for name, slots in (('h0', 5), ('h1', 4), ('h2', 3), ('h3', 3),
                            ('h9', 7))}))
    ask = ['capacity', '--free', str(path), '--flavor',
           'vcpus=1,memory_mb=512', '--vms', '4,2']

    def counts():
        out = cli(*ask, '-f', 'json')
        rows = json.JSONDecoder().raw_decode(out)[0]
        return {row['switch']: (row['slots'], row['of_2'], row['of_4'])
                for row in rows}

    assert counts() == {'left': (9, 4, 2), 'right': (6, 3, 1)}
    shown = cli(*ask)
    assert '3 groups of 4 VMs, in 2 of 2 switches of level rack' in shown
    assert f'1 hosts are in no leaf of plane front-end: {tenant.host("h9")}' \
        in shown
    assert max(map(len, shown.splitlines())) <= 80
    # A group that is planned but not yet in Nova's numbers takes its room.
    tenant.place(0, 'held', matrix=GATHER, num_instances=4,
                 hosts={'h2': 3, 'h3': 3})
    assert counts() == {'left': (9, 4, 2), 'right': (2, 1, 0)}
    assert 'one of rack' in cli(*ask, '--level', 'row', code=1)
    assert 'was not found' in cli(*ask, '--plane', 'rdma', code=1)
    assert '--flavor: cpus' in cli('capacity', '--free', str(path),
                                   '--flavor', 'cpus=1', code=1)
    assert '--os-auth-type' in cli('capacity', '--flavor', 'm', code=1)


def large_topology(name_of):
    """YAML of 847 hosts in 119 leaves of 1 to 16, in 9 pods and 2 zones."""
    sizes = [1 + (37 * leaf) % 13 for leaf in range(119)]
    for leaf in range(119):  # to 847 in all, still unequal
        sizes[leaf] += (sum(sizes) < 847) - (sum(sizes) > 847)
    sizes[0] += 847 - sum(sizes)
    numbers = iter(range(847))
    lines = ['planes:', '- name: front-end', '  levels:',
             '  - {name: rack, oversubscription: 3}',
             '  - {name: pod, uplink: 400Gbit}', '  - {name: zone}',
             '  nodes:']
    for zone in range(2):
        lines += [f'  - name: zone{zone}', '    nodes:']
        for pod in range(zone, 9, 2):
            lines += [f'    - name: pod{pod}', '      nodes:']
            for leaf in range(pod, 119, 9):
                hosts = ', '.join(name_of(f'n{next(numbers):03}')
                                  for _ in range(sizes[leaf]))
                lines.append(f'      - {{name: leaf{leaf:03}, '
                             f'hosts: [{hosts}]}}')
    assert next(numbers, None) is None and len(set(sizes)) > 5
    return '\n'.join(lines) + '\n'


def test_847_hosts_in_119_unequal_leaves(cli, tmp_path, capsys):
    tenant = cli.controller.tenant()
    text = large_topology(tenant.host)
    path = tmp_path / 'large.yaml'
    path.write_text(text)
    started_s = time.process_time()
    assert '847 hosts' in cli('import', str(path))
    assert 'changes applied.' in cli('import', str(path), '--apply')
    assert 'Nothing would change.' in cli('import', str(path))
    assert time.process_time() - started_s < 20
    shown = cli('show')
    assert 'rack < pod < zone; 847 hosts' in shown
    assert shown.count('leaf') - shown.count('in no leaf') == 119
    assert max(map(len, shown.splitlines())) <= 80
    # Errors name line and node.
    twice = text.replace(tenant.host('n500'), tenant.host('n001'))
    path.write_text(twice)
    (line,) = [n for n, row in enumerate(twice.splitlines(), 1)
               if tenant.host('n001') in row
               and tenant.host('n499') in row]
    out = cli('import', str(path), '--apply', code=1)
    assert f'{path}, line {line}: plane front-end, node leaf' in out
    assert tenant.host('n001') in out
    # A group in one rack, explained.
    free = {f'n{number:03}': 2 for number in range(846)} | {'alien': 2}
    answer = tenant.place(0, matrix=GATHER, num_instances=4, hosts=free,
                          hints={'virtco:within': 'rack:required'})
    assert len(answer['allowed']) < 17
    assert set(answer['rows'].values()) <= set(answer['allowed'])
    assert shell.main(['--controller-url', cli.controller.url, 'placement',
                       'explain', tenant.instance(0)]) == 0
    assert 'Limiting: ' in capsys.readouterr().err
    room = tmp_path / 'free.json'
    room.write_text(json.dumps({
        tenant.host(name): {'vcpus': 2, 'memory_mb': 0, 'disk_gb': 0}
        for name in free}))
    told = cli('capacity', '--free', str(room), '--flavor', 'vcpus=1')
    assert f'no leaf of plane front-end: {tenant.host("alien")}' in told
    assert 'of 119 switches of level rack' in told
    assert max(map(len, told.splitlines())) <= 80
