# SPDX-License-Identifier: Apache-2.0

"""Real Nova and a real virtco-controller process: what is planned."""

import json

import fixtures
import pytest
import requests

from tests import patience
from tests.functional.nova import base
from tests.functional.nova import controllers
from virtco_lab.emulation import nova_client


class GroupsTest(controllers.RealControllerTest):
    hypervisors = {f'h{number}': 2 for number in range(7)}

    def test_groups(self):
        """Each group finds the former ones; at last the cloud is full."""
        self.check_anti_affinity_is_planned()
        self.check_a_group_grows_and_moves()
        self.check_a_batch_that_runs_out_of_time()
        self.check_life_of_groups()
        self.check_bad_hint_is_seen()

    def check_anti_affinity_is_planned(self):
        group = self.api.post_server_groups({
            'name': 'g', 'policy': 'anti-affinity'})['id']
        servers = self.create(3, 'apart', {
            'pattern': 'ring', 'n': 3, 'size': '3GB'},
            hints={'group': group})
        self.check_planned(servers)
        self.assertEqual(3, len({server.host for server in servers}))

    def check_a_group_grows_and_moves(self):
        tm = {'n': 2, 'flows': [[0, 1, '5GB']]}
        servers = [
            *self.create(1, 'grow', tm, hints={'virtco:index': '0'}),
            *self.create(1, 'grow', hints={'virtco:index': '1'})]
        self.check_planned(servers)
        # All traffic fits into one host, so nothing crosses the network,
        # and the coflow is done as soon as the servers run.
        self.assertEqual(1, len({server.host for server in servers}))
        self.controller.wait_for(
            lambda: self.controller.coflows()['grow']['state'] == 'done',
            'grow is done')
        self.api.post_server_action(servers[1].uuid, base.LIVE_MIGRATION)
        waiting = patience.Patience('the move of a server')
        while True:
            moved = self.nova.get_server(servers[1].uuid)
            if moved.status == 'ACTIVE' and moved.host != servers[1].host:
                break
            waiting.pause(0.3)
        self.check_planned([moved])
        self.controller.wait_for(
            lambda: moved.host in json.dumps(
                self.controller.coflows()['grow']['hosts']), 'move is seen')

    def check_a_batch_that_runs_out_of_time(self):
        """The first answer places them all; the controller hears later."""
        def may_ask(client, request_id):
            request = client._requests.get(request_id)
            return request is None or not request.rows
        with fixtures.MonkeyPatch(
                'nova_filters.planclient.PlanClient.may_ask', may_ask):
            servers = self.create(3, 'late', {
                'pattern': 'all-to-all', 'n': 3, 'size': '6GB'})
        self.controller.wait_for(
            lambda: all(requests.get(
                f'{self.controller.url}/v1/placements/{server.uuid}',
                timeout=controllers.DEADLINE_S).ok for server in servers),
            'late news')
        self.check_planned(servers)
        self.controller.wait_for(
            lambda: self.controller.coflows()['late']['state'] == 'active',
            'late is active')

    def check_life_of_groups(self):
        servers = self.create(3, 'big', {
            'pattern': 'shuffle', 'senders': 2, 'receivers': 1,
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

    def check_bad_hint_is_seen(self):
        (server,) = self.create(1, 'bad', [[0, 'apples'], [0, 0]])
        answer = self.controller.get(f'/v1/placements/{server.uuid}')
        self.assertEqual('ignored', answer['status'])
        self.assertIn('virtco:tm[0][1]', answer['why'])
        events = json.dumps(self.controller.get('/v1/events'))
        self.assertIn('virtco:tm[0][1]', events)
        self.assertIn('virtco:tm[0][1]', self.stdlog.logger.output)


class RackTest(controllers.RealControllerTest):
    hypervisors = {f'h{number}': 3 for number in range(4)}

    @pytest.mark.full(
        reason='a cloud of its own',
        still='unit/nova_filters for Nova, controller/test_topology for the '
              'answers of a rack that is full or lost a VM')
    def test_one_rack_is_required(self):
        """Refused with its reason, met in one rack, replaced in that rack."""
        racks = {'left': ['h0', 'h1'], 'right': ['h2', 'h3']}
        self.controller.put('/v1/topology', {'planes': [{
            'name': 'front-end', 'nodes': [
                {'name': name, 'hosts': hosts, 'uplink': 1e9}
                for name, hosts in racks.items()]}]})
        wish = {'virtco:within': 'rack:required'}

        def tm(n_vms):
            return {'pattern': 'all-to-all', 'n': n_vms, 'size': '1GB'}

        # Two racks of 6 slots.
        large = self.nova.create_group('large', 7, {
            'virtco:coflow': 'large', 'virtco:tm': json.dumps(tm(7)),
            **wish})
        with self.assertRaisesRegex(nova_client.NovaError, 'No valid host'):
            self.nova.wait_active(large)
        answer = self.controller.get(f'/v1/placements/{large[0].uuid}')
        self.assertIn('6 of 7 fit at level rack', answer['why'])
        self.assertEqual({'level': 'rack', 'fitting': 6, 'wanted': 7,
                          'limiting': 'vcpus'}, answer['refused'])
        self.assertIn('wish_refused', [
            event['kind']
            for event in self.controller.get('/v1/events')['events']])
        self.nova.delete(large)
        servers = self.create(4, 'one', tm(4), hints=wish)
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
