# SPDX-License-Identifier: Apache-2.0

"""Planned hosts are honoured exactly in all that Nova allows."""

from tests.functional.nova import base
from virtco import hint_matrix
from virtco import hints
from virtco.follow import notifications
from virtco_lab.emulation import nova_client


class PlacementTest(base.ScriptedTest):

    def test_planned_hosts(self):
        """Each request adds to what runs."""
        self.check_single()
        self.check_batch_of_four()
        self.check_one_group_in_separate_requests()
        self.check_matrix_in_a_hint_of_the_largest_size()
        self.check_hint_as_metadata()
        self.check_no_hint_makes_no_call()

    def check_single(self):
        self.plan = {1: 'h4'}
        (server,) = self.create(hints={'virtco:index': '1'})
        self.assertEqual('h4', server.host)
        uuid, body = self.controller.calls[0]
        self.assertEqual(server.uuid, uuid)
        self.assertEqual(
            {'virtco:coflow': 'a', 'virtco:tm': base.TM % 2,
             'virtco:index': '1'}, body['hints'])
        self.assertEqual({'vcpus': 1, 'memory_mb': 512, 'disk_gb': 1},
                         body['flavor'])
        self.assertEqual(('a', 1, {}, None), (
            body['display_name'], body['num_instances'], body['metadata'],
            body['server_group']))
        self.assertEqual(sorted(self.hypervisors), sorted(
            entry['host'] for entry in body['hosts']))
        self.assertEqual({'vcpus': 4, 'memory_mb': 2048, 'disk_gb': 1000},
                         body['hosts'][0]['free'])
        self.assertEqual('h4', self.notified('instance.create.end',
                                             server.uuid)['host'])
        begun = self.message('instance.create.start', server.uuid)
        self.assertIsNone(begun['payload']['nova_object.data']['host'])
        change = notifications.change_of(
            begun['event_type'], begun['payload'], begun['timestamp'],
            begun['publisher_id'])
        self.assertEqual(('h4', {'vcpus': 1, 'memory_mb': 512, 'disk_gb': 1}),
                         (change.host, dict(change.flavor)))

    def check_batch_of_four(self):
        self.controller.calls.clear()
        self.plan = {0: 'h3', 1: 'h3', 2: 'h0', 3: 'h5'}
        servers = self.create(4, 'four')
        self.assertEqual(self.plan, self.hosts_by_row(servers))
        uuids = [server.uuid for server in servers]
        asked = [uuid for uuid, _body in self.controller.calls]
        # Once per instance in order, and once more for the alternates.
        self.assertEqual(uuids + [uuids[-1]], asked)
        reservations = {body['reservation_id']
                        for _uuid, body in self.controller.calls}
        self.assertEqual(1, len(reservations - {None}))
        free = {entry['host']: entry['free']['vcpus']
                for entry in self.controller.calls[2][1]['hosts']}
        self.assertEqual(2, free['h3'])

    def check_one_group_in_separate_requests(self):
        self.plan = {0: 'h1', 1: 'h5', 2: 'h1'}
        (first,) = self.create(1, 'one', hints={'virtco:index': '0'})
        (second,) = self.create(1, 'one', hints={'virtco:index': '1'})
        # A joining request need not repeat the matrix.
        (third,) = self.nova.wait_active(self.nova.create_group(
            'one3', 1, {'virtco:coflow': 'one', 'virtco:index': '2'}))
        self.assertEqual(['h1', 'h5', 'h1'],
                         [first.host, second.host, third.host])

    def check_matrix_in_a_hint_of_the_largest_size(self):
        text = '{"n": 300, "flows": [%s]}' % ','.join(
            f'[{i % 300},{(i * 7 + 1) % 300},{i + 1}]' for i in range(6500))
        self.assertGreater(len(text), 90_000)
        self.controller.calls.clear()
        self.plan = {0: 'h3'}
        (server,) = self.create(1, 'large', hints={
            'virtco:tm': text, 'virtco:index': '0'})
        self.assertEqual('h3', server.host)
        self.assertEqual(text, self.controller.calls[0][1]['hints'][
            'virtco:tm'])

    def check_hint_as_metadata(self):
        self.controller.calls.clear()
        self.plan = {0: 'h2', 1: 'h4'}
        (coflow,) = hint_matrix.parse_matrix(
            {'pattern': 'all-to-all', 'n': 10, 'size': '1GB'}, 'm')
        metadata = hints.encode_metadata(
            hints.Hint('m', coflows=(coflow,)))
        self.assertIn('virtco:tm.1', metadata)
        servers = self.nova.wait_active(self.nova.create_group(
            'm', 2, {}, metadata={**metadata, 'role': 'x'}))
        self.assertEqual(self.plan, self.hosts_by_row(servers))
        self.assertEqual(metadata, self.controller.calls[0][1]['metadata'])
        # The cell fallback: a running server has no build request.
        self.controller.calls.clear()
        self.plan = {0: 'h5'}
        self.api.post_server_action(servers[0].uuid, base.LIVE_MIGRATION)
        self.notified('instance.live_migration_post_dest.end',
                      servers[0].uuid)
        self.assertEqual('h5', self.wait_status(servers[0].uuid,
                                                'ACTIVE').host)
        self.assertEqual(metadata, self.controller.calls[0][1]['metadata'])

    def check_no_hint_makes_no_call(self):
        self.controller.calls.clear()
        passes = self.record_passes()
        servers = self.nova.wait_active(self.nova.create_group(
            'plain', 2, {}, metadata={'role': 'web'}))
        self.api.post_server_action(servers[0].uuid, base.LIVE_MIGRATION)
        self.notified('instance.live_migration_post_dest.end',
                      servers[0].uuid)
        self.assertEqual([], self.controller.calls)
        self.assertGreaterEqual(len(passes), 4)


class RoomTest(base.ScriptedTest):
    hypervisors = {'h0': 2, 'h2': 2, 'h4': 2}

    @base.FULL
    def test_a_batch_fills_the_cloud(self):
        self.create(1, 'filler', hints={'virtco:index': '1'})
        before = self.nova.list_servers()[0].host
        rows = [host for host in self.hypervisors
                for _ in range(1 if host == before else 2)]
        self.plan = dict(enumerate(rows[::-1]))
        servers = self.create(len(rows), 'b')
        self.assertEqual(self.plan, self.hosts_by_row(servers))


class MoveTest(base.ScriptedTest):

    hypervisors = {'h1': 2, 'h3': 2, 'h5': 2}

    @base.FULL
    def test_cold_and_live_migration_and_delete(self):
        self.plan = {0: ['h3', 'h1']}
        (server,) = self.create()
        self.api.post_server_action(server.uuid, {'migrate': None})
        moved = self.wait_status(server.uuid, 'VERIFY_RESIZE')
        self.assertEqual('h1', moved.host)
        self.api.post_server_action(server.uuid, {'confirmResize': None})
        self.notified('instance.resize_confirm.end', server.uuid)
        # The host it leaves is no candidate.
        self.assertEqual([3, 2], [len(body['hosts']) for _uuid, body
                                  in self.controller.calls])

        self.check_live_migration_and_delete(server)

    def check_live_migration_and_delete(self, server):
        self.wait_status(server.uuid, 'ACTIVE')
        self.api.post_server_action(server.uuid, base.LIVE_MIGRATION)
        moved = self.notified('instance.live_migration_post_dest.end',
                              server.uuid)
        self.assertEqual('h3', moved['host'])
        uuid, body = self.controller.calls[-1]
        self.assertEqual((server.uuid, 'a'), (uuid, body['hints'][
            'virtco:coflow']))
        self.wait_status(server.uuid, 'ACTIVE')
        # To a host that the operator names.
        self.controller.notifications.clear()
        self.api.post_server_action(server.uuid, {'os-migrateLive': {
            'host': 'h5', 'block_migration': 'auto'}})
        self.assertEqual('h5', self.notified(
            'instance.live_migration_post_dest.end', server.uuid)['host'])
        self.wait_status(server.uuid, 'ACTIVE')
        self.nova.delete([server])
        self.notified('instance.delete.end', server.uuid)
        with self.assertRaises(nova_client.NovaError):
            self.nova.get_server(server.uuid)
