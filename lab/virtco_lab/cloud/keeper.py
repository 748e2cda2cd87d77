# SPDX-License-Identifier: Apache-2.0

"""Starts the cloud, keeps it, and takes it down.

One process, the *keeper*, is the parent of all others: when it ends, the cloud
ends. It runs in the control namespace, in which all services listen.
"""

from collections.abc import Callable
from collections.abc import Sequence
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time

from pyroute2 import netns

from virtco import exception
from virtco_lab import services
from virtco_lab.cloud import accounts
from virtco_lab.cloud import configs
from virtco_lab.cloud import daemons
from virtco_lab.cloud import layout as layouts
from virtco_lab.cloud import ovn
from virtco_lab.cloud import tls
from virtco_lab.emulation import bed
from virtco_lab.emulation import fabric as fabrics
from virtco_lab.emulation import janitor
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import process
from virtco_lab.services import service

CONTROLLERS = 2
_COMPUTES_S = 180.0
_DATABASES = ('keystone', 'placement', 'glance', 'neutron', 'nova_api',
              'nova_cell0', 'nova', 'virtco')

Say = Callable[[str], object]


class StepFailed(exception.VirtcoException):
    """A step of the cloud's start failed or took too long."""

    msg_fmt = '%(what)s'


class Keeper:
    """Parent of a cloud's processes, from :meth:`up` to :meth:`down`.

    :param computes: number of hypervisors.
    :param slots: VMs of flavor ``slot1`` per hypervisor.
    :param rate_bps: rate of each uplink.
    :param say: called with a line about each step.
    :param backend: see :class:`layout.Layout`.
    """

    def __init__(self, computes: int, slots: int, rate_bps: float, say: Say,
                 backend: str = 'bridge'):
        hosts = tuple(f'compute{n}' for n in range(1, computes + 1))
        self._say = say
        self._outside = os.open('/proc/self/ns/net', os.O_RDONLY)
        run = namespaces.new_run()
        self._janitor = janitor.Janitor(run)
        self._fabric = fabrics.Fabric(run)
        self._began_s = time.monotonic()
        self.layout = layouts.Layout(
            run, self._fabric.control_address, hosts, slots, rate_bps,
            os.getpid(), backend=backend)
        self._is_ovn = backend == 'ovn'
        self._services: list[service.Service] = []
        self._urls: dict[str, str] = {}
        self._broker = ''

    def up(self) -> None:
        """Start all services in order, and print the steps."""
        for what, step in (
                ('network', self._network),
                ('databases and message bus', self._stores),
                ('schemas', self._schemas),
                ('keystone', self._keystone),
                ('placement, glance, neutron, nova', self._openstack),
                ('controllers behind haproxy', self._controllers),
                ('hypervisors', self._hypervisors),
                ('image, flavor, network',
                 lambda: accounts.add_offers(self.layout))):
            step()
            self._say(f'{time.monotonic() - self._began_s:5.0f} s  {what}')

    def down(self) -> None:
        """End all services and remove files, networks and namespaces."""
        for one in reversed(self._services):
            one.kill()
        shutil.rmtree(self.layout.home, ignore_errors=True)
        # The janitor ends all processes in the namespaces; this one leaves
        # first.
        netns.setns(self._outside)
        self._janitor.dismiss()

    def check(self) -> None:
        """Check that every service still runs.

        :raises ServiceFailed: when a service has ended by itself.
        """
        for one in self._services:
            if one.process is not None and one.process.poll() is not None:
                one.wait_up()

    def _network(self) -> None:
        """Build the network, and enter the control namespace."""
        home = self.layout.home
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(mode=0o755)
        self.layout.save()
        self._fabric.build(bed.Bed(dict.fromkeys(
            self.layout.computes, self.layout.rate_bps)))
        # All that is started from now on is there, too.
        namespaces.enter(self._fabric.control)
        tls.make(home / 'tls', self.layout.address)

    def _stores(self) -> None:
        """Start database and broker, and create the databases."""
        database, broker = services.MariaDB(
            self.layout.home / 'mariadb'), services.RabbitMQ(
            self.layout.home / 'rabbitmq')
        self._launch([database, broker, *(
            ovn.central(self.layout) if self._is_ovn else ())])
        for name in _DATABASES:
            self._urls[name] = database.create_database(name)
        self._broker = broker.url

    def _schemas(self) -> None:
        """Write all configuration files, and create the schemas."""
        write, urls = self._write, self._urls
        layout, broker = self.layout, self._broker
        write('keystone', configs.keystone(layout, urls['keystone']))
        write('placement', configs.placement(layout, urls['placement']))
        write('glance', configs.glance(layout, urls['glance']))
        write('neutron', configs.neutron(layout, urls['neutron'], broker))
        write('nova', configs.nova(layout, urls['nova'], urls['nova_api'],
                                   broker))
        for number in range(CONTROLLERS):
            write(f'controller{number}', configs.controller(
                layout, number, urls['virtco'], broker))
        keystone, nova = self._manage('keystone'), self._manage('nova')
        keys = ['--keystone-user', 'root', '--keystone-group', 'root']
        _all([
            [[*keystone, 'db_sync'], [*keystone, 'fernet_setup', *keys],
             [*keystone, 'credential_setup', *keys],
             [*keystone, 'bootstrap', '--bootstrap-password',
              layouts.PASSWORD, '--bootstrap-region-id', layouts.REGION,
              *(word for interface in ('public', 'internal', 'admin')
                for word in (f'--bootstrap-{interface}-url',
                             f'{layout.url("keystone")}/v3'))]],
            [[*self._manage('placement'), 'db', 'sync'],
             [*self._manage('glance'), 'db_sync'],
             [*self._manage('controller0', 'virtco-manage'), 'db', 'sync']],
            [[process.script('neutron-db-manage'), '--config-file',
              str(self.layout.config('neutron')), 'upgrade', 'heads']],
            [[*nova, 'api_db', 'sync'],
             [*nova, 'cell_v2', 'map_cell0', '--database_connection',
              urls['nova_cell0']],
             [*nova, 'db', 'sync'],
             [*nova, 'cell_v2', 'create_cell', '--name', 'cell1',
              '--database_connection', urls['nova'], '--transport-url',
              broker]],
        ], layout.home)

    def _keystone(self) -> None:
        config = str(self.layout.config('keystone'))
        self._launch([daemons.wsgi(
            self.layout, 'keystone', 'keystone.wsgi.api',
            {'OS_KEYSTONE_CONFIG_FILES': config})])
        accounts.add_accounts(self.layout)

    def _openstack(self) -> None:
        """Start the APIs of OpenStack, Nova's conductor and its scheduler."""
        config = {name: str(self.layout.config(name))
                  for name in ('placement', 'glance', 'neutron', 'nova')}
        # Glance looks for files of these names in its directory.
        directory = pathlib.Path(config['glance']).parent
        (directory / 'glance-api.conf').symlink_to(config['glance'])
        (directory / 'glance-api-paste.ini').symlink_to(
            configs.paste('glance', 'glance-api-paste.ini'))
        self._launch([
            daemons.wsgi(self.layout, 'placement', 'placement.wsgi.api', {
                'OS_PLACEMENT_CONFIG_DIR': str(
                    self.layout.home / 'etc/placement')}),
            daemons.wsgi(self.layout, 'glance', 'glance.wsgi.api', {
                'OS_GLANCE_CONFIG_DIR': str(self.layout.home / 'etc/glance')
            }),
            daemons.wsgi(self.layout, 'neutron', 'neutron.wsgi.api', {
                'OS_NEUTRON_CONFIG_FILES': config['neutron']}),
            daemons.wsgi(self.layout, 'nova', 'nova.wsgi.osapi_compute', {
                # The first file is taken for the paste configuration.
                'OS_NOVA_CONFIG_FILES': ';'.join(
                    (configs.paste('nova'), config['nova']))}),
            *(daemons.Daemon(self.layout, name, [
                process.script(name), '--config-file', config['nova']])
              for name in ('nova-conductor', 'nova-scheduler')),
            *([daemons.Daemon(self.layout, (
                name := 'neutron-ovn-maintenance-worker'), [
                    process.script(name), '--config-file', config['neutron']])]
              if self._is_ovn else ())])

    def _controllers(self) -> None:
        """Start the controllers and the load balancer in front of them."""
        layout = self.layout
        self._launch([daemons.Http(
            layout, f'controller{number}',
            [process.script('virtco-controller'), '--config-file',
             str(self.layout.config(f'controller{number}'))],
            configs.controller_port(number), '/health')
            for number in range(CONTROLLERS)])
        path = layout.home / 'haproxy.cfg'
        path.write_text(configs.haproxy(layout, CONTROLLERS))
        self._launch([daemons.Daemon(
            layout, 'haproxy', ['/usr/sbin/haproxy', '-db', '-f', str(path)])])

    def _hypervisors(self) -> None:
        """Start nova-compute and virtco-edge per host; wait until all are up.
        """
        layout = self.layout
        started: list[service.Service] = []
        for host in layout.computes:
            if self._is_ovn:
                self._launch(ovn.switch(layout, host))
                ovn.connect(layout, self._fabric.hypervisors[host])
                self._launch([ovn.controller(layout, host)])
            # State of its own: the file with its id is there.
            own = self._write(f'nova-{host}', {'DEFAULT': {
                'host': host, 'state_path': layout.home / f'nova-{host}',
                'log_file': layout.home / f'nova-{host}.log'}})
            started.append(daemons.Daemon(
                layout, f'nova-{host}',
                [process.script('python'), '-m', 'virtco_lab.cloud.compute',
                 '--config-file', str(self.layout.config('nova')),
                 '--config-file', str(own)], environment={layouts.HOST: host}))
            address = self._fabric.hypervisors[host].mgmt_address
            config = self._write(f'edge-{host}', configs.edge(
                layout, host, address))
            started.append(daemons.Daemon(
                layout, f'edge-{host}',
                [*namespaces.within(layout.namespace(host)),
                 process.script('virtco-edge'), '--config-file',
                 str(config)]))
        self._launch(started)
        end_s = time.monotonic() + _COMPUTES_S
        while (found := accounts.n_computes_up(layout)) < len(
                layout.computes):
            self.check()
            if time.monotonic() > end_s:
                raise StepFailed(what=f'{found} of {len(layout.computes)} '
                                 f'hypervisors up after {_COMPUTES_S:g} s')
            subprocess.run([*self._manage('nova'), 'cell_v2',
                            'discover_hosts'], capture_output=True)

    def _launch(self, wanted: Sequence[service.Service]) -> None:
        for one in wanted:
            self._services.append(one)
            one.launch()
        for one in wanted:
            one.wait_up()

    def _write(self, name: str, groups: configs.Groups) -> pathlib.Path:
        path = self.layout.config(name)
        path.parent.mkdir(parents=True, mode=0o755)
        (self.layout.home / name).mkdir()
        path.write_text(process.ini(groups))
        return path

    def _manage(self, name: str, command: str | None = None) -> list[str]:
        return [process.script(command or f'{name}-manage'), '--config-file',
                str(self.layout.config(name))]


def _all(chains: Sequence[Sequence[Sequence[str]]],
         home: pathlib.Path) -> None:
    """Run chains of commands side by side.

    :raises StepFailed: with what the first that failed said.
    """
    scripts = []
    for number, chain in enumerate(chains):
        log = home / f'schema-{number}.log'
        text = ' && '.join(map(shlex.join, chain))
        with log.open('wb') as sink:
            scripts.append((log, subprocess.Popen(
                ['setpriv', '--pdeathsig', 'KILL', 'bash', '-xc', text],
                stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
                env={**os.environ, 'PYTHONWARNINGS': 'ignore',
                     'OS_NOVA_DISABLE_EVENTLET_PATCHING': '1'})))
    for log, child in scripts:
        if status := child.wait():
            lines = log.read_text(errors='replace').splitlines()[-20:]
            raise StepFailed(what='\n'.join([f'status {status}', *lines]))


def keep(computes: int, slots: int, rate_bps: float,
         progress: pathlib.Path, backend: str) -> int:
    """Run the keeper until SIGTERM; report its progress in a file."""
    # Both end the present step, and all that was begun is taken down.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    with progress.open('w', buffering=1) as file:
        keeper = Keeper(computes, slots, rate_bps,
                        lambda line: print(line, file=file), backend)
        try:
            keeper.up()
            print('ready', file=file)
            while True:
                signal.pause()
        except Exception as error:
            print(f'failed: {error}', file=file)
            return 1
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            keeper.down()
            print('down', file=file)
