# SPDX-License-Identifier: Apache-2.0

"""Whatever Nova does to a server, its row, its class and its policy follow."""

import json
import pathlib
import sqlite3

import pytest
import requests

from tests.functional.nova import controllers
from virtco_lab.emulation import nova_client
from virtco_lab.emulation import nova_cloud

OTHER_IMAGE = 'a2459075-d96c-40d5-893e-577ff92e721c'
TM = {'n': 2, 'flows': [[0, 1, '5GB']]}


class LifecycleTest(nova_cloud.Cloud):
    """One sender and one receiver, on hosts apart; every host reports."""

    hypervisors = {f'h{number}': 3 for number in range(4)}
    notify_controller = True

    def setUp(self):
        self.controller = self.useFixture(controllers.ControllerProcess())
        self.virtco_options = {
            'controller_url': self.controller.url, 'timeout_ms': 60_000,
            'request_budget_ms': 250_000}
        super().setUp()
        self.flags(shelved_offload_time=0)
        self.create_flavor('slot1')
        self.create_flavor('slot2', 2)
        self.nova = nova_client.NovaClient(self.serve_api())
        group = self.api.post_server_groups({
            'name': 'apart', 'policy': 'anti-affinity'})['id']
        self.sender, self.receiver = self.nova.wait_active(
            self.nova.create_group('a', 2, {
                'virtco:coflow': 'a', 'virtco:tm': json.dumps(TM),
                'group': group}))
        self.follows()

    def action(self, server, name, value=None):
        self.api.post_server_action(server.uuid, {name: value})

    def wait_status(self, server, status):
        self.controller.wait_for(
            lambda: self.nova.get_server(server.uuid).status == status,
            f'{server.name} is {status}')
        return self.nova.get_server(server.uuid)

    def report(self):
        """Each host reports the ports of the servers that Nova has there."""
        servers = self.nova.list_servers()
        for host in self.hypervisors:
            self.controller.streams.report(host, {
                'epoch': host, 'applied_generation': 0,
                'link': {'dev': 'up', 'egress_bps': 1e9, 'ingress_bps': 1e9},
                'ports': [{'vm': server.uuid, 'dev': f'tap{server.row}',
                           'mac': f'02:00:00:00:00:0{server.row}',
                           'ips': [f'10.0.0.{server.row}']}
                          for server in servers if server.host == host],
                'coflows': [], 'uplink_sent_bytes': 0})

    def members(self):
        """Server -> (state, host) by the model."""
        coflow = self.controller.coflows()['a']
        found = self.controller.get(f'/v1/coflows/{coflow["id"]}')
        return {member['instance_uuid']: (member['state'], member['host'])
                for member in found['members']}

    def table(self):
        """Host -> addresses and destinations of its policy."""
        found = {}
        for host in self.hypervisors:
            answer = requests.get(
                f'{self.controller.url}/v1/hosts/{host}/policy',
                timeout=controllers.DEADLINE_S)
            if not answer.ok:  # it is published a moment after the report
                return None
            policy = answer.json()
            if policy['classes']:
                (one,) = policy['classes']
                # Flows follow when the ports' addresses were reported.
                found[host] = [
                    (flow['src_ip'], flow['dst_ip'])
                    for flow in policy['flows']], [
                    destination['host'] for destination
                    in one['destinations']]
        return found

    def demand(self, server):
        """vCPUs of the server's row."""
        path = pathlib.Path(self.controller.config).with_name('virtco.sqlite')
        with sqlite3.connect(path) as connection:
            return connection.execute(
                'SELECT vcpus FROM members WHERE instance_uuid = ?',
                [server.uuid]).fetchone()[0]

    def follows(self):
        """The model, the table and the policies say what Nova says."""
        src, dst = (self.nova.get_server(server.uuid)
                    for server in (self.sender, self.receiver))
        self.assertNotEqual(src.host, dst.host)

        def says(server):
            return (('running', server.host) if server.host
                    else ('vacant', None))
        members = {server.uuid: says(server) for server in (src, dst)}
        self.controller.wait_for(lambda: self.members() == members, members)
        table = ({src.host: ([('10.0.0.0', '10.0.0.1')], [dst.host])}
                 if src.host and dst.host else {})

        def told():
            self.report()
            return self.table() == table
        self.controller.wait_for(told, table)
        self.assertEqual('active', self.controller.coflows()['a']['state'])
        return src, dst

    @pytest.mark.full(
        reason='a dozen operations of Nova',
        still='unit/follow/test_transitions and test_room, and '
              'controller/test_notifications, with the notifications that '
              'these operations end with')
    def test_lifecycle(self):
        self.check_resize_and_revert()
        self.check_shelve_and_unshelve()
        self.check_rebuild_and_evacuate()
        self.check_delete()

    def check_resize_and_revert(self):
        before = self.sender.host
        self.action(self.sender, 'resize', {'flavorRef': 'slot2'})
        moved = self.wait_status(self.sender, 'VERIFY_RESIZE')
        self.assertNotEqual(before, moved.host)
        self.follows()
        self.assertEqual(2, self.demand(self.sender))
        self.action(self.sender, 'revertResize')
        self.wait_status(self.sender, 'ACTIVE')
        src, _ = self.follows()
        self.assertEqual((before, 1), (src.host, self.demand(self.sender)))
        # And once more, for good.
        self.action(self.sender, 'resize', {'flavorRef': 'slot2'})
        self.wait_status(self.sender, 'VERIFY_RESIZE')
        self.action(self.sender, 'confirmResize')
        self.wait_status(self.sender, 'ACTIVE')
        src, _ = self.follows()
        self.assertNotEqual(before, src.host)
        self.assertEqual(2, self.demand(self.sender))

    def check_shelve_and_unshelve(self):
        self.action(self.sender, 'shelve')
        self.wait_status(self.sender, 'SHELVED_OFFLOADED')
        src, _ = self.follows()
        self.assertIsNone(src.host)
        self.action(self.sender, 'unshelve')
        self.wait_status(self.sender, 'ACTIVE')
        src, dst = self.follows()
        # It was planned again, on the row that has waited for it.
        answer = self.controller.get(f'/v1/placements/{src.uuid}')
        self.assertEqual(('planned', 0, src.host), (
            answer['status'], answer['row'], answer['host']))
        # A group that is shelved as a whole lives on.
        for server in (src, dst):
            self.action(server, 'shelve')
            self.wait_status(server, 'SHELVED_OFFLOADED')
        self.assertEqual('active', self.controller.coflows()['a']['state'])
        for server in (src, dst):
            self.action(server, 'unshelve')
            self.wait_status(server, 'ACTIVE')
        self.follows()

    def check_rebuild_and_evacuate(self):
        before = self.nova.get_server(self.receiver.uuid).host
        self.action(self.receiver, 'rebuild', {'imageRef': OTHER_IMAGE})
        self.controller.wait_for(
            lambda: 'instance.rebuild.end' in requests.get(
                f'{self.controller.url}/metrics',
                timeout=controllers.DEADLINE_S).text, 'the rebuild')
        self.wait_status(self.receiver, 'ACTIVE')
        _, dst = self.follows()
        self.assertEqual(before, dst.host)

        self.computes[before].stop()
        (service,) = (found for found in self.api.get_services(
            binary='nova-compute') if found['host'] == before)
        self.api.put_service(service['id'], {'forced_down': True})
        self.action(self.receiver, 'evacuate', {})
        self.controller.wait_for(
            lambda: self.nova.get_server(self.receiver.uuid).host != before,
            'the evacuation')
        # Since microversion 2.95 it is stopped there.
        self.wait_status(self.receiver, 'SHUTOFF')
        _, dst = self.follows()
        self.assertNotEqual(before, dst.host)

    def check_delete(self):
        self.nova.delete([self.sender, self.receiver])
        self.controller.wait_for(
            lambda: self.controller.coflows()['a']['state'] == 'retired',
            'the end of the group')
