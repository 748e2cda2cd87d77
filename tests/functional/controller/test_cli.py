# SPDX-License-Identifier: Apache-2.0

"""The operator's command line against a real controller."""

import json
import re
import subprocess
import sys

import pytest

from tests import forks
from tests.functional.controller import test_policies as policies
from virtco.osc import shell


@pytest.fixture
def run(shared, capsys):
    """Runs ``virtco`` in this process; (exit code, out, err)."""
    def call(*argv, url=shared.url):
        code = shell.main(['--controller-url', url, *argv])
        return code, *capsys.readouterr()
    return call


@pytest.fixture
def show(run):
    """The JSON a command prints."""
    def call(*argv):
        code, out, err = run(*argv, '-f', 'json')
        assert code == 0, err
        return json.loads(out)
    return call


def test_coflows_in_tables_and_json(run, show, tenant):
    hosts, edges = policies.one_pair(tenant)
    policies.settled(lambda: tenant.coflow()['state'] == 'active')
    tenant.place(9, 'broken', 'x', status='ignored')
    code, out, _err = run('coflow', 'list', '--project', tenant.project)
    assert code == 0
    assert '10 MB' in out
    assert 'ignored' in out
    assert max(map(len, out.splitlines())) <= 80
    _code, out, _err = run('coflow', 'list', '--project', tenant.project,
                           '-c', 'size_bytes', '-c', 'Name')
    assert [word for word in out.splitlines()[1].split() if word != '|'] == [
        'Name', 'Size']
    assert [entry['name'] for entry in show(
        'coflow', 'list', '--project', tenant.project, '--state', 'ignored'
    )] == ['broken']
    entries = show('coflow', 'list', '--project', tenant.project, '--long')
    assert [(e['name'], e['state']) for e in entries] == [
        ('a', 'active'), ('broken', 'ignored')]
    assert entries[0]['size_bytes'] == 1e7
    assert 'JSON text' in entries[1]['warnings']
    shown = show('coflow', 'show', entries[0]['id'])
    assert (shown['iteration'], shown['iterations']) == (1, 1)
    assert [m['host'] for m in shown['members']] == [
        tenant.host(h) for h in hosts]
    assert show('coflow', 'set', entries[0]['id'], '--weight',
                '2')['weight'] == 2
    assert show('coflow', 'set', entries[0]['id'], '--done')['state'] == 'done'
    mine = ('coflow', 'list', '--project', tenant.project)
    assert show(*mine, '--state', 'active') == []
    for n in (0, 1):
        tenant.notify('instance.delete.end', n)
    assert [e['state'] for e in show(*mine)] == ['ignored']
    assert [e['state'] for e in show(*mine, '--all')] == ['retired',
                                                          'ignored']


def test_registering_from_a_file(run, show, tenant, tmp_path):
    path = tmp_path / 'tm.json'
    path.write_text('{"pattern": "ring", "n": 3, "flow_size": "1MB"}')
    found, = show('coflow', 'create', 'mine', f'@{path}', '--project',
                  tenant.project)
    assert (found['state'], found['n_vms']) == ('registered', 3)
    assert run('coflow', 'delete', found['id'])[0] == 0
    code, _out, err = run('coflow', 'create', 'mine', '[[0', '--project',
                          tenant.project)
    assert code == 1
    assert 'virtco:tm' in err
    code, _out, err = run('coflow', 'create', 'mine', '@/nowhere')
    assert code == 1
    assert '/nowhere' in err


def test_hosts_and_their_edges(run, show, tenant):
    hosts, edges = policies.one_pair(tenant)
    sender = edges[hosts[0]]
    policies.settled(lambda: policies.classes(sender))
    sender.count(tenant.coflow()['id'], 1e6)
    sender.report()
    found = {h['host']: h for h in show('host', 'list')}[sender.name]
    assert found['egress_bps'] == 1e8
    assert found['rate_source'] == 'link'
    assert found['n_coflows'] == 1
    (entry,) = show('host', 'list', '--classes', sender.name)
    assert entry['rate_bps'] == pytest.approx(98e6)
    assert entry['observed_bps'] > 0
    code, out, _err = run('host', 'list')
    assert '100 Mbit/s' in out
    assert max(map(len, out.splitlines())) <= 80
    assert show('host', 'show', sender.name)['vms'] == [tenant.instance(0)]


def test_a_host_is_drained(make, capsys):
    controller = make()
    tenant = controller.tenant()

    def run(*argv):
        code = shell.main(['--controller-url', controller.url, *argv])
        out, err = capsys.readouterr()
        return code, out, err

    def drain_of(host):
        return controller.call('GET', f'/v1/hosts/{tenant.host(host)}')[
            'drain']

    one = '[[0, "1GB"], [0, 0]]'
    hosts = tenant.launch(2, matrix=one, n_hosts=2, slots=1)
    tenant.edges(hosts)
    policies.settled(lambda: tenant.coflow()['state'] == 'active')
    tenant.place(8, 'half', one, n_hosts=2, slots=2, num_instances=2)
    empty = tenant.host(hosts[0])
    code, out, err = run('host', 'set', empty, '--drain', '--reason',
                         'new disk', '-f', 'json')
    assert code == 0, err
    assert json.loads(out)['drain'] == 'draining'
    # What is planned stays planned, what is new goes elsewhere.
    planned = {m['planned_host'] for m in controller.call(
        'GET', f'/v1/coflows/{tenant.coflow("half")["id"]}')['members']}
    answer = tenant.place(9, 'half', one, n_hosts=2, slots=2,
                          launch_index=1, num_instances=2)
    assert tenant.host(answer['host']) in planned
    answer = tenant.place(20, 'b', one, n_hosts=2, slots=9)
    assert answer['host'] == hosts[1]
    assert hosts[0] not in [entry['host'] for entry in answer['hosts']]
    answer = tenant.place(30, 'c', one, status='neutral', hosts={hosts[0]: 9})
    assert 'every candidate host is drained' in answer['why']
    for n in (0, 1, 8, 9):
        tenant.notify('instance.delete.end', n)
    policies.settled(lambda: drain_of(hosts[0]) == 'drained')
    code, out, _err = run('host', 'list', '-c', 'host', '-c', 'drain')
    assert (code, 'drained' in out) == (0, True)
    # It outlives a restart.
    controller.stop()
    controller.start()
    assert drain_of(hosts[0]) == 'drained'
    assert run('host', 'set', empty, '--undrain')[0] == 0
    assert drain_of(hosts[0]) is None
    answer = tenant.place(40, 'd', one, hosts={hosts[0]: 9})
    assert answer['host'] == hosts[0]
    code, _out, err = run('host', 'set', empty, '--undrain')
    assert (code, 'was not found' in err) == (1, True)
    assert run('host', 'set', 'nowhere', '--drain')[0] == 1

    for _ in range(2):
        code, _out, err = run('settings', 'set', '--order', 'sebf')
        assert code == 0, err
    code, out, err = run('event', 'list', '--changes', '-f', 'json')
    assert code == 0, err
    assert [(c['what'], c['before'], c['after'])
            for c in json.loads(out)] == [
        ('setting order', 'mrtf', 'sebf'),
        (f'host {empty}', 'drained: new disk', 'in use'),
        (f'host {empty}', 'in use', 'drained: new disk')]
    assert 'somebody at 127.0.0.1' in out


def test_moves_that_would_pay(make, capsys):
    controller = make()
    tenant = controller.tenant()

    def run(*argv):
        code = shell.main(['--controller-url', controller.url, *argv])
        return code, *capsys.readouterr()

    tenant.launch(2, matrix='[[0, "1TB"], [0, 0]]', n_hosts=2, slots=1)
    tenant.place(9, 'broken', 'x', status='ignored', n_hosts=2, slots=6)
    code, out, err = run('advice', 'list', '--now', '-f', 'json')
    assert code == 0, err
    (move,) = json.loads(out)
    assert {move['host'], move['to_host']} == {
        tenant.host('h0'), tenant.host('h1')}
    assert move['saved_s'] > move['cost_s'] > 0
    assert isinstance(move['row'], int)
    assert run('advice', 'list')[0] == 0
    assert controller.call('GET', '/v1/advice') == {'moves': []}


def test_doctor_finds_what_is_broken(run, tenant):
    hosts, edges = policies.one_pair(tenant)
    policies.settled(lambda: policies.classes(edges[hosts[0]]))
    # Hosts of other tests may be silent by now: what is broken exits with 1.
    code, out, err = run('doctor', tenant.coflow()['id'], '-f', 'json')
    found = json.loads(out)
    assert code == any(row['state'] == 'error' for row in found), err
    assert found[0] == {'link': 'controller', 'state': 'ok', 'action': '',
                        'code': '', 'finding': 'every part works'}
    assert any(tenant.host(hosts[0]) in row['finding'] for row in found)
    code, out, _err = run('doctor', '-f', 'json', url='http://127.0.0.1:1')
    assert code == 1
    only, = json.loads(out)
    assert only['code'] == 'VC-050'
    assert 'connection refused' in only['finding']


def test_a_placement_is_explained(run, show, tenant):
    host = tenant.place(0, num_instances=4)['host']
    code, out, err = run('placement', 'explain', tenant.instance(0))
    assert code == 0
    assert f'planned on {tenant.host(host)}' in err
    assert 'Group a, row 0: CCT ' in err
    ranks = show('placement', 'explain', tenant.instance(0))
    assert [r['rank'] for r in ranks] == [0, 1, 2, 3]
    assert all(r['why'] for r in ranks)
    assert ranks[0]['host'] == tenant.host(host)


def test_what_decided_is_told(run, show, tenant):
    # The receiver has no room beside the sender.
    one = '[[0, "1GB"], [0, 0]]'
    for n in range(2):
        tenant.place(n, matrix=one, n_hosts=2, slots=1, num_instances=2)
    code, _out, err = run('placement', 'explain', tenant.instance(0))
    assert code == 0
    assert 'Time of the plan: ' in err
    assert '- with one slot more on ' in err, err
    assert '- with twice the rate at ' in err
    reasons = show('placement', 'explain', tenant.instance(1), '--reasons',
                   '--budget', '5')
    room = next(r for r in reasons if r['kind'] == 'room')
    assert (room['cct_s'], room['instead_of_s']) == (0, pytest.approx(
        8.54, rel=0.01))
    found = tenant.call('GET', f'/v1/placements/{tenant.instance(1)}'
                        '/explanation')
    assert found['is_complete']
    assert set(found['phases_s']) >= {'read', 'solve', 'rank', 'commit'}
    tenant.call('GET', f'/v1/placements/{tenant.instance(1)}/explanation'
                '?budget_s=never', status=400)
    tenant.place(5, 'broken', 'x', status='ignored')
    code, _out, err = run('placement', 'explain', tenant.instance(5))
    assert (code, 'ignored' in err) == (0, True)


def test_settings_rates_and_events(run, show, tenant):
    before = show('settings', 'show')
    try:
        assert show('settings', 'set', '--order', 'sebf')['order'] == 'sebf'
        code, _out, err = run('settings', 'set', '--order', 'mine')
        assert code == 1
        assert 'weighted-fair' in err
        assert run('settings', 'set')[0] == 1
    finally:
        run('settings', 'set', '--order', before['order'])
    tenant.controller.streams.measure(tenant.host('a'), tenant.host('b'),
                                      5e7)
    rates = [r for r in show('rate', 'list') if r['src'] == tenant.host('a')]
    assert [(r['dst'], r['rate_bps']) for r in rates] == [
        (tenant.host('b'), 5e7)]
    tenant.place(0, 'bad', 'x', status='ignored')
    events = show('event', 'list', '--project', tenant.project)
    assert [e['kind'] for e in events] == ['hint_ignored']


def test_a_plan_for_the_hosts_of_the_cloud(make, capsys, tmp_path):
    controller = make()
    tenant = controller.tenant()

    def plan(*argv):
        code = shell.main(['--controller-url', controller.url, 'plan',
                           'create', *argv])
        return code, *capsys.readouterr()

    matrix = tmp_path / 'tm.json'
    matrix.write_text('[[0, "3GB"], [0, 0]]')
    mine = ('--tm', f'@{matrix}', '--flavor', 'vcpus=1,memory_mb=512')
    code, _out, err = plan(*mine)
    assert (code, 'Nova has not asked yet' in err) == (1, True), err
    # What runs sends from one host to the other.
    tenant.launch(4, n_hosts=2, slots=2)
    policies.settled(lambda: tenant.coflow()['state'] == 'active')
    tenant.place(9, 'broken', 'x', status='ignored', n_hosts=2, slots=6)
    code, out, err = plan(*mine, '-f', 'json')
    assert code == 0, err
    placed = {row['host'] for row in json.loads(out)}
    assert placed <= {tenant.host(f'h{i}') for i in range(2)}
    assert 'CCT ' in err and 'on 2 hosts' in err, err
    assert (len(placed), 'It would delay nobody' in err) == (1, True)
    code, out, err = plan('--tm', '[[0, "1MB"], [0, 0]]', '--flavor',
                          'vcpus=4,memory_mb=512', '--delays', '-f', 'json')
    assert code == 0, err
    late = json.loads(out)
    assert [one['name'] for one in late] == ['a']
    assert 0 < late[0]['before_s'] < late[0]['after_s']
    assert 'It would delay a of project ' in err
    # Alone in the cloud both would be on one host.
    code, out, err = plan('--tm', '[[0, "1GB"], [0, 0]]', '--flavor',
                          'vcpus=4,memory_mb=512', '--patience', '0.5',
                          '-f', 'json')
    assert (code, len({row['host'] for row in json.loads(out)})) == (0, 2)
    assert re.search(
        r'CCT .* s now and 0 s without other groups: waits .* ms at most; .*'
        r'Waited .*s: CCT .* s instead of .* s, -0\..* s saved',
        ' '.join(err.split())), err
    code, _out, err = plan(*mine, '--patience', '-1')
    assert (code, '0 to 3600 seconds' in err) == (1, True), err
    code, _out, err = plan(*mine, '--within', 'rack:required')
    assert (code, 'no host is below a rack' in err) == (1, True), err
    code, _out, err = plan(*mine, '--within', 'a rack')
    assert (code, 'a level such as rack' in err) == (1, True), err
    assert plan('--tm', '[[0]]')[0] == 1
    assert [c['name'] for c in tenant.coflows()] == ['a']


def test_a_plan_from_a_file(run, show, tmp_path):
    path = tmp_path / 'plan.json'
    flavor = {'vcpus': 1, 'memory_mb': 1, 'disk_gb': 1}
    path.write_text(json.dumps({
        'groups': [{'name': 'g', 'tm': [[0, 5], [0, 0]], 'flavor': flavor}],
        'hosts': [{'host': 'x', 'free': {
            'vcpus': 2, 'memory_mb': 9, 'disk_gb': 9}}]}))
    assert show('plan', 'create', str(path)) == [
        {'group': 'g', 'row': 0, 'host': 'x'},
        {'group': 'g', 'row': 1, 'host': 'x'}]


@pytest.mark.parametrize(('argv', 'text'), [
    (('coflow', 'show', 'none'), "no coflow 'none'"),
    (('host', 'show', 'none'), 'Host none was not found'),
    (('placement', 'explain', 'none'), "no VM of a group called 'none'"),
    (('--controller-url', 'http://127.0.0.1:1', 'host', 'list'),
     'did not answer'),
])
def test_errors_are_one_line_and_exit_code_1(shared, argv, text):
    done = forks.run([sys.executable, '-m', 'virtco.osc.shell', *argv],
                     env={'VIRTCO_URL': shared.url})
    assert (done.returncode, done.stdout) == (1, '')
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_projects_have_classes(run, show, tenant):
    tenant.place(0)
    found = show('project', 'set', tenant.project, '--priority-class', '-3',
                 '--weight', '2')
    assert found == {'project_id': tenant.project, 'priority_class': -3,
                     'weight': 2.0, 'debt_bytes': 0.0}
    assert found in show('project', 'list')
    assert show('project', 'set', tenant.project, '--forgive') == found
    assert show('coflow', 'show', tenant.coflow()['id'])[
        'priority_class'] == -3
    code, _out, err = run('project', 'set', tenant.project)
    assert code == 1
    assert 'Give --priority-class, --weight or --forgive.' in err


def test_a_name_that_is_not_unique(run, tenant):
    for n, name in enumerate(['x', 'y']):
        tenant.place(n, name, '[{"name": "same-%d", "tm": [[0]]}]'
                     % tenant.number)
    code, _out, err = run('coflow', 'show', f'same-{tenant.number}')
    assert code == 1
    assert '2 coflows are called' in err


def test_openstack_has_the_same_commands(shared):
    """As a plug-in of the real openstack client."""
    done = subprocess.run(
        [sys.executable, '-m', 'openstackclient.shell', '--os-auth-type',
         'none', '--os-endpoint', shared.url, 'coflow', 'settings', 'show',
         '-f', 'json'], capture_output=True, text=True,
        env={'VIRTCO_URL': shared.url, 'PATH': ''})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)['order'] == 'mrtf'
