# SPDX-License-Identifier: Apache-2.0

"""The cloud's demo, with a client and transfers that the test makes up."""

import io
import json
import types

import pytest
from rich import console

from tests.unit.lab.cloud import made
from virtco import exception
from virtco_lab.cloud import accounts
from virtco_lab.cloud import demo
from virtco_lab.emulation import traffic

GROUPS = (
    demo.Group('pair', 2, '{"pattern": "broadcast", "receivers": 1, '
                          '"size": "2MB"}'),
    demo.Group('trio', 3, '{"pattern": "broadcast", "receivers": 2, '
                          '"size": "1MB"}'))


class Cloud:
    """Servers and coflows; notes what the client is told."""

    def __init__(self, layout):
        self.layout = layout
        self.ran, self.waits_s = [], []
        self.is_there = []
        #: States of the coflows at each question, of all or of each; the
        #: last one stays.
        self.states = ['done']
        self.servers = []
        self.jobs = []

    def run(self, argv, **options):
        assert argv[:2] == [
            'nsenter', '--net=/run/netns/virtco-emu-abc123-control']
        assert options['env']['OS_USERNAME'] == 'demo'
        words = argv[3:]
        self.ran.append(words)
        if words[:2] == ['server', 'list']:
            assert words[2:] == ['-f', 'json']
            # One is the tenant's own.
            out = [{'ID': one, 'Name': f'{one}-1'}
                   for one in (*self.is_there, 'pairs')]
        elif words[:2] == ['coflow', 'list']:
            state, _, other = (self.states.pop(0) if len(self.states) > 1
                               else self.states[0]).partition('/')
            out = [
                {'name': 'pair', 'state': state, 'arrival': 2.0,
                 'cct_s': 1.5, 'measured_cct_s': 1.75},
                # An older one of that name, and one of somebody else.
                {'name': 'pair', 'state': 'absent', 'arrival': 1.0,
                 'cct_s': 9.0, 'measured_cct_s': 9.0},
                {'name': 'trio', 'state': other or state, 'arrival': 0.5,
                 'cct_s': None, 'measured_cct_s': None},
                {'name': 'trio', 'state': 'absent', 'arrival': None,
                 'cct_s': 9.0, 'measured_cct_s': 9.0},
                {'name': 'other', 'state': 'pending', 'arrival': 7.0}]
        elif words[:2] == ['server', 'create']:
            self.is_there.append(words[-1])
            out = {}
        else:
            out = {}
        return types.SimpleNamespace(returncode=0, stderr='',
                                     stdout=json.dumps(out))

    def add(self, name, host, ip):
        self.servers.append(types.SimpleNamespace(
            name=name, id=f'{name}-0000-0000', compute_host=host,
            addresses={'lab': [{'addr': ip}]}))


@pytest.fixture(name='cloud')
def _cloud(tmp_path, monkeypatch):
    found = Cloud(made.layout(tmp_path))
    # As Nova lists them: in any order.
    for name, host, ip in (
            ('trio-3', 'h1', '10.0.0.5'), ('pair-2', 'h1', '10.0.0.2'),
            ('trio-1', 'h0', '10.0.0.3'), ('pair-1', 'h1', '10.0.0.1'),
            ('trio-2', 'h2', '10.0.0.4'), ('pairs-1', 'h0', '10.0.0.9')):
        found.add(name, host, ip)
    asked = []

    class Transfer:
        def __init__(self, job, log):
            assert log == tmp_path / 'traffic.log'
            found.jobs.append(job)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def run(self):
            return types.SimpleNamespace(ccts_s=(2.5, 0.25))

    monkeypatch.setattr(demo.subprocess, 'run', found.run)
    monkeypatch.setattr(demo.namespaces, 'call', lambda name, function: (
        asked.append(name), function())[1])
    monkeypatch.setattr(accounts, 'connect', lambda layout: (
        types.SimpleNamespace(compute=types.SimpleNamespace(
            servers=lambda **filters: (
                filters == {'all_projects': True, 'status': 'ACTIVE'}
                and found.servers)))))
    monkeypatch.setattr(demo.transfers, 'Transfer', Transfer)
    monkeypatch.setattr(demo.time, 'sleep', found.waits_s.append)
    return found


@pytest.fixture(name='out')
def _out():
    return console.Console(record=True, width=100, file=io.StringIO(),
                           force_terminal=True, color_system='standard')


def test_groups_are_launched_sent_and_deleted(cloud, out):
    cloud.states = ['planned', 'done/active', 'done/active', 'done', 'done']
    assert demo.show(cloud.layout, out, GROUPS) == 0
    created = [words for words in cloud.ran if words[1:2] == ['create']]
    assert created[1] == [
        'server', 'create', '--image', 'tiny', '--flavor', 'slot1',
        '--network', 'lab', '--min', '3', '--max', '3', '--hint',
        'virtco:coflow=trio', '--hint', f'virtco:tm={GROUPS[1].matrix}',
        '--wait', 'trio']
    assert [words[-1] for words in created] == ['pair', 'trio']
    assert cloud.ran[-1] == ['server', 'delete', '--wait', 'pair', 'trio']
    said = out.export_text()
    assert 'pair: 2 VMs active after 0 s' in said
    # Each waits until it is so: planned is not yet active.
    assert cloud.waits_s == [1.0, 1.0]
    # Numbers look like the words around them.
    assert '  pair-1 on h1\n' in out.file.getvalue()
    lines = [line.strip() for line in said.splitlines()]
    assert lines[2:8] == ['pair-1 on h1', 'pair-2 on h1', 'trio-1 on h0',
                          'trio-2 on h2', 'trio-3 on h1', 'sending 3 MB …']
    # Planned and measured are those of the newest coflow of a name.
    rows = [[cell.strip() for cell in line.split('│')[1:-1]]
            for line in lines if '│' in line]
    assert [row[0] for row in rows] == ['pair', 'trio']
    assert rows[0][1].startswith('1.5') and rows[0][2].startswith('1.75')
    assert rows[0][3].startswith('2.5')
    assert rows[1][1:3] == ['-', '-']
    assert rows[1][3].startswith('250') or rows[1][3].startswith('0.25')


def test_the_flows_of_a_group_are_between_its_vms(cloud, out):
    demo.show(cloud.layout, out, GROUPS)
    job, = cloud.jobs
    assert job.starts_s == (0.0, 0.0)

    def vm(name):
        return cloud.layout.vm_namespace(f'{name}-0000-0000')

    assert set(job.flows) == {
        traffic.FlowSpec(0, vm('pair-1'), vm('pair-2'), '10.0.0.2', 5001,
                         2_000_000, 'h1'),
        traffic.FlowSpec(1, vm('trio-1'), vm('trio-2'), '10.0.0.4', 5002,
                         500_000),
        traffic.FlowSpec(1, vm('trio-1'), vm('trio-3'), '10.0.0.5', 5002,
                         500_000)}
    # Two leave the first of three.
    assert job.window_bytes == traffic.shared_window_bytes(2, 5e7)


@pytest.mark.parametrize(('slots', 'is_fine'), [(2, False), (3, True)])
def test_the_cloud_must_have_the_slots(cloud, out, tmp_path, slots, is_fine):
    """Five VMs on two hypervisors."""
    layout = made.layout(tmp_path, slots=slots)
    if is_fine:
        assert demo.show(layout, out, GROUPS) == 0
        return
    with pytest.raises(demo.TooSmall, match=(
            r'launches 5 VMs; this cloud has 4 slots \(2 hypervisors of 2\)')):
        demo.show(layout, out, GROUPS)
    assert not cloud.ran


def test_a_cloud_of_just_as_many_slots_is_no_smaller(cloud, out, tmp_path):
    assert demo.show(made.layout(tmp_path, computes=('h0',), slots=5), out,
                     GROUPS) == 0


def test_what_does_not_happen_in_time_is_named_and_all_is_deleted(
        cloud, out, monkeypatch):
    monkeypatch.setattr(demo, '_WAIT_S', -1.0)
    cloud.states = ['planned']
    with pytest.raises(demo.NotReached, match=(
            "every coflow active did not happen within -1 s; it is .*"
            "'pair': 'planned'")):
        demo.show(cloud.layout, out, GROUPS)
    assert cloud.ran[-1][:2] == ['server', 'delete']


def test_a_client_that_fails_says_what_it_said(cloud, monkeypatch):
    monkeypatch.setattr(demo.subprocess, 'run', lambda *_, **options: (
        types.SimpleNamespace(returncode=1, stderr=' no quota\n', stdout='')
        if options['text'] and options['capture_output'] else None))
    with pytest.raises(exception.VirtcoException,
                       match='openstack server create: no quota'):
        demo.Client(cloud.layout, 'demo').run('server', 'create', '--image')


def test_a_client_that_never_ends_is_given_up(cloud, monkeypatch):
    def run(argv, timeout, **options):
        raise demo.subprocess.TimeoutExpired(argv, timeout)

    monkeypatch.setattr(demo.subprocess, 'run', run)
    with pytest.raises(demo.NotReached, match=(
            'The end of openstack server create did not happen within 600 s; '
            'it is running')):
        demo.Client(cloud.layout, 'demo').run('server', 'create', '--wait')


def test_nothing_is_deleted_where_nothing_is(cloud):
    demo.Client(cloud.layout, 'demo').delete({'pair', 'trio'})
    assert cloud.ran == [['server', 'list', '-f', 'json']]


def test_the_groups_of_the_demo_have_matrices_of_their_size():
    for group in demo.GROUPS:
        coflow, = demo.hint_matrix.parse_matrix_text(group.matrix, group.name)
        assert coflow.n_vms == group.n_vms
        assert {vm for flow in coflow.flows for vm in (flow.src, flow.dst)
                } == set(range(group.n_vms))
    assert sum(group.n_vms for group in demo.GROUPS) == 10
