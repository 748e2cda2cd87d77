# SPDX-License-Identifier: Apache-2.0

"""What tests with a real virtco-controller process share."""

import json
import pathlib
import signal
import sys

import fixtures
import requests

from tests import forks
from tests import patience
from tests.functional.controller import stream
from virtco_lab.emulation import nova_client
from virtco_lab.emulation import nova_cloud
from virtco_lab.services import service

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
        port, = service.free_ports(1)
        self.url = f'http://127.0.0.1:{port}'
        self.config = home / 'virtco.conf'
        self.log = home / 'log'
        self.config.write_text(
            f'[api]\nhost = 127.0.0.1\nport = {port}\n'
            '[distributor]\nport = 0\n'
            f'[database]\nconnection = sqlite:///{home}/virtco.sqlite\n'
            '[controller]\nreap_interval_s = 0.2\ndb_timeout_s = 20\n'
            '[placement]\ndeadline_s = 50\nattempts = 100\n'
            + self.options)
        self.process = None
        self.streams = stream.Streams(self)
        self.addCleanup(self.streams.close)
        self.addCleanup(self.kill)
        self.start()

    def start(self):
        with self.log.open('ab') as log:
            self.process = forks.Popen(
                [sys.executable, '-m', 'virtco.cmd.controller',
                 '--config-file', str(self.config)], stdout=log, stderr=log)
        patience.wait_for(self._is_ready, 'the start of the controller',
                          log=self.log)

    def log_text(self):
        return self.log.read_text()

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
        patience.wait_for(check, what, log=self.log, poll_s=0.2)


class RealControllerTest(nova_cloud.Cloud):
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
