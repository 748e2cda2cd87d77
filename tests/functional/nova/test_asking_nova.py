# SPDX-License-Identifier: Apache-2.0

"""The controller asks Nova itself: what runs where, and to move it."""

import json
import time

from oslo_config import cfg
import pytest

from tests import patience
from tests.functional.nova import base
from tests.functional.nova import controllers
from virtco import exception
from virtco.conf import nova_options as nova_conf
from virtco.follow import follow
from virtco.follow import nova as follow_nova
from virtco.model import booking
from virtco_lab.emulation import nova_client
from virtco_lab.emulation import nova_cloud


class ReunionTest(controllers.RealControllerTest):
    hypervisors = {'h4': 4, 'h5': 4}

    def check_refused(self, server):
        """A host that Nova does not know is an error, and nothing moves."""
        conf = cfg.ConfigOpts()
        conf.register_opts(nova_conf.OPTS, nova_conf.GROUP)
        conf([])
        for name, value in (('auth_type', 'none'),
                            ('endpoint_override', self.nova_url)):
            conf.set_override(name, value, 'nova')
        with self.assertRaisesRegex(exception.NovaUnavailable, '400'):
            follow_nova.Nova(conf).live_migrate(server.uuid, 'nowhere')
        self.assertEqual(([], server.host),
                         (self.api.get_migrations(),
                          self.nova.get_server(server.uuid).host))

    @pytest.mark.full(
        reason='a cloud of its own',
        still='unit/follow/test_nova for the migration, '
              'controller/test_following_advice for its order, '
              'test_controller of this folder for its notification')
    def test_a_group_that_was_split_is_moved_together(self):
        """The leader looks by itself, and Nova migrates for it."""
        # One slot is left on each host: the group is split.
        self.create_flavor('slots3', 3)
        fillers = [self.nova.create_group(
            f'filler-{host}', 1, {}, availability_zone=f'nova:{host}',
            flavor='slots3')
            for host in self.hypervisors]
        for filler in fillers:
            self.nova.wait_active(filler)
        # Until then they are booked beside what Nova says, in case it lacks
        # them: the cloud would be full.
        until_s = time.monotonic() + booking.NUMBERS_S + 2 * follow.REAP_S
        self.controller.wait_for(lambda: time.monotonic() > until_s,
                                 'Nova\'s numbers to count alone')
        tm = [[0, '1TB'], [0, 0]]
        servers = self.create(2, 'split', tm)
        before = {server.uuid: server.host for server in servers}
        self.assertEqual({'h4', 'h5'}, set(before.values()))
        self.controller.wait_for(
            lambda: self.controller.coflows()['split']['state'] == 'active',
            'split is active')
        self.check_refused(servers[0])
        self.nova.delete(fillers[0])
        self.controller.kill()
        placement_url = self.serve_placement()
        self.controller.config.write_text(
            self.controller.config.read_text()
            + '[nova]\nauth_type = none\n'
            f'endpoint_override = {self.nova_url}\n'
            f'placement_endpoint_override = {placement_url}\n'
            '[reevaluation]\ninterval_s = 0.5\nmax_migrations = 1\n')
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


class ComparisonTest(nova_cloud.Cloud):
    """Nova's notifications are lost; the controller asks Nova itself."""

    hypervisors = {'h0': 3, 'h1': 3, 'h2': 3}

    @pytest.mark.full(
        reason='a cloud of its own',
        still='unit/follow/test_nova_comparison and test_auditor; '
              'test_restart reads the same lists of the same Nova')
    def test_lost_notifications_are_repaired(self):
        api = self.serve_api()
        controller = self.useFixture(controllers.ControllerProcess(
            '[nova]\nauth_type = none\npage_size = 2\n'
            'feedback_interval_s = 2\n'
            f'compare_interval_s = 2\nendpoint_override = {api}\n'))
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
                bad.uuid)['metadata'].get('virtco.why', ''),
            'why the hint was ignored')
        gone, moved, shelved, *_ = servers
        cloud.delete([gone])
        self.api.post_server_action(moved.uuid, base.LIVE_MIGRATION)
        self.api.post_server_action(shelved.uuid, {'shelve': None})
        del expected[gone.uuid]
        expected[shelved.uuid] = ('vacant', None)
        waiting = patience.Patience('the move of a server')
        while (found := cloud.get_server(moved.uuid)).host == moved.host:
            waiting.pause(0.3)
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
