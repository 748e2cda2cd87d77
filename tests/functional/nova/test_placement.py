# SPDX-License-Identifier: Apache-2.0

"""Planned hosts are honoured exactly in all that Nova allows."""

from tests.functional.nova import base

from nova.scheduler import utils
from nova.virt import fake

from virtco import hint_matrix
from virtco import hints
from virtco.lab.emulation import nova_client


class PlacementTest(base.ScriptedTest):

    def test_single(self):
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

    def test_batch_of_four(self):
        self.plan = {0: 'h3', 1: 'h3', 2: 'h0', 3: 'h5'}
        servers = self.create(4)
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

    def test_batch_of_eighteen_on_a_full_cloud(self):
        self.create(1, 'filler', hints={'virtco:index': '1'})
        before = self.nova.list_servers()[0].host
        rows = [host for host in self.hypervisors
                for _ in range(3 if host == before else 4)]
        self.plan = dict(enumerate(rows[::-1][:18]))
        servers = self.create(18, 'b')
        self.assertEqual(self.plan, self.hosts_by_row(servers))

    def test_one_group_in_separate_requests(self):
        self.plan = {0: 'h1', 1: 'h5', 2: 'h1'}
        (first,) = self.create(hints={'virtco:index': '0'})
        (second,) = self.create(hints={'virtco:index': '1'})
        # A joining request need not repeat the matrix.
        (third,) = self.nova.wait_active(self.nova.create_group(
            'a3', 1, {'virtco:coflow': 'a', 'virtco:index': '2'}))
        self.assertEqual(['h1', 'h5', 'h1'],
                         [first.host, second.host, third.host])

    def test_hint_as_metadata(self):
        self.plan = {0: 'h2', 1: 'h4'}
        (coflow,) = hint_matrix.parse_matrix(
            {'pattern': 'all-to-all', 'n': 10, 'size': '1GB'}, 'm')
        metadata = hints.encode_metadata(
            hints.Hint('m', (coflow,), None, None, 10))
        self.assertIn('virtco:tm.1', metadata)
        servers = self.nova.wait_active(self.nova.create_group(
            'm', 2, {}, metadata={**metadata, 'role': 'x'}))
        self.assertEqual(self.plan, self.hosts_by_row(servers))
        self.assertEqual(metadata, self.controller.calls[0][1]['metadata'])
        # The cell fallback: a running server has no build request.
        self.controller.calls.clear()
        self.plan = {0: 'h5'}
        self.nova.live_migrate(servers[0].uuid)
        self.notified('instance.live_migration_post_dest.end',
                      servers[0].uuid)
        self.assertEqual('h5', self.wait_status(servers[0].uuid,
                                                'ACTIVE').host)
        self.assertEqual(metadata, self.controller.calls[0][1]['metadata'])

    def test_no_hint_makes_no_call(self):
        passes = self.record_passes()
        servers = self.nova.wait_active(self.nova.create_group(
            'plain', 4, {}, metadata={'role': 'web'}))
        self.nova.live_migrate(servers[0].uuid)
        self.notified('instance.live_migration_post_dest.end',
                      servers[0].uuid)
        self.assertEqual([], self.controller.calls)
        self.assertGreaterEqual(len(passes), 6)

    def test_matrix_in_a_hint_of_the_largest_size(self):
        text = '{"n": 300, "flows": [%s]}' % ','.join(
            f'[{i % 300},{(i * 7 + 1) % 300},{i + 1}]' for i in range(6500))
        self.assertGreater(len(text), 90_000)
        self.plan = {0: 'h3'}
        (server,) = self.create(hints={'virtco:tm': text,
                                       'virtco:index': '0'})
        self.assertEqual('h3', server.host)
        self.assertEqual(text, self.controller.calls[0][1]['hints'][
            'virtco:tm'])


class ConstraintTest(base.ScriptedTest):
    """What Nova decides after the plan."""

    hypervisors = {f'h{number}': 3 for number in range(1, 6)}

    def test_server_groups(self):
        group = self.nova.create_server_group('g', 'anti-affinity')
        self.plan = {0: 'h3', 1: 'h4', 2: ['h3', 'h1']}
        servers = self.create(3, server_group=group)
        # Row 2 may not join row 0: the next in the plan's order is taken.
        self.assertEqual({0: 'h3', 1: 'h4', 2: 'h1'},
                         self.hosts_by_row(servers))
        seen = self.controller.calls[2][1]['server_group']
        self.assertEqual(('anti-affinity', 1, ['h3', 'h4']), (
            seen['policy'], seen['max_per_host'], seen['hosts']))
        self.assertEqual({server.uuid for server in servers},
                         set(seen['members']))

        self.check_affinity()

    def check_affinity(self):
        """Although one host remains, the controller is told."""
        self.controller.calls.clear()
        group = self.nova.create_server_group('g', 'affinity')
        self.plan = {0: 'h5'}
        servers = self.create(3, 'b', server_group=group)
        self.assertEqual({'h5'}, {server.host for server in servers})
        # Nova weighs no single host, so the filter has made these calls.
        asked = [uuid for uuid, _body in self.controller.calls]
        self.assertEqual({server.uuid for server in servers}, set(asked))
        self.assertEqual(['h5'], [
            entry['host'] for entry in self.controller.calls[1][1]['hosts']])

    def test_no_valid_host(self):
        servers = self.nova.create_group(
            'big', 16, {'virtco:coflow': 'big', 'virtco:tm': base.TM % 16})
        for server in servers:
            self.wait_status(server.uuid, 'ERROR')
        # A later request is planned as if nothing had happened.
        self.plan = {0: 'h2'}
        self.assertEqual('h2', self.create(1, 'later')[0].host)

    def test_a_failure_takes_the_second_of_the_plan(self):
        self.plan = {0: ['h5', 'h2', 'h1']}
        spawn = fake.FakeDriver.spawn

        def failing(driver, *args, **kwargs):
            if driver._host == 'h5':
                raise RuntimeError('no disk')
            return spawn(driver, *args, **kwargs)

        self.stub_out('nova.virt.fake.FakeDriver.spawn', failing)
        (server,) = self.create()
        self.assertEqual('h2', server.host)
        self.assertEqual('h2', self.notified('instance.create.end',
                                             server.uuid)['host'])

        self.check_claim_failure()

    def check_claim_failure(self):
        """As when another scheduler has just taken the last slot."""
        self.plan = {0: ['h1', 'h4']}
        claim = 'nova.scheduler.utils.claim_resources'
        original = utils.claim_resources
        refused = []

        def refusing(*args, **kwargs):
            if not refused:
                refused.append(True)
                return False
            return original(*args, **kwargs)

        self.stub_out(claim, refusing)
        self.assertEqual('h4', self.create(1, 'b')[0].host)


class RequiredWishTest(base.ScriptedTest):
    """A required wish binds Nova, as long as the controller answers."""

    hypervisors = {f'h{number}': 2 for number in range(4)}
    wish = {'virtco:within': 'rack:required'}

    def setUp(self):
        self.refused = None
        super().setUp()

    def _answer(self, body, uuid):
        answer = super()._answer(body, uuid)
        if self.refused is not None:
            return answer | {'status': 'neutral', 'host': None,
                             'why': 'no valid placement: ' + self.refused,
                             'refused': {'level': 'rack', 'fitting': 3,
                                         'wanted': 4, 'limiting': 'vcpus'}}
        return answer | {'allowed': ['h0', 'h1']}  # which are one rack

    def create_failing(self, hints, **kwargs):
        tm = {'virtco:coflow': 'a', 'virtco:tm': base.TM % 4}
        servers = self.nova.create_group('a', 4, tm | hints, **kwargs)
        for server in servers:
            self.wait_status(server.uuid, 'ERROR')
        return servers

    def test_a_refusal_leaves_no_host(self):
        self.refused = '3 of 4 fit at level rack; limiting: vcpus'
        servers = self.create_failing(self.wish)
        fault = self.api.get_server(servers[0].uuid)['fault']['message']
        self.assertIn('No valid host', fault)
        self.assertIn(f'Instance {servers[0].uuid} finds no valid host: no '
                      f'valid placement: {self.refused}',
                      self.stdlog.logger.output)
        # A refusal binds nobody who did not require it.
        self.plan = {row: 'h2' for row in range(4)}
        self.create(2, 'soft', hints={'virtco:within': 'rack'})
        self.create(2, 'none')

    def test_metadata_requires_as_well(self):
        self.refused = '3 of 4 fit'
        metadata = {'virtco:coflow': 'm', 'virtco:tm': base.TM % 2,
                    **self.wish}
        (server,) = self.nova.create_group('m', 1, {}, metadata=metadata)
        self.wait_status(server.uuid, 'ERROR')

    def test_a_failed_build_stays_in_the_rack(self):
        """One question per pass; alternates are of the rack too."""
        self.plan = {0: ['h0', 'h1', 'h2', 'h3']}
        spawn = fake.FakeDriver.spawn

        def failing(driver, *args, **kwargs):
            if driver._host == 'h0':
                raise RuntimeError('no disk')
            return spawn(driver, *args, **kwargs)

        self.stub_out('nova.virt.fake.FakeDriver.spawn', failing)
        (server,) = self.create(hints=self.wish)
        self.assertEqual('h1', server.host)
        # The weigher takes the answer that the filter got.
        self.assertEqual(1, len(self.controller.calls))
        self.stub_out('nova.virt.fake.FakeDriver.spawn',
                      lambda *_args, **_kwargs: 1 / 0)
        self.plan = {0: ['h1', 'h0']}
        (server,) = self.nova.create_group('b', 1, {
            'virtco:coflow': 'b', 'virtco:tm': base.TM % 2, **self.wish})
        self.wait_status(server.uuid, 'ERROR')

    def test_without_an_answer_it_boots(self):
        for mode in ('error', 'garbage', 'refusal', 'close'):
            self.controller.mode = mode
            self.create(1, mode, hints=self.wish)


class MoveTest(base.ScriptedTest):

    hypervisors = {'h1': 2, 'h3': 2, 'h5': 2}

    def test_cold_migration(self):
        self.plan = {0: ['h3', 'h1']}
        (server,) = self.create()
        self.nova.cold_migrate(server.uuid)
        moved = self.wait_status(server.uuid, 'VERIFY_RESIZE')
        self.assertEqual('h1', moved.host)
        self.nova.confirm(server.uuid)
        self.notified('instance.resize_confirm.end', server.uuid)
        # The host it leaves is no candidate.
        self.assertEqual([3, 2], [len(body['hosts']) for _uuid, body
                                  in self.controller.calls])

    def test_live_migration_and_delete(self):
        self.plan = {0: ['h3', 'h1']}
        (server,) = self.create()
        self.nova.live_migrate(server.uuid)
        moved = self.notified('instance.live_migration_post_dest.end',
                              server.uuid)
        self.assertEqual('h1', moved['host'])
        uuid, body = self.controller.calls[-1]
        self.assertEqual((server.uuid, 'a'), (uuid, body['hints'][
            'virtco:coflow']))
        self.wait_status(server.uuid, 'ACTIVE')
        # To a host that the operator names.
        self.controller.notifications.clear()
        self.nova.live_migrate(server.uuid, 'h5')
        self.assertEqual('h5', self.notified(
            'instance.live_migration_post_dest.end', server.uuid)['host'])
        self.wait_status(server.uuid, 'ACTIVE')
        self.nova.delete([server])
        self.notified('instance.delete.end', server.uuid)
        with self.assertRaises(nova_client.NovaError):
            self.nova.get_server(server.uuid)
