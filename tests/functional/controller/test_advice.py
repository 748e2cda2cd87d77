# SPDX-License-Identifier: Apache-2.0

"""A group's tenant asks for trees and ranks, by what was measured."""

import itertools
import json

import pytest

from tests import patience
from tests.functional.controller import harness
from virtco.osc import shell

HOSTS = ('h0', 'h1', 'h2', 'h3')
LINK_BPS = 1e8
#: Host 0 reaches host 2 alone at its full rate, and only host 2 the others.
FAST = {frozenset(pair) for pair in (('h0', 'h2'), ('h2', 'h1'),
                                     ('h2', 'h3'))}
RING = ('[{"name": "t", "rank_hint": true, '
        '"tm": {"pattern": "ring", "n": 4, "flow_size": 1000000}}]')


@pytest.fixture(scope='module')
def controller(tmp_path_factory):
    with harness.running(tmp_path_factory.mktemp('advice'), {
            'probe': {'enabled': 'false'}}) as found:
        yield found


@pytest.fixture(scope='module')
def tenant(controller):
    """With a group of one VM per host, and rates between the hosts."""
    found = controller.tenant()
    hosts = found.launch(4, matrix=RING, hosts=dict.fromkeys(HOSTS, 1))
    found.hosts_by_row = hosts
    found.edges(hosts, link_bps=LINK_BPS)
    for _ in range(3):
        for pair in itertools.permutations(HOSTS, 2):
            controller.streams.measure(
                found.host(pair[0]), found.host(pair[1]), LINK_BPS * (
                    0.9 if frozenset(pair) in FAST else 0.1), loss=0.0,
                rtt_s=0.001, method='train')
    return found


@pytest.fixture
def call(tenant, capsys):
    def run(*argv, code=0):
        capsys.readouterr()
        assert shell.main(['--controller-url', tenant.controller.url,
                           'group', 'advise', *argv, '--project',
                           tenant.project]) == code
        return capsys.readouterr()
    return run


def ask(tenant, path, **params):
    return tenant.call('GET', path, params={
        'project_id': tenant.project} | params)


def test_a_tree_takes_the_fast_way(tenant):
    row = {host: row for row, host in enumerate(tenant.hosts_by_row)}
    found = ask(tenant, '/v1/groups/a/tree', root=row['h0'],
                size_bytes=1e6)
    best = found['trees'][0]
    first, second = row['h0'], row['h2']
    assert best['edges'][0] == [first, second]
    assert {src for src, _dst in best['edges'][1:]} == {second}
    by_name = {tree['tree']: tree['predicted_s'] for tree in found['trees']}
    assert by_name[best['tree']] < 0.5 * by_name['flat']
    assert found['bound_s'] <= best['predicted_s']
    # 1 MB twice over the second one's 90 Mbit/s, without the headers, while
    # it still receives; whole ones would take three times.
    assert best['predicted_s'] == pytest.approx(2 * 8e6 / 9e7, rel=0.25)
    assert best['n_segments'] > 4
    assert found['order'][0] == first and found['rank_hint'] == (
        found['order']) == found['orders'][0]['order']
    assert {one['shape'] for one in found['orders']} == {
        'binomial', 'binary', 'chain'}
    whole = ask(tenant, '/v1/groups/a/tree', root=row['h0'],
                size_bytes=1000)
    assert all(tree['n_segments'] == 1 for tree in whole['trees'])
    assert [one['matrix'] for one in found['estimates']] == [
        'constant', 'rpca', 'median', 'raw']
    assert all(one['n_measured'] == one['n_pairs'] == 12
               for one in found['estimates'])
    # A reduce goes the same way back, and by id as by name.
    other = ask(tenant, f'/v1/groups/{found["group"]}/tree',
                root=first, operation='reduce', size_bytes=1e6)
    assert other['trees'][0]['edges'][-1] == [second, first]


def test_a_mapping_puts_neighbours_on_fast_pairs(tenant, controller):
    """A chain of ranks whose heavy flow fits only on a fast pair."""
    chain = {'n': 4, 'flows': [[0, 1, 1], [1, 2, 9000000], [2, 3, 1]]}
    found = controller.call(
        'POST', '/v1/groups/a/mapping', {'tm': chain},
        params={'project_id': tenant.project})
    host = [tenant.hosts_by_row[row] for row in found['order']]
    assert frozenset(host[1:3]) in FAST
    assert found['mappings'][0]['gap'] == 0.0
    # Without a matrix that of the hint.
    own = controller.call('POST', '/v1/groups/a/mapping', {},
                          params={'project_id': tenant.project})
    assert own['size_bytes'] == 4e6


def test_an_all_reduce_takes_fast_pairs_for_ring_and_trees(tenant, call):
    told = call('a', '--all-reduce', '10MB').out
    assert 'NCCL\'s all-reduce of 10 MB in group a of 4 VMs' in told
    found = json.loads(call('a', '--all-reduce', '10MB',
                            '--format', 'json').out)
    took_s = {one['mapping']: one['predicted_s']
              for one in found['mappings']}
    assert took_s[found['best']] == took_s['optimum'] == min(took_s.values())
    assert sorted(found['order']) == [0, 1, 2, 3]
    lines = call('a', '--all-reduce', '10MB',
                 '--format', 'nccl').out.splitlines()
    assert lines == [f'a-{row} slots=1' for row in found['order']]


def test_an_all_reduce_has_no_matrix(tenant, controller):
    for body, words in (({'all_reduce_bytes': 1e6, 'tm': [[0]]},
                         'nothing beside tm'),
                        ({'all_reduce_bytes': 0}, 'all_reduce_bytes')):
        answer = controller.call(
            'POST', '/v1/groups/a/mapping', body, 400,
            params={'project_id': tenant.project})
        assert words in json.dumps(answer)


@pytest.mark.parametrize(('path', 'params', 'words'), [
    ('a/tree', {'root': 4}, 'a rank between 0 and 3'),
    ('a/tree', {'root': -1}, 'root'),
    ('a/tree', {'matrix': 'mean'}, 'one of constant, median, raw, rpca'),
    ('a/tree', {'operation': 'scatter'}, 'one of broadcast, reduce'),
    ('a/tree', {'size_bytes': 'nan'}, 'at least 1'),
    ('a/tree', {'size_bytes': 0}, 'size_bytes')])
def test_what_is_wrong_is_named(tenant, path, params, words):
    answer = tenant.call('GET', f'/v1/groups/{path}', None, 400, params={
        'project_id': tenant.project} | params)
    assert words in json.dumps(answer)


def test_others_have_no_such_group(tenant, controller):
    other = controller.tenant()
    group = ask(tenant, '/v1/groups/a/tree')['group']
    for name in ('a', group, 'nothing'):
        other.call('GET', f'/v1/groups/{name}/tree', None, 404, params={
            'project_id': other.project})


def test_a_group_without_all_its_vms_is_refused(tenant):
    tenant.place(20, 'half', '{"n": 3, "flows": [[0, 1, 1]]}',
                 num_instances=1)
    answer = tenant.call('GET', '/v1/groups/half/tree', None, 400, params={
        'project_id': tenant.project})
    assert 'VMs all have hosts' in json.dumps(answer)


def test_a_group_that_lost_a_vm_is_refused(controller):
    tenant = controller.tenant()
    tenant.launch(4, matrix=RING, hosts={f'g{i}': 1 for i in range(4)})
    tenant.notify('instance.delete.end', 2, host=tenant.host('g2'))

    def refused():
        answer = tenant.call('GET', '/v1/groups/a/tree', None, None, params={
            'project_id': tenant.project})
        return 'without one: row 2' in json.dumps(answer)

    patience.wait_for(refused, 'the end of the VM')


def test_one_vm_needs_no_advice(controller):
    tenant = controller.tenant()
    tenant.launch(1, matrix='[[0]]', hosts={'g0': 1})
    found = ask(tenant, '/v1/groups/a/tree')
    assert found['order'] == [0] and found['predicted_s'] == 0.0
    assert found['trees'][0]['edges'] == []
    for body in ({}, {'all_reduce_bytes': 1e6}):
        found = tenant.call('POST', '/v1/groups/a/mapping', body, params={
            'project_id': tenant.project})
        assert found['order'] == [0] and found['predicted_s'] == 0.0


def test_pairs_without_a_reading_have_their_links(controller):
    """The table says so, and all orders are as good."""
    tenant = controller.tenant()
    hosts = tenant.launch(4, matrix=RING,
                          hosts={f'g{i}': 1 for i in range(4)})
    tenant.edges(hosts, link_bps=LINK_BPS)
    found = ask(tenant, '/v1/groups/a/tree')
    assert {(one['n_measured'], one['n_pairs'])
            for one in found['estimates']} == {(0, 12)}
    flat = next(tree for tree in found['trees'] if tree['tree'] == 'flat')
    assert flat['predicted_s'] == pytest.approx(3 * 8e6 * 8 / LINK_BPS,
                                                rel=0.1)


def test_flows_may_repeat_and_go_round(tenant, controller):
    """Of one pair they add up; a circle is a matrix as any other."""
    def sent(flows):
        return controller.call(
            'POST', '/v1/groups/a/mapping', {'tm': {'n': 4, 'flows': flows}},
            params={'project_id': tenant.project})

    twice = sent([[0, 1, 5], [0, 1, 7], [1, 2, 5], [2, 0, 5]])
    assert twice['size_bytes'] == 22
    once = sent([[0, 1, 12], [1, 2, 5], [2, 0, 5]])
    assert once['mappings'] == twice['mappings']


def test_commands(tenant, call, tmp_path):
    told = call('a', '--broadcast', '1MB').out
    assert 'Broadcast of 1 MB from row 0' in told
    assert '12 of 12 pairs' in told and 'constant *' in told
    found = json.loads(call('a', '--broadcast', '8MB', '--format', 'json').out)
    order = found['order']
    ring = next(one['order'] for one in found['orders']
                if one['shape'] == 'chain')
    given = call('a', '--broadcast', '8MB', '--format', 'rankfile',
                 '--slots', '0-3')
    lines = given.out.splitlines()
    number = {'binomial': 6, 'binary': 5, 'chain': 3}[found['shape']]
    assert f'coll_tuned_bcast_algorithm {number} ' in given.err
    assert lines == [f'rank {rank}=a-{row} slot=0-3'
                     for rank, row in enumerate(order)]
    assert call('a', '--broadcast', '8MB', '--format', 'nccl', '--names',
                'address').out.splitlines() == [
                    f'10.1.0.{row} slots=1' for row in ring]
    lines = call('a', '--reduce', '8MB', '--format', 'torchrun'
                 ).out.splitlines()
    assert all(f'--node_rank={rank} ' in line
               for rank, line in enumerate(lines)) and len(lines) == 4
    # The order of a mapping may be hinted for the next launch.
    file = tmp_path / 'tm.json'
    file.write_text('[[0, 5, 0, 0], [0, 0, 0, 0], [0, 0, 0, 5], '
                    '[0, 0, 0, 0]]')
    told = call('a', '--tm', str(file), '--matrix',
                'median').out
    assert 'median *' in told and 'at most 0% above' in told
    advice = json.loads(call('a', '--tm', str(file),
                             '--format', 'json').out)['rank_hint']
    hint = json.dumps([{'name': 't', 'rank_hint': advice,
                        'tm': json.loads(file.read_text())}])
    answer = tenant.place(30, 'again', hint)
    assert answer['status'] == 'planned', answer


@pytest.mark.parametrize(('argv', 'words'), [
    (('b', '--broadcast', '8MB'), 'Group b was not found'),
    (('a', '--broadcast', '8MB', '--root', '9'), 'a rank between 0 and 3'),
    (('a', '--broadcast', 'many'), '720MB'),
    (('a', '--tm', '/nowhere'), 'no such file'),
    (('a', '--all-reduce', 'all'), '--all-reduce'),
    (('a', '--format', 'rankfile', '--slots', '0\n1'),
     '--slots'),
    (('a', '--names', 'address'), None)])
def test_errors_are_one_line(call, argv, words):
    if words is None:
        call(*argv)
        return
    assert words in call(*argv, code=1).err
