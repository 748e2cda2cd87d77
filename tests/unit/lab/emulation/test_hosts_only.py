# SPDX-License-Identifier: Apache-2.0

"""Hypervisors without VMs, with services that the test makes up."""

import types

import pytest

from virtco.topology import tree
from virtco_lab.emulation import hosts_only


class Client:
    """Of a controller; the test says what it answers."""

    def __init__(self, url):
        assert url == 'http://172.30.0.1:8791'
        Client.made = self
        self.asked = []
        self.n_hosts = [0, ValueError(), 1, 2]
        self.states = ['waiting', 'running', 'done', 'done']

    def hosts(self):
        found = (self.n_hosts.pop(0) if len(self.n_hosts) > 1
                 else self.n_hosts[0])
        if isinstance(found, Exception):
            raise found
        return ['x'] * found

    def check(self, hosts, purpose):
        self.asked.append((hosts, purpose))
        return types.SimpleNamespace(check_id='id')

    def check_state(self, check_id):
        assert check_id == 'id'
        state = (self.states.pop(0) if len(self.states) > 1
                 else self.states[0])
        return types.SimpleNamespace(state=state, n_rounds_done=4)


@pytest.fixture(name='story')
def _story(monkeypatch):
    made = []

    class Fabric:
        control, control_address = 'control', '172.30.0.1'
        hypervisors = {'h0': None, 'h1': None}

        def __init__(self, run):
            assert run == 'abc123'

        def __enter__(self):
            return self

        def __exit__(self, *error):
            made.append('closed')

        def build(self, rates_bps):
            made.append(list(rates_bps.items()))

    def start(name):
        def call(*args):
            made.append((f'start {name}', *args[1:3 if name == 'edge'
                                                else None]))
            return types.SimpleNamespace(
                name=name, stop=lambda: made.append(f'stop {name}'))
        return call

    def wait_until(condition, what, children, *, interval_s, progress=None):
        turns = 0
        while not condition():
            turns += 1
        made.append((what, turns, len(children), interval_s,
                     progress and progress()))

    monkeypatch.setattr(hosts_only.namespaces, 'new_run', lambda: 'abc123')
    monkeypatch.setattr(hosts_only.namespaces, 'call', lambda name, function: (
        function() if name == 'control' else None))
    fabric = hosts_only.fabric_module
    monkeypatch.setattr(fabric.janitor, 'Janitor', lambda run: (
        types.SimpleNamespace(dismiss=lambda: made.append('dismissed'))))
    monkeypatch.setattr(fabric, 'Fabric', Fabric)
    monkeypatch.setattr(hosts_only.switches, 'grow',
                        lambda fabric, plane: made.append('grown'))
    monkeypatch.setattr(hosts_only.v1, 'Client', Client)
    monkeypatch.setattr(hosts_only.process, 'wait_until', wait_until)
    monkeypatch.setattr(hosts_only.time, 'sleep', made.append)
    for name in ('controller', 'edge'):
        monkeypatch.setattr(hosts_only.services, f'start_{name}', start(name))
    return made


PLANE = tree.Plane(roots=(tree.Node('r', ('h0', 'h1')),))


def test_hosts_are_built_and_taken_away_again(story):
    with pytest.raises(KeyError), hosts_only.cloud(
            PLANE, 8e6, debug=True) as found:
        state = found.log.parent
        assert found.log.name == 'controller.log' and state.is_dir()
        assert story == [
            [('h0', 8e6), ('h1', 8e6)], 'grown',
            ('start controller', state, state, True,
             {'probe': {'enabled': False}}),
            ('start edge', 'h0', 8e6), ('start edge', 'h1', 8e6),
            # None of them answered at first, nor one of them later.
            ('all edge modules', 3, 3, 0.2, None), 0.2]
        story.clear()
        raise KeyError
    assert story == ['stop edge', 'stop edge', 'stop controller', 'closed',
                     'dismissed']
    assert not state.exists()


def test_a_check_is_waited_for_until_it_is_over(story):
    with hosts_only.cloud(PLANE, 8e6) as found:
        story.clear()
        assert found.check().state == 'done'
        assert found.check(['h0'], 'discovery').state == 'done'
    assert Client.made.asked == [(None, 'check'), (['h0'], 'discovery')]
    assert story[:2] == [('the end of the check', 2, 3, 0.2, 4),
                         ('the end of the discovery', 0, 3, 0.2, 4)]
