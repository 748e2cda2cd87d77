# SPDX-License-Identifier: Apache-2.0

"""The controller ends, or loses what it knows, and Nova goes on."""

import sys

import pytest
import requests

from tests import forks
from tests.functional.nova import controllers


class RestartTest(controllers.RealControllerTest):
    hypervisors = {'h0': 4, 'h1': 4, 'h2': 4}

    @pytest.mark.full(
        reason='a cloud of its own',
        still='test_faults of this folder, controller/test_faults, '
              'and unit tests of the client and the notifier')
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
                timeout=controllers.DEADLINE_S)
            if not found.ok:  # the breaker was still open
                self.nova.delete(servers)
            return found.ok
        self.controller.wait_for(planned_again, 'planning goes on')
        metrics = requests.get(self.controller.url + '/metrics',
                               timeout=controllers.DEADLINE_S).text
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
