# SPDX-License-Identifier: Apache-2.0

"""Real Nova and a real virtco-controller process."""

from virtco.lab.emulation import nova_cloud

import json
import pathlib
import signal
import socket
import sys

import fixtures
from oslo_config import cfg
import requests

from tests import forks
from tests import patience
from virtco.conf import nova as nova_conf
from virtco import exception
from virtco.follow import nova as follow_nova
from virtco.lab.emulation import nova_client


# Of one read of an answer.
DEADLINE_S = 600


class ControllerProcess(fixtures.Fixture):
    """virtco-controller with a database of its own on loopback.

    :param options: more of its configuration file.
    """

    def __init__(self, options=''):
        super().__init__()
        self.options = options

    def _setUp(self):
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        self.url = f'http://127.0.0.1:{port}'
        self.config = home / 'virtco.conf'
        self.log = home / 'log'
        self.config.write_text(
            f'[api]\nhost = 127.0.0.1\nport = {port}\n'
            f'[database]\nconnection = sqlite:///{home}/virtco.sqlite\n'
            '[controller]\nreap_interval_s = 0.2\ndb_timeout_s = 20\n'
            '[placement]\ndeadline_s = 50\nattempts = 100\n'
            + self.options)
        self.process = None
        self.addCleanup(self.kill)
        self.start()

    def start(self):
        with self.log.open('ab') as log:
            self.process = forks.Popen(
                [sys.executable, '-m', 'virtco.cmd.controller',
                 '--config-file', str(self.config)], stdout=log, stderr=log)
        patience.wait_for(self._is_ready, 'the start of the controller',
                          log=self.log)

    def _is_ready(self):
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        try:
            return requests.get(self.url + '/health', timeout=DEADLINE_S).ok
        except requests.RequestException:
            return False

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def get(self, path):
        try:
            response = requests.get(self.url + path, timeout=DEADLINE_S)
        except requests.ConnectionError as error:
            raise AssertionError(f'exit code {self.process.poll()}: '
                                 f'{self.log.read_text()[-4000:]}') from error
        response.raise_for_status()
        return response.json()

    def put(self, path, body):
        requests.put(self.url + path, json=body,
                     timeout=DEADLINE_S).raise_for_status()

    def coflows(self):
        """name -> coflow of all live groups."""
        return {coflow['name']: coflow
                for coflow in self.get('/v1/coflows')['coflows']}

    def wait_for(self, check, what):
        patience.wait_for(check, what, log=self.log, poll_s=0.1)


class RealControllerTest(nova_cloud.Cloud):
    hypervisors = {f'h{number}': 4 for number in range(6)}
    notify_controller = True

    def setUp(self):
        # It would go on to hold the room of another test's servers, which
        # end with that test's Nova and are never deleted.
        self.controller = ControllerProcess()
        self.controller.setUp()
        self.addCleanup(self.controller.cleanUp)
        self.virtco_options = {
            'controller_url': self.controller.url, 'timeout_ms': 60_000,
            'request_budget_ms': 250_000, 'breaker_reset_s': 0.5}
        super().setUp()
        self.create_flavor('slot1')
        self.nova_url = self.serve_api()
        self.nova = nova_client.NovaClient(self.nova_url)

    def create(self, n_vms, name, tm=None, **kwargs):
        hints = {'virtco:coflow': name, **kwargs.pop('hints', {})}
        if tm is not None:
            hints['virtco:tm'] = json.dumps(tm)
        return self.nova.wait_active(
            self.nova.create_group(name, n_vms, hints, **kwargs))

    def check_planned(self, servers):
        """Each is where the controller wanted it."""
        for server in servers:
            answer = self.controller.get(f'/v1/placements/{server.uuid}')
            self.assertEqual('planned', answer['status'])
            self.assertEqual(answer['host'], server.host, server.name)

    def test_life_of_groups(self):
        servers = self.create(18, 'big', {
            'pattern': 'shuffle', 'senders': 9, 'receivers': 9,
            'size': '19GB'})
        self.check_planned(servers)
        self.controller.wait_for(
            lambda: self.controller.coflows()['big']['state'] == 'active',
            'big is active')
        # Fig. 1: two coflows over three VMs, told apart by their ports.
        fig1 = self.create(3, 'fig1', [
            {'name': 'C1', 'dst_port': 5001,
             'tm': {'n': 3, 'flows': [[0, 2, '3GB']]}},
            {'name': 'C2', 'dst_port': 5002,
             'tm': {'n': 3, 'flows': [[1, 2, '2GB']]}}])
        self.check_planned(fig1)
        self.assertLessEqual({'big', 'C1', 'C2'}, set(
            self.controller.coflows()))
        self.nova.delete(fig1)
        self.controller.wait_for(
            lambda: {'C1', 'C2'}.isdisjoint(
                name for name, coflow in self.controller.coflows().items()
                if coflow['state'] in ('planned', 'active')), 'fig1 is gone')

    def test_a_group_grows_and_moves(self):
        tm = {'n': 3, 'flows': [[0, 1, '5GB'], [1, 2, '1GB']]}
        servers = [
            *self.create(1, 'grow', tm, hints={'virtco:index': '0'}),
            *self.create(1, 'grow', hints={'virtco:index': '1'}),
            *self.create(1, 'grow', hints={'virtco:index': '2'})]
        self.check_planned(servers)
        # All traffic fits into one host, so nothing crosses the network,
        # and the coflow is done as soon as the servers run.
        self.assertEqual(1, len({server.host for server in servers}))
        self.controller.wait_for(
            lambda: self.controller.coflows()['grow']['state'] == 'done',
            'grow is done')
        self.nova.live_migrate(servers[2].uuid)
        waiting = patience.Patience('the move of a server')
        while True:
            moved = self.nova.get_server(servers[2].uuid)
            if moved.status == 'ACTIVE' and moved.host != servers[2].host:
                break
            waiting.pause(0.1)
        self.check_planned([moved])
        self.controller.wait_for(
            lambda: moved.host in json.dumps(
                self.controller.coflows()['grow']['hosts']), 'move is seen')

    def test_anti_affinity_is_planned(self):
        group = self.nova.create_server_group('g', 'anti-affinity')
        servers = self.create(4, 'apart', {
            'pattern': 'ring', 'n': 4, 'size': '4GB'}, server_group=group)
        self.check_planned(servers)
        self.assertEqual(4, len({server.host for server in servers}))

    def test_a_batch_that_runs_out_of_time(self):
        """The first answer places them all; the controller hears later."""
        def may_ask(client, request_id):
            request = client._requests.get(request_id)
            return request is None or not request.rows
        self.stub_out('nova_filters.planclient.PlanClient.may_ask', may_ask)
        servers = self.create(6, 'late', {
            'pattern': 'all-to-all', 'n': 6, 'size': '6GB'})
        self.controller.wait_for(
            lambda: all(requests.get(
                f'{self.controller.url}/v1/placements/{server.uuid}',
                timeout=DEADLINE_S).ok for server in servers), 'late news')
        self.check_planned(servers)
        self.controller.wait_for(
            lambda: self.controller.coflows()['late']['state'] == 'active',
            'late is active')

    def test_one_rack_is_required(self):
        """Refused with its reason, met in one rack, replaced in that rack."""
        racks = {'left': ['h0', 'h1', 'h2'], 'right': ['h3', 'h4', 'h5']}
        self.controller.put('/v1/topology', {'planes': [{
            'name': 'front-end', 'nodes': [
                {'name': name, 'hosts': hosts, 'uplink': 1e9}
                for name, hosts in racks.items()]}]})
        wish = {'virtco:within': 'rack:required'}

        def tm(n_vms):
            return {'pattern': 'all-to-all', 'n': n_vms, 'size': '1GB'}

        # Two racks of 12 slots.
        large = self.nova.create_group('large', 13, {
            'virtco:coflow': 'large', 'virtco:tm': json.dumps(tm(13)),
            **wish})
        with self.assertRaisesRegex(nova_client.NovaError, 'No valid host'):
            self.nova.wait_active(large)
        answer = self.controller.get(f'/v1/placements/{large[0].uuid}')
        self.assertIn('12 of 13 fit at level rack', answer['why'])
        self.assertEqual({'level': 'rack', 'fitting': 12, 'wanted': 13,
                          'limiting': 'vcpus'}, answer['refused'])
        self.assertIn('wish_refused', [
            event['kind']
            for event in self.controller.get('/v1/events')['events']])
        self.nova.delete(large)
        servers = self.create(6, 'one', tm(6), hints=wish)
        self.check_planned(servers)
        (rack,) = [hosts for hosts in racks.values()
                   if servers[0].host in hosts]
        self.assertLessEqual({server.host for server in servers}, set(rack))
        # One fails; the other rack is empty, and the rest stays.
        self.nova.delete(servers[:1])
        self.controller.wait_for(
            lambda: servers[0].uuid not in json.dumps(
                self.controller.get('/v1/coflows/'
                                    + self.controller.coflows()['one']['id'])
            ), 'the delete is seen')
        (again,) = self.create(1, 'one', hints=wish)
        self.assertIn(again.host, rack)
        self.assertEqual(
            [server.host for server in servers[1:]],
            [self.nova.get_server(server.uuid).host
             for server in servers[1:]])

    def test_kill_and_restart(self):
        tm = {'pattern': 'ring', 'n': 2, 'size': '4GB'}
        before = self.create(2, 'before', tm)
        self.controller.kill()
        during = self.create(2, 'during', tm)
        self.assertEqual(2, len(during))
        self.nova.delete(before)
        self.controller.start()
        # The notifications of the deletes have waited for it.
        self.controller.wait_for(
            lambda: self.controller.coflows().get('before', {}).get('state')
            not in ('planned', 'active'), 'before is gone')

        def planned_again():
            (server, *_) = servers = self.create(2, 'after', tm)
            found = requests.get(
                self.controller.url + f'/v1/placements/{server.uuid}',
                timeout=DEADLINE_S)
            if not found.ok:  # the breaker was still open
                self.nova.delete(servers)
            return found.ok
        self.controller.wait_for(planned_again, 'planning goes on')
        metrics = requests.get(self.controller.url + '/metrics',
                               timeout=DEADLINE_S).text
        (line,) = [line for line in metrics.splitlines() if line.startswith(
            'virtco_nova_unplanned_passes_total')]
        self.assertGreaterEqual(float(line.split()[1]), 2)

    def test_groups_are_rebuilt_from_nova_alone(self):
        ring = {'pattern': 'ring', 'n': 3, 'size': '3GB'}
        servers = self.create(3, 'a', ring)
        servers += self.create(2, 'b', {'pattern': 'ring', 'n': 4,
                                        'size': '4GB'}, hints={})
        gone = self.create(1, 'c', [[0, 5], [0, 0]])
        self.create(1, 'bad', [[0, 'apples'], [0, 0]])
        (index,) = self.create(1, 'd', ring, hints={'virtco:index': '2'})
        self.nova.delete(gone)

        def model():
            return {coflow['name']: (coflow['size_bytes'], {
                member['row']: (member['instance_uuid'], member['host'],
                                member['state'])
                for member in self.controller.get(
                    f'/v1/coflows/{coflow["id"]}')['members']
                if member['instance_uuid']})
                for coflow in self.controller.coflows().values()
                if coflow['state'] != 'retired'}

        def expected(rows):
            return {row: (server.uuid, server.host, 'running')
                    for row, server in rows.items()}

        wanted = {
            'a': (3e9, expected({s.row: s for s in servers[:3]})),
            'b': (4e9, expected({s.row: s for s in servers[3:]})),
            'd': (3e9, expected({2: index}))}
        self.controller.wait_for(lambda: model() == wanted, 'as launched')
        self.controller.kill()
        for path in self.controller.config.parent.glob('virtco.sqlite*'):
            path.unlink()
        options = (self.controller.config.read_text()
                   + '[nova]\nauth_type = none\npage_size = 2\n'
                   f'endpoint_override = {self.nova_url}\n')
        self.controller.config.write_text(options)

        def manage(*argv):
            return forks.run(
                [sys.executable, '-m', 'virtco.cmd.manage', '--config-file',
                 str(self.controller.config), *argv], check=True).stdout

        manage('db', 'sync')
        self.assertIn('3 groups with 6 VMs would be rebuilt of 7 servers',
                      manage('rebuild', '--dry-run'))
        found = manage('rebuild')
        self.assertIn('3 groups with 6 VMs rebuilt of 7 servers, 1 skipped',
                      found)
        self.assertIn('virtco:tm[0][1]', found)
        self.assertIn('0 groups with 0 VMs rebuilt', manage('rebuild'))
        self.controller.start()
        self.controller.wait_for(lambda: model() == wanted, 'as before')
        # The group goes on: its next server takes the next row.
        (more,) = self.create(1, 'b')
        self.assertEqual(2, self.controller.get(
            f'/v1/placements/{more.uuid}')['row'])

    def check_refused(self, server):
        """A host that Nova does not know is an error, and nothing moves."""
        conf = cfg.ConfigOpts()
        nova_conf.register_opts(conf)
        conf([])
        for name, value in (('auth_type', 'none'),
                            ('endpoint_override', self.nova_url)):
            conf.set_override(name, value, 'nova')
        with self.assertRaisesRegex(exception.NovaUnavailable, '400'):
            follow_nova.Nova(conf).live_migrate(server.uuid, 'nowhere')
        self.assertEqual(([], server.host),
                         (self.api.get_migrations(),
                          self.nova.get_server(server.uuid).host))

    def test_a_group_that_was_split_is_moved_together(self):
        """The leader looks by itself, and Nova migrates for it."""
        # Four full hosts, and one slot on each other: the group is split.
        for slots in 3, 4:
            self.create_flavor(f'slots{slots}', slots)
        fillers = [self.nova.create_group(
            f'filler-{host}', 1, {}, host=host, flavor=f'slots{slots}')
            for host, slots in zip(self.hypervisors, (4, 4, 4, 4, 3, 3))]
        for filler in fillers:
            self.nova.wait_active(filler)
        tm = [[0, '1TB'], [0, 0]]
        servers = self.create(2, 'split', tm)
        before = {server.uuid: server.host for server in servers}
        self.assertEqual({'h4', 'h5'}, set(before.values()))
        self.controller.wait_for(
            lambda: self.controller.coflows()['split']['state'] == 'active',
            'split is active')
        self.check_refused(servers[0])
        self.nova.delete(fillers[4])
        self.controller.kill()
        placement_url = self.serve_placement()
        self.controller.config.write_text(
            self.controller.config.read_text()
            + '[nova]\nauth_type = none\n'
            f'endpoint_override = {self.nova_url}\n'
            f'placement_endpoint_override = {placement_url}\n'
            '[reevaluation]\ninterval_s = 0.5\nmigrate = live\n')
        self.controller.start()

        def together():
            hosts = {self.nova.get_server(server.uuid).host
                     for server in servers}
            return hosts == {'h4'} or None

        self.controller.wait_for(together, 'the migration')
        # Nova's notification ends it, and nothing else would pay.
        self.controller.wait_for(
            lambda: self.controller.get('/v1/advice')['moves'] == [],
            'no more advice')
        moved, = (uuid for uuid, host in before.items() if host == 'h5')
        migrations = self.api.get_migrations()
        self.assertEqual(
            [(moved, 'h5', 'h4', 'live-migration')],
            [(one['instance_uuid'], one['source_compute'],
              one['dest_compute'], one['migration_type'])
             for one in migrations])
        self.assertIn(f'Nova migrates {moved} from h5 to h4',
                      self.controller.log.read_text())

    def test_bad_hint_is_seen(self):
        (server,) = self.create(1, 'bad', [[0, 'apples'], [0, 0]])
        answer = self.controller.get(f'/v1/placements/{server.uuid}')
        self.assertEqual('ignored', answer['status'])
        self.assertIn('virtco:tm[0][1]', answer['why'])
        events = json.dumps(self.controller.get('/v1/events'))
        self.assertIn('virtco:tm[0][1]', events)
        self.assertIn('virtco:tm[0][1]', self.stdlog.logger.output)


class ComparisonTest(nova_cloud.Cloud):
    """Nova's notifications are lost; the controller asks Nova itself."""

    hypervisors = {f'h{number}': 2 for number in range(5)}

    def test_lost_notifications_are_repaired(self):
        api = self.serve_api()
        controller = self.useFixture(ControllerProcess(
            '[nova]\nauth_type = none\npage_size = 2\n'
            'feedback_interval_s = 0.5\n'
            f'compare_interval_s = 1\nendpoint_override = {api}\n'))
        self.flags(controller_url=controller.url, timeout_ms=60_000,
                   request_budget_ms=250_000, group='virtco')
        self.flags(shelved_offload_time=0)
        self.create_flavor('slot1')
        cloud = nova_client.NovaClient(api)

        def rows():
            """Server -> (state, host) by the model."""
            return {member['instance_uuid']: (member['state'],
                                              member['host'])
                    for coflow in controller.get('/v1/coflows')['coflows']
                    for member in controller.get(
                        f'/v1/coflows/{coflow["id"]}')['members']
                    if member['instance_uuid']}

        def repaired(expected):
            controller.wait_for(lambda: rows() == expected, expected)

        hints = {'virtco:coflow': 'a', 'virtco:tm': json.dumps(
            {'pattern': 'ring', 'n': 5, 'size': '5GB'})}
        servers = cloud.wait_active(cloud.create_group('a', 5, hints))
        expected = {s.uuid: ('running', s.host) for s in servers}
        repaired(expected)

        def told():
            found = self.api.get_server(servers[3].uuid)['metadata']
            return (found.get('virtco.group'), found.get('virtco.row'),
                    'virtco.planned_cct_s' in found) == ('a', '3', True)

        controller.wait_for(told, 'metadata for the tenant')
        (bad,) = cloud.wait_active(cloud.create_group(
            'bad', 1, {'virtco:coflow': 'bad',
                       'virtco:tm': '[[0, "apples"], [0, 0]]'}))
        controller.wait_for(
            lambda: 'virtco:tm[0][1]' in self.api.get_server(
                bad.uuid)['metadata'].get('virtco.ignored', ''),
            'why the hint was ignored')
        gone, moved, shelved, *_ = servers
        cloud.delete([gone])
        cloud.live_migrate(moved.uuid)
        self.api.post_server_action(shelved.uuid, {'shelve': None})
        del expected[gone.uuid]
        expected[shelved.uuid] = ('vacant', None)
        waiting = patience.Patience('the move of a server')
        while (found := cloud.get_server(moved.uuid)).host == moved.host:
            waiting.pause(0.1)
        expected[moved.uuid] = ('running', found.host)
        repaired(expected)

        # Builds that fail end in ERROR, and their group with them.
        self.stub_out('nova.virt.fake.FakeDriver.spawn', _fail)
        failed = cloud.create_group('b', 1, hints | {'virtco:coflow': 'b'})
        with self.assertRaises(nova_client.NovaError):
            cloud.wait_active(failed)
        repaired(expected)
        self.assertIn('build_failed', [
            event['kind'] for event in controller.get('/v1/events')['events']
            if event['instance_uuid'] == failed[0].uuid])


def _fail(*_args, **_kwargs):
    raise RuntimeError('no disk')
