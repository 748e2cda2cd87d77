# SPDX-License-Identifier: Apache-2.0

"""The process that the emulated datacentre starts."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
import requests

from tests import patience
from tests.unit.nova_filters import scripted_controller
from virtco_lab.emulation import nova_client
from virtco_lab.emulation import nova_stack


@pytest.fixture
def controller():
    with scripted_controller.ScriptedController(
            lambda body, uuid: scripted_controller.planned(
                ['h1', 'h0'], uuid)) as fixture:
        yield fixture


class Stack:
    def __init__(self, path, stdin=subprocess.DEVNULL, **config):
        path.write_text(json.dumps(config))
        self.process = subprocess.Popen(
            [sys.executable, '-m', 'virtco_lab.emulation.nova_stack',
             '--config', str(path)],
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True)

    def ready(self):
        line = json.loads(self.process.stdout.readline())
        assert line['ready'] is True
        assert line['image'] == nova_client.IMAGE
        return line['url']

    def ended(self):
        """Exit code and standard error."""
        patience.wait_end(self.process, 'the end of the stack')
        _out, error = self.process.communicate()
        return self.process.returncode, error


def test_a_tenant_and_a_signal(controller, tmp_path):
    log = tmp_path / 'nova.log'
    stack = Stack(tmp_path / 'c.json', hosts={'h0': 2, 'h1': 3},
                  controller_url=controller.url, listen='127.0.0.2',
                  flavors={'slot1': 1, 'big': 2}, log_file=str(log),
                  virtco={'breaker_reset_s': 1.0})
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
        stack.process.send_signal(signal.SIGTERM)
        code, error = stack.ended()
    assert code == 0, error
    assert 'nova.scheduler' in log.read_text()


@pytest.mark.full(reason='a Nova of its own',
                  still='test_a_tenant_and_a_signal, and the next')
def test_it_ends_with_its_parent(tmp_path):
    """And runs without virtco when there is no controller."""
    read, write = os.pipe()
    stack = Stack(tmp_path / 'c.json', stdin=read, hosts={'h0': 1})
    os.close(read)
    try:
        nova = nova_client.NovaClient(stack.ready())
        (server,) = nova.wait_active(nova.create_group(
            'a', 1, {'virtco:coflow': 'a'}))
        assert server.host == 'h0'
    finally:
        os.close(write)
        code, error = stack.ended()
    assert code == 0, error


def test_the_end_of_its_parent_is_heard(monkeypatch):
    read, write = os.pipe()
    with open(read) as stdin:
        monkeypatch.setattr(sys, 'stdin', stdin)
        stopping = threading.Event()
        nova_stack._stop_with_parent(stopping)
        assert not stopping.is_set()
        os.close(write)
        patience.wait_for(stopping.is_set)


def test_a_bad_configuration_says_so(tmp_path, capsys):
    path = tmp_path / 'c.json'
    for config, why in (({'hosts': {'h0': 1}, 'colour': 'red'}, 'colour'),
                        ({'hosts': {}}, 'at least one')):
        path.write_text(json.dumps(config))
        with pytest.raises(SystemExit) as end:
            nova_stack.main(['--config', str(path)])
        assert end.value.code == 2
        assert why in capsys.readouterr().err
