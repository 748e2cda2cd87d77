# SPDX-License-Identifier: Apache-2.0

"""What binds Nova beside the plan."""

from nova.scheduler import utils

from tests.functional.nova import base


class ConstraintTest(base.ScriptedTest):
    """What Nova decides after the plan."""

    hypervisors = {'h1': 3, 'h3': 3, 'h4': 3, 'h5': 3}

    @base.FULL
    def test_constraints(self):
        """Each request adds to what runs."""
        self.check_anti_affinity()
        self.check_affinity()
        self.check_no_valid_host()
        self.check_a_failure_takes_the_second_of_the_plan()
        self.check_claim_failure()

    def check_anti_affinity(self):
        group = self.api.post_server_groups({
            'name': 'g', 'policy': 'anti-affinity'})['id']
        self.plan = {0: 'h3', 1: 'h4', 2: ['h3', 'h1']}
        servers = self.create(3, hints={'group': group})
        # Row 2 may not join row 0: the next in the plan's order is taken.
        self.assertEqual({0: 'h3', 1: 'h4', 2: 'h1'},
                         self.hosts_by_row(servers))
        seen = self.controller.calls[2][1]['server_group']
        self.assertEqual(('anti-affinity', 1, ['h3', 'h4']), (
            seen['policy'], seen['max_per_host'], seen['hosts']))
        self.assertEqual({server.uuid for server in servers},
                         set(seen['members']))

    def check_affinity(self):
        """Although one host remains, the controller is told."""
        self.controller.calls.clear()
        group = self.api.post_server_groups({
            'name': 'g', 'policy': 'affinity'})['id']
        self.plan = {0: 'h5'}
        servers = self.create(3, 'b', hints={'group': group})
        self.assertEqual({'h5'}, {server.host for server in servers})
        # Nova weighs no single host, so the filter has made these calls.
        asked = [uuid for uuid, _body in self.controller.calls]
        self.assertEqual({server.uuid for server in servers}, set(asked))
        self.assertEqual(['h5'], [
            entry['host'] for entry in self.controller.calls[1][1]['hosts']])

    def check_no_valid_host(self):
        # Six slots are left.
        servers = self.nova.create_group(
            'big', 7, {'virtco:coflow': 'big', 'virtco:tm': base.TM % 7})
        for server in servers:
            self.wait_status(server.uuid, 'ERROR')
        # A later request is planned as if nothing had happened.
        self.plan = {0: 'h3'}
        self.assertEqual('h3', self.create(1, 'later')[0].host)

    def check_a_failure_takes_the_second_of_the_plan(self):
        self.plan = {0: ['h4', 'h1', 'h3']}
        with self.failing_spawn('h4'):
            (server,) = self.create(1, 'second')
        self.assertEqual('h1', server.host)
        self.assertEqual('h1', self.notified('instance.create.end',
                                             server.uuid)['host'])

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
        self.assertEqual('h4', self.create(1, 'claimed')[0].host)
        self.assertEqual([True], refused)


class RequiredWishTest(base.ScriptedTest):
    """A required wish binds Nova, as long as the controller answers."""

    hypervisors = {'h0': 4, 'h1': 4, 'h2': 4}
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

    @base.FULL
    def test_required(self):
        self.check_a_refusal_leaves_no_host()
        self.check_metadata_requires_as_well()
        self.check_a_failed_build_stays_in_the_rack()
        self.check_without_an_answer_it_boots()

    def check_a_refusal_leaves_no_host(self):
        self.refused = '3 of 4 fit at level rack; limiting: vcpus'
        servers = self.create_failing(self.wish)
        fault = self.api.get_server(servers[0].uuid)['fault']['message']
        self.assertIn('No valid host', fault)
        self.assertIn(f'Instance {servers[0].uuid} finds no valid host: no '
                      f'valid placement: {self.refused}',
                      self.stdlog.logger.output)
        # A refusal binds nobody who did not require it.
        self.plan = {row: 'h2' for row in range(4)}
        self.create(1, 'soft', hints={'virtco:within': 'rack'})
        self.create(1, 'none')

    def check_metadata_requires_as_well(self):
        metadata = {'virtco:coflow': 'm', 'virtco:tm': base.TM % 2,
                    **self.wish}
        (server,) = self.nova.create_group('m', 1, {}, metadata=metadata)
        self.wait_status(server.uuid, 'ERROR')

    def check_a_failed_build_stays_in_the_rack(self):
        """One question per pass; alternates are of the rack too."""
        self.refused = None
        self.controller.calls.clear()
        self.plan = {0: ['h0', 'h1', 'h2']}
        with self.failing_spawn('h0'):
            (server,) = self.create(1, 'b', hints=self.wish)
        self.assertEqual('h1', server.host)
        # The weigher takes the answer that the filter got.
        self.assertEqual(1, len(self.controller.calls))
        self.plan = {0: ['h1', 'h0']}
        with self.failing_spawn(*self.hypervisors):
            (server,) = self.nova.create_group('c', 1, {
                'virtco:coflow': 'c', 'virtco:tm': base.TM % 2, **self.wish})
            self.wait_status(server.uuid, 'ERROR')

    def check_without_an_answer_it_boots(self):
        # Unit tests of the client have every fault.
        for mode in ('error', 'close'):
            self.controller.mode = mode
            self.create(1, mode, hints=self.wish)
