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

    def init(self, bed):
        self.bed, self._controller = bed, Client()
        self._planner = 'planner'

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
    monkeypatch.setattr(hosts_only.time, 'sleep', made.append)
    return made


PLANE = tree.Plane(roots=(tree.Node('r', ('a', 'b')),))


def test_hosts_are_built_and_taken_away_again(story):
    with pytest.raises(KeyError), hosts_only.cloud(
            PLANE, 8e6, debug=True) as found:
        assert found.bed == hosts_only.bed.Bed(
            {'a': 8e6, 'b': 8e6}, PLANE, link_bps=8e6, controller={
                'DEFAULT': {'debug': True}, 'probe': {'enabled': False}},
            logs=found.bed.logs)
        assert not found.bed.has_nova and found.bed.slots == 1
        assert found.bed.hosts == ('a', 'b')
        assert found.bed.logs.is_dir()
        assert story == ['build', 'start_services', 0.2]
        story.clear()
        raise KeyError
    assert story == ['close']
    assert not found.bed.logs.exists()


def test_a_check_is_waited_for_until_it_is_over(story):
    with hosts_only.cloud(PLANE, 8e6) as found:
        story.clear()
        assert found.check().state == 'done'
        assert found.check(['a'], 'discovery').state == 'done'
        assert found._controller.asked == [
            (None, 'check'), (['a'], 'discovery')]
    assert story[:2] == [('the end of the check', 2, 'planner', 4),
                         ('the end of the discovery', 0, 'planner', 4)]
