# SPDX-License-Identifier: Apache-2.0

"""Hypervisors without VMs, on a testbed that the test makes up."""

import types

import pytest

from virtco.topology import tree
from virtco.wire import check as wire
from virtco_lab.emulation import hosts_only


class Client:
    """Of a controller; a check ends when it was asked for twice."""

    def __init__(self):
        self.asked = []
        self.states = ['waiting', 'running', 'done', 'done']

    def call(self, operation, asked, purpose=None):
        if operation == wire.ORDER:
            self.asked.append((asked, purpose))
            return types.SimpleNamespace(check_id='id')
        assert asked == 'id'
        state = (self.states.pop(0) if len(self.states) > 1
                 else self.states[0])
        return types.SimpleNamespace(state=state, n_rounds_done=4)


@pytest.fixture(name='story')
def _story(monkeypatch):
    made = []

    def init(self, config):
        self.config, self._controller = config, Client()
        self.fabric, self._planner = 'fabric', 'planner'

    def wait(self, condition, what, of, progress):
        turns = 0
        while not condition():
            turns += 1
        made.append((what, turns, of, progress()))

    one = hosts_only.Cloud
    monkeypatch.setattr(one, '__init__', init)
    monkeypatch.setattr(one, '_wait', wait)
    monkeypatch.setattr(one, 'inside', lambda self, function: function())
    for name in ('build', 'start_services', 'close'):
        monkeypatch.setattr(one, name,
                            lambda self, name=name: made.append(name))
    monkeypatch.setattr(hosts_only.switches, 'grow',
                        lambda fabric, plane: made.append((fabric, plane)))
    monkeypatch.setattr(hosts_only.time, 'sleep', made.append)
    return made


PLANE = tree.Plane(roots=(tree.Node('r', ('a', 'b')),))


def test_hosts_are_built_and_taken_away_again(story):
    with pytest.raises(KeyError), hosts_only.cloud(
            PLANE, 8e6, debug=True) as found:
        assert found.config == hosts_only.testbed.Config(
            2, 8e6, found.config.logs, 1, with_nova=False, controller={
                'DEFAULT': {'debug': True}, 'probe': {'enabled': False}},
            names=('a', 'b'))
        assert found.config.hosts == ('a', 'b')
        assert found.config.logs.is_dir()
        assert story == ['build', ('fabric', PLANE), 'start_services', 0.2]
        story.clear()
        raise KeyError
    assert story == ['close']
    assert not found.config.logs.exists()


def test_a_check_is_waited_for_until_it_is_over(story):
    with hosts_only.cloud(PLANE, 8e6) as found:
        story.clear()
        assert found.check().state == 'done'
        assert found.check(['a'], 'discovery').state == 'done'
        assert found._controller.asked == [
            (None, 'check'), (['a'], 'discovery')]
    assert story[:2] == [('the end of the check', 2, 'planner', 4),
                         ('the end of the discovery', 0, 'planner', 4)]
