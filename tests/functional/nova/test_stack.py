# SPDX-License-Identifier: Apache-2.0

"""The process that the emulated datacentre starts."""

import json
import subprocess
import sys

import pytest
import requests

from tests import patience
from tests.unit.nova_filters import scripted_controller
from virtco_lab.emulation import nova_client


@pytest.fixture
def controller():
    with scripted_controller.ScriptedController(
            lambda body, uuid: scripted_controller.planned(
                ['h1', 'h0'], uuid)) as fixture:
        yield fixture


class Stack:
    def __init__(self, controller, log, hosts, flavors):
        self.process = subprocess.Popen(
            [sys.executable, '-m', 'virtco_lab.emulation.nova_stack'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.process.stdin.write(json.dumps({
            'hosts': hosts, 'controller_url': controller.url,
            'listen': '127.0.0.2', 'flavors': flavors,
            'log_file': str(log)}) + '\n')
        self.process.stdin.flush()

    def ready(self):
        return json.loads(self.process.stdout.readline())['url']

    def ended(self):
        """Exit code and standard error, once standard input has ended."""
        _out, error = self.process.communicate()
        return self.process.returncode, error


def test_tenants_of_a_stack(controller, tmp_path):
    log = tmp_path / 'nova.log'
    stack = Stack(controller, log, {'h0': 2, 'h1': 3},
                  {'slot1': 1, 'big': 2})
    try:
        url = stack.ready()
        assert url.startswith('http://127.0.0.2:')
        alice = nova_client.NovaClient(url, project_id='a' * 32)
        bob = nova_client.NovaClient(url, project_id='b' * 32)
        servers = alice.wait_active(alice.create_group(
            'a', 2, {'virtco:coflow': 'a', 'virtco:tm': '[[0,1],[1,0]]'}))
        assert [(s.name, s.row, s.host) for s in servers] == [
            ('a-1', 0, 'h1'), ('a-2', 1, 'h1')]
        assert {body['project_id'] for _uuid, body in controller.calls} == {
            'a' * 32}
        assert bob.list_servers() == []
        # One slot is left on h1 and two on h0.
        (big,) = bob.wait_active(bob.create_group('b', 1, {}, flavor='big'))
        assert big.host == 'h0'
        with pytest.raises(nova_client.NovaError, match='No valid host'):
            bob.wait_active(bob.create_group('c', 2, {}))
        with pytest.raises(nova_client.NovaError, match='HTTP 404'):
            bob.get_server(nova_client.IMAGE)
        # What any client of Nova sends, without our headers.
        versions = requests.get(url.rsplit('/', 1)[0], timeout=600).json()
        assert versions['versions']
        alice.delete(servers)
        assert alice.list_servers() == []
        patience.wait_for(
            lambda: any(body['event_type'] == 'instance.delete.end'
                        for body in controller.notifications),
            'the notification of a deletion')
    finally:
        code, error = stack.ended()
    assert code == 0, error
    assert 'nova.scheduler' in log.read_text()
