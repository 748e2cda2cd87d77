# SPDX-License-Identifier: Apache-2.0

"""The door of the room, and what the loop counts and publishes."""

import types

import prometheus_client
import pytest

from tests.unit import stored
from virtco import metrics
from virtco.decide import decide
from virtco.decide import loop
from virtco.decide import policy_documents
from virtco.decide import publisher
from virtco.decide import waiting
from virtco.model import states
from virtco.state import summary


def make():
    """The door alone: its rooms are looked at in their own tests."""
    found = object.__new__(decide.Decide)
    found.publisher = publisher.Publisher()
    return found


class Part:
    """A room's part that notes what it is told, with its name."""

    def __init__(self, name, told):
        self._name, self._told = name, told

    def __getattr__(self, call):
        return lambda *args: self._told.append((self._name, call, *args))


def test_what_begins_and_ends_with_the_room():
    told = []
    door = make()
    for name in ('orders', 'checks', 'loop', 'prober', 'publisher'):
        setattr(door, name, Part(name, told))
    door.start()
    assert told == [('loop', 'run_once'), ('loop', 'start'),
                    ('orders', 'start')]
    told.clear()
    door.lead(leads := object())
    assert door.loop.leads is leads
    # What is computed from here on is published at once.
    assert told == [('orders', 'lead'), ('loop', 'notify', True)]
    told.clear()
    door.stop()
    assert sorted(told) == [('checks', 'stop'), ('loop', 'stop')]


def test_where_coflows_wait_is_found_once_for_each_schedule(monkeypatch):
    monkeypatch.setattr(waiting, 'find', lambda *of: {'c': of})
    door = make()
    door.loop = types.SimpleNamespace()
    for _ in range(2):
        policies = door.loop.policies = policy_documents.none()
        found = door.waiting()
        assert found == {'c': (policies.schedule, policies.snapshot)}
        assert door.waiting() is found


class Settings:
    def __init__(self):
        self.is_shadow = False


class State:
    live = None

    def refresh(self):
        pass

    @staticmethod
    def has_database():
        return True


@pytest.fixture
def made():
    conf = stored.conf()
    found = loop.Loop(conf, State(), Settings(), publisher.Publisher(),
                      metrics.Metrics(), lambda: 5.0)
    found.told = []
    found.look = lambda: found.told.append('look')
    found.publish = lambda now_s: found.told.append(now_s) or []
    return found


def test_who_does_not_lead_only_looks(made):
    """What was only looked at was never published, so it is computed anew.
    """
    first = made.policies
    made.run_once()
    assert made.told == [5.0] and made.policies is first
    made.leads = lambda: False
    made.run_once()
    made.run_once()
    assert made.told == [5.0, 'look', 'look'] and made.policies is first
    made.leads = lambda: True
    made.run_once()
    assert made.told[3:] == [5.0] and made.policies is not first
    second = made.policies
    made.run_once()
    assert made.policies is second


def status(state, span=None, planned_s=None):
    return summary.Status(**{
        name: None for name in summary.Status.__dataclass_fields__} | {
        'coflow_id': 'c', 'state': state, 'iteration': 1, 'span': span,
        'planned_cct_s': planned_s})


class Span:
    cct_s, cct_error_s = 6.0, 0.5


def test_ends_are_counted(made):
    changed = [
        status(states.CoflowState.ACTIVE, Span, 3.0),
        status(states.CoflowState.DONE, Span, 4.0),
        status(states.CoflowState.DONE, Span),
        status(states.CoflowState.DONE, Span, 0.0),
        # All of it stayed within hosts.
        status(states.CoflowState.DONE, None, 3.0)]
    made.publish = lambda now_s: changed
    made.run_once()
    text = prometheus_client.generate_latest(
        made._metrics.registry).decode()
    found = dict(line.rsplit(' ', 1) for line in text.splitlines()
                 if line.startswith('virtco_coflow'))
    assert {name: float(number) for name, number in found.items()
            if name.endswith(('_sum', '_count', 'ends_total'))} == {
        'virtco_coflow_ends_total': 4.0,
        'virtco_coflow_cct_seconds_sum': 18.0,
        'virtco_coflow_cct_seconds_count': 3.0,
        'virtco_coflow_cct_ratio_sum': 1.5,
        'virtco_coflow_cct_ratio_count': 1.0}
    shadowed = made._metrics.shadow_coflows.labels('slower')._value
    assert shadowed.get() == 0
    made._settings.is_shadow = True
    made.run_once()
    assert shadowed.get() == 1
