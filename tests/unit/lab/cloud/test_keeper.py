# SPDX-License-Identifier: Apache-2.0

"""What the cloud's keeper starts and in which order, without starting it."""

import os
import pathlib
import re
import signal
import stat
import types

import pytest

from virtco_lab.cloud import configs
from virtco_lab.cloud import keeper
from virtco_lab.cloud import layout as layouts
from virtco_lab.emulation import process


class Process:
    """Of a service: the test says when it has ended."""

    returncode = None

    def poll(self):
        return self.returncode


class Service:
    """Notes its life in the cloud's story."""

    def __init__(self, story, name, *arguments, **options):
        self.story, self.name = story, name
        self.arguments, self.options = arguments, options
        self.process = None
        self.url = f'{name}://'

    def launch(self):
        self.process = Process()
        self.story.append(f'launch {self.name}')

    def wait_up(self):
        self.story.append(f'await {self.name}')

    def kill(self):
        self.story.append(f'kill {self.name}')

    def create_database(self, name):
        self.story.append(f'database {name}')
        return f'{self.url}{name}'


class Fabric:
    control = 'virtco-emu-abc123-control'
    control_address = '172.30.0.1'

    def __init__(self, story, run):
        assert run == 'abc123'
        self.story = story
        self.hypervisors = {
            f'compute{number}': types.SimpleNamespace(
                host=f'compute{number}',
                mgmt_address=f'172.30.0.{10 + number}')
            for number in (1, 2)}

    def build(self, bed):
        self.story.append(f'build {list(bed.rates_bps.items())}')


@pytest.fixture(name='cloud')
def _cloud(monkeypatch, tmp_path):
    """A keeper of two hypervisors whose parts only note what they are."""
    home = tmp_path / 'cloud'
    made = types.SimpleNamespace(story=[], said=[], services={}, home=home,
                                 ups=[2], commands=[], chains=[])
    story = made.story

    def service(name, *arguments, **options):
        made.services[name] = Service(story, name, *arguments, **options)
        return made.services[name]

    def named(kind):
        return lambda _layout, name, *args, **options: service(
            name, kind, *args, **options)

    layout = layouts.Layout
    monkeypatch.setattr(keeper.layouts, 'Layout',
                        lambda *args, **fields: layout(
                            *args, **{'home': home, **fields}))
    monkeypatch.setattr(keeper.namespaces, 'new_run', lambda: 'abc123')
    monkeypatch.setattr(keeper.namespaces, 'enter',
                        lambda name: story.append(f'enter {name}'))
    monkeypatch.setattr(keeper.netns, 'setns',
                        lambda file: story.append(
                            f'back to {os.readlink(f"/proc/self/fd/{file}")}'))
    monkeypatch.setattr(keeper.janitor, 'Janitor', lambda run: (
        types.SimpleNamespace(dismiss=lambda: story.append('dismiss'))))
    monkeypatch.setattr(keeper.fabrics, 'Fabric',
                        lambda run: Fabric(story, run))
    monkeypatch.setattr(keeper.tls, 'make', lambda directory, address: (
        story.append(f'certify {directory} for {address}')))
    for name in ('MariaDB', 'RabbitMQ'):
        monkeypatch.setattr(keeper.services, name, lambda home, name=name: (
            service(name.lower(), home)))
    for name in ('Http', 'Daemon', 'wsgi'):
        monkeypatch.setattr(keeper.daemons, name, named(name))
    for name in ('add_accounts', 'add_offers'):
        monkeypatch.setattr(keeper.accounts, name,
                            lambda layout, name=name: story.append(name))
    monkeypatch.setattr(keeper.accounts, 'n_computes_up', lambda layout: (
        made.ups.pop(0) if len(made.ups) > 1 else made.ups[0]))
    monkeypatch.setattr(keeper.ovn, 'central', lambda _: [service('northd')])
    monkeypatch.setattr(keeper.ovn, 'switch', lambda _, host: [
        service(f'switch-{host}')])
    monkeypatch.setattr(keeper.ovn, 'connect', lambda _, hypervisor: (
        story.append(f'connect {hypervisor.host}')))
    monkeypatch.setattr(keeper.ovn, 'controller', lambda _, host: (
        service(f'chassis-{host}')))
    made.real_all = keeper._all
    monkeypatch.setattr(keeper, '_all', lambda chains, home: (
        made.chains.extend(chains)))
    monkeypatch.setattr(
        keeper.subprocess, 'run', lambda argv, capture_output: (
            capture_output and made.commands.append(argv)))
    made.keeper = keeper.Keeper(2, 3, 5e7, made.said.append)
    return made


def test_a_layout_tells_of_this_keeper(cloud):
    layout = cloud.keeper.layout
    assert (layout.run, layout.address, layout.computes, layout.slots,
            layout.rate_bps, layout.pid) == (
                'abc123', '172.30.0.1', ('compute1', 'compute2'), 3, 5e7,
                os.getpid())


def test_parts_are_started_in_an_order_in_which_they_find_each_other(cloud):
    (cloud.home / 'left').mkdir(parents=True)
    cloud.keeper.up()
    assert not (cloud.home / 'left').exists()
    assert stat.S_IMODE(cloud.home.stat().st_mode) == 0o755
    assert layouts.load(cloud.home) == cloud.keeper.layout
    both = ['compute1', 'compute2']
    assert cloud.story == [
        f'build {[(host, 5e7) for host in both]}',
        'enter virtco-emu-abc123-control',
        f'certify {cloud.home}/tls for 172.30.0.1',
        *(f'{verb} {name}' for verb in ('launch', 'await')
          for name in ('mariadb', 'rabbitmq')),
        *(f'database {name}' for name in (
            'keystone', 'placement', 'glance', 'neutron', 'nova_api',
            'nova_cell0', 'nova', 'virtco')),
        'launch keystone', 'await keystone', 'add_accounts',
        *(f'{verb} {name}' for verb in ('launch', 'await')
          for name in ('placement', 'glance', 'neutron', 'nova',
                       'nova-conductor', 'nova-scheduler')),
        *(f'{verb} controller{number}' for verb in ('launch', 'await')
          for number in range(2)),
        'launch haproxy', 'await haproxy',
        *(f'{verb} {name}-{host}' for verb in ('launch', 'await')
          for host in both for name in ('nova', 'edge')),
        'add_offers']
    assert [re.fullmatch(r' +0 s  (.*)', line)[1] for line in cloud.said] == [
        'network', 'databases and message bus', 'schemas', 'keystone',
        'placement, glance, neutron, nova', 'controllers behind haproxy',
        'hypervisors', 'image, flavor, network']


def test_a_chassis_is_there_before_its_edge_module(cloud):
    one = keeper.Keeper(2, 3, 5e7, cloud.said.append, 'ovn')
    one.up()
    assert layouts.load(cloud.home).backend == 'ovn'
    story = [line for line in cloud.story if re.match(
        '(launch |await )?(north|neutron-|switch|connect|chassis|edge)',
        line)]
    assert story == [
        'launch northd', 'await northd',
        'launch neutron-ovn-maintenance-worker',
        'await neutron-ovn-maintenance-worker',
        *(line for host in ('compute1', 'compute2') for line in (
            f'launch switch-{host}', f'await switch-{host}',
            f'connect {host}', f'launch chassis-{host}',
            f'await chassis-{host}')),
        *(f'{verb} edge-compute{number}' for verb in ('launch', 'await')
          for number in (1, 2))]
    kind, argv = cloud.services['neutron-ovn-maintenance-worker'].arguments
    assert argv == [process.script('neutron-ovn-maintenance-worker'),
                    '--config-file', f'{cloud.home}/etc/neutron/neutron.conf']


def test_parts_are_configured_where_they_look(cloud):
    cloud.keeper.up()
    layout = cloud.keeper.layout
    for name, groups in (
            ('keystone', configs.keystone(layout, 'mariadb://keystone')),
            ('nova', configs.nova(layout, 'mariadb://nova',
                                  'mariadb://nova_api', 'rabbitmq://')),
            ('placement', configs.placement(layout, 'mariadb://placement')),
            ('glance', configs.glance(layout, 'mariadb://glance')),
            ('neutron', configs.neutron(layout, 'mariadb://neutron',
                                        'rabbitmq://')),
            ('controller1', configs.controller(layout, 1, 'mariadb://virtco',
                                               'rabbitmq://')),
            ('edge-compute2', configs.edge(layout, 'compute2',
                                           '172.30.0.12'))):
        path = cloud.home / 'etc' / name / f'{name}.conf'
        assert path.read_text() == process.ini(groups)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755
        assert (cloud.home / name).is_dir()
    own = (cloud.home / 'etc' / 'nova-compute1' / 'nova-compute1.conf'
           ).read_text()
    assert f'host = compute1\nstate_path = {cloud.home}/nova-compute1' in own
    # Glance looks for files of these names.
    etc = cloud.home / 'etc' / 'glance'
    assert (etc / 'glance-api.conf').read_text() == (
        etc / 'glance.conf').read_text()
    assert os.readlink(etc / 'glance-api-paste.ini') == configs.paste(
        'glance', 'glance-api-paste.ini')
    assert (cloud.home / 'haproxy.cfg').read_text() == configs.haproxy(
        layout, 2)


def test_each_process_is_told_who_it_is(cloud):
    cloud.keeper.up()
    kind, argv, *rest = cloud.services['controller1'].arguments
    assert (kind, argv[1:], rest) == (
        'Http', ['--config-file',
                 f'{cloud.home}/etc/controller1/controller1.conf'],
        [10791, '/health'])
    kind, argv = cloud.services['nova-compute2'].arguments
    assert argv[1:3] == ['-m', 'virtco_lab.cloud.compute']
    assert argv[-1] == f'{cloud.home}/etc/nova-compute2/nova-compute2.conf'
    assert cloud.services['nova-compute2'].options == {
        'environment': {'VIRTCO_CLOUD_HOST': 'compute2'}}
    kind, argv = cloud.services['edge-compute2'].arguments
    assert argv[:2] == ['nsenter',
                        '--net=/run/netns/virtco-emu-abc123-compute2']
    nova = cloud.services['nova'].arguments[2]['OS_NOVA_CONFIG_FILES']
    assert nova.split(';') == [configs.paste('nova'),
                               f'{cloud.home}/etc/nova/nova.conf']


def test_every_database_gets_its_schema_by_its_own_program(cloud):
    cloud.keeper.up()
    chains = [[(pathlib.Path(argv[0]).name, argv[3:]) for argv in chain]
              for chain in cloud.chains]
    assert [[name for name, _ in chain] for chain in chains] == [
        4 * ['keystone-manage'],
        ['placement-manage', 'glance-manage', 'virtco-manage'],
        ['neutron-db-manage'], 4 * ['nova-manage']]
    bootstrap = chains[0][3][1]
    for interface in ('public', 'internal', 'admin'):
        at = bootstrap.index(f'--bootstrap-{interface}-url')
        assert bootstrap[at + 1] == 'http://172.30.0.1:5000/v3'
    assert chains[3][3][1][-5:] == [
        'cell1', '--database_connection', 'mariadb://nova',
        '--transport-url', 'rabbitmq://']


def test_hypervisors_are_waited_for_while_all_services_run(
        cloud, monkeypatch):
    monkeypatch.setattr(cloud.keeper, 'check',
                        lambda: cloud.story.append('check'))
    cloud.ups = [0, 1, 2]
    cloud.keeper.up()
    assert cloud.story.count('check') == 2
    assert len(cloud.commands) == 2
    assert cloud.commands[0][3:] == ['cell_v2', 'discover_hosts']


def test_hypervisors_that_do_not_come_up_end_it(cloud, monkeypatch):
    monkeypatch.setattr(keeper, '_COMPUTES_S', -1.0)
    cloud.ups = [1]
    with pytest.raises(keeper.StepFailed,
                       match='1 of 2 hypervisors up after -1 s'):
        cloud.keeper.up()
    assert 'add_offers' not in cloud.story


def test_a_service_that_ended_by_itself_is_waited_for_and_so_told(cloud):
    cloud.keeper.up()
    cloud.story.clear()
    cloud.keeper.check()
    assert not cloud.story
    cloud.services['rabbitmq'].process = None
    cloud.services['nova'].process.returncode = 1
    cloud.keeper.check()
    assert cloud.story == ['await nova']


def test_down_ends_the_last_first_and_leaves_nothing(cloud):
    cloud.keeper.up()
    started = [line.partition(' ')[2] for line in cloud.story
               if line.startswith('launch')]
    cloud.story.clear()
    cloud.keeper.down()
    network = os.readlink('/proc/self/ns/net')
    assert cloud.story == [*(f'kill {name}' for name in reversed(started)),
                           f'back to {network}', 'dismiss']
    assert not cloud.home.exists()
    cloud.keeper.down()


# Commands side by side.

def test_chains_run_side_by_side_each_in_order(cloud, tmp_path):
    out = tmp_path / 'out'
    fifo = tmp_path / 'fifo'
    os.mkfifo(fifo)
    # The first waits for the second, so that both must run.
    cloud.real_all([[['cat', str(fifo)], ['touch', f'{out} 1']],
                    [['cp', '/dev/null', str(fifo)]]], tmp_path)
    assert (tmp_path / 'out 1').exists()
    assert "+ cat" in (tmp_path / 'schema-0.log').read_text()


def test_a_chain_stops_where_it_fails_and_says_so(cloud, tmp_path):
    with pytest.raises(keeper.StepFailed) as caught:
        cloud.real_all([[['true']], [
            ['seq', '30'], ['sh', '-c', 'exit 7'],
            ['touch', str(tmp_path / 'never')]]], tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[0] == 'status 7'
    assert len(lines) == 21 and lines[-1] == "+ sh -c 'exit 7'"
    assert lines[1] == '12'
    assert not (tmp_path / 'never').exists()


# The process itself.

@pytest.fixture(name='kept')
def _kept(monkeypatch, tmp_path):
    """Calls ``keep``; the keeper is up or fails, then a signal comes."""
    made = types.SimpleNamespace(story=[], error=None, signals={},
                                 progress=tmp_path / 'progress')

    class Keeper:
        def __init__(self, computes, slots, rate_bps, say, backend):
            assert (computes, slots, rate_bps, backend) == (2, 3, 5e7, 'ovn')
            self.say = say

        def up(self):
            self.say('    1 s  network')
            # Each line can be read at once.
            made.story.append(made.progress.read_text())
            if made.error:
                raise made.error

        def down(self):
            made.story.append('down')
            made.ignored = dict(made.signals)

    def pause():
        made.story.append(made.progress.read_text())
        if made.story.count(made.story[-1]) == 2:
            made.signals[signal.SIGTERM](signal.SIGTERM, None)

    monkeypatch.setattr(keeper, 'Keeper', Keeper)
    monkeypatch.setattr(keeper.signal, 'signal', made.signals.__setitem__)
    monkeypatch.setattr(keeper.signal, 'pause', pause)
    made.run = lambda: keeper.keep(2, 3, 5e7, made.progress, 'ovn')
    return made


def test_a_keeper_stays_until_a_signal_comes(kept):
    with pytest.raises(SystemExit) as caught:
        kept.run()
    assert caught.value.code == 0
    line = '    1 s  network\n'
    assert kept.story == [line, *2 * [f'{line}ready\n'], 'down']
    assert kept.progress.read_text() == f'{line}ready\ndown\n'
    # No second signal keeps it from taking down what there is.
    assert kept.ignored == dict.fromkeys((signal.SIGTERM, signal.SIGINT),
                                         signal.SIG_IGN)


def test_a_keeper_that_fails_says_why_and_takes_down(kept):
    kept.error = keeper.StepFailed(what='no disk')
    assert kept.run() == 1
    assert kept.progress.read_text() == (
        '    1 s  network\nfailed: no disk\ndown\n')
