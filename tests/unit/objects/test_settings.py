# SPDX-License-Identifier: Apache-2.0

"""The operator's run-time choices, over a real database."""

import pytest

from tests.unit import plain
from tests.unit import stored
from virtco import exception
from virtco import own_policies
from virtco.db import models
from virtco.objects import drains
from virtco.objects import settings


class Bench:
    def __init__(self, **overrides):
        self.conf = stored.conf(placement=overrides)
        self.database = stored.database()
        self.n_changes = 0

    def settings(self):
        return settings.Settings(self.conf, self.database, self.changed,
                                 lambda: 42.0)

    def changed(self):
        self.n_changes += 1

    def history(self):
        return plain.Plain(drains.History(self.database)).list()


@pytest.fixture
def bench():
    return Bench()


def test_what_is_configured_holds_until_it_is_changed(bench):
    found = bench.settings()
    found.load()
    assert found.get() == {
        'planner': bench.conf.placement.planner,
        'objective': bench.conf.placement.objective,
        'order': bench.conf.scheduler.order,
        'ceil': bench.conf.scheduler.ceil}
    assert not found.is_shadow and not found.is_fair


@pytest.mark.parametrize(('name', 'value'), [
    (name, value) for name, values in settings.CHOICES.items()
    for value in values])
def test_each_choice_is_taken_and_remembered(name, value, monkeypatch):
    monkeypatch.setattr(own_policies, 'installed', lambda: None)
    bench = Bench()
    found = bench.settings()
    assert found.change({name: value}, 'admin')[name] == value
    assert found[name] == value
    assert found.is_fair == (value == 'fair')
    assert bench.n_changes == 1
    again = bench.settings()
    again.load()
    assert again.get() == found.get()


def test_an_own_order_needs_an_installed_policy(bench, monkeypatch, caplog):
    found = bench.settings()
    with pytest.raises(exception.Invalid, match='order: .*virtco.policies'):
        found.change({'order': 'own', 'planner': 'spread'})
    assert found.get() == bench.settings().get() and not bench.n_changes
    bench.conf.set_override('order', 'own', 'scheduler')
    with pytest.raises(exception.Invalid, match='order: .*virtco.policies'):
        bench.settings()


def test_an_own_order_that_is_gone_is_not_followed(bench, monkeypatch,
                                                   caplog):
    with monkeypatch.context() as patch:
        patch.setattr(own_policies, 'installed', lambda: None)
        bench.settings().change({'order': 'own'})
    again = bench.settings()
    # Once a second.
    again.load()
    again.load()
    assert again['order'] == bench.conf.scheduler.order
    assert caplog.text.count('The stored setting is not followed: order') == 1


def test_only_what_became_another_one_is_in_the_history(bench):
    found = bench.settings()
    order = found['order']
    found.change({'order': 'fair', 'planner': found['planner']}, 'admin')
    assert bench.history() == [{
        'at': 42.0, 'who': 'admin', 'what': 'setting order',
        'before': order, 'after': 'fair'}]


def test_choices_of_another_release_are_ignored(bench):
    stored.add(bench.database, models.Setting(name='order', value='magic'),
               models.Setting(name='colour', value='fair'),
               models.Setting(name='ceil', value='rate'))
    found = bench.settings()
    before = found.get()
    found.load()
    assert found.get() == before | {'ceil': 'rate'}


def test_in_shadow_tcp_shares_the_links():
    found = Bench(mode='shadow').settings()
    assert found.is_shadow and found.is_fair
    assert found['order'] != settings.FAIR
