# SPDX-License-Identifier: Apache-2.0

"""The installed policy of one's own."""

from importlib import metadata
import sys
import threading

import pytest

from tests import patience
from virtco import exception
from virtco import own_policies
from virtco.scheduling import own_policy
from virtco.scheduling import sincronia

COFLOWS = [own_policy.Unfinished(c, 0.0, weight, 0.0, 1.0, 1, alone_s,
                                 [alone_s])
           for c, (alone_s, weight) in enumerate(
               [(8.0, 1.0), (9.0, 3.0), (4.0, 1.0)])]


class Broken:
    is_broken = True

    def order(self, coflows):
        return [] if self.is_broken else coflows

    def rates(self, coflows):
        if self.is_broken:
            raise ValueError('no rates')
        return [0.5] * len(coflows)


@pytest.fixture
def install(monkeypatch):
    def installed(*names, value='virtco.scheduling.sincronia:Sincronia'):
        monkeypatch.setattr(metadata, 'entry_points', lambda group: [
            metadata.EntryPoint(name, value, group) for name in names])
        own_policies.installed.cache_clear()
    yield installed
    own_policies.installed.cache_clear()


def test_the_installed_policy_orders(install):
    install('mine')
    policy = own_policies.named('own')
    assert policy.own.order(COFLOWS) == sincronia.Sincronia().order(COFLOWS)
    assert policy.own.rates(COFLOWS) == [0.0] * 3
    assert own_policies.named('mrtf') == 'mrtf'


@pytest.mark.parametrize('names, told', [((), 'none'), (('b', 'a'), 'a, b')])
def test_there_is_one_policy(install, names, told):
    install(*names)
    with pytest.raises(exception.Invalid, match=(
            rf'order: expected one .*virtco.policies \(there is: {told}\)')):
        own_policies.installed()


@pytest.mark.parametrize('value', [
    'builtins:dict', 'no_such_module:Policy',
    'tests.unit.test_own_policies:NoSuchName'])
def test_a_policy_that_cannot_be_loaded_is_named(install, value):
    install('mine', value=value)
    with pytest.raises(exception.Invalid, match=value):
        own_policies.installed()


def test_a_policy_that_fails_harms_nobody(caplog):
    policy = Broken()
    guarded = own_policies.Guarded(policy)
    for _ in range(2):
        assert [c.number for c in guarded.order(COFLOWS)] == [1, 2, 0]
        assert guarded.rates(COFLOWS) == [0.0] * 3
    assert caplog.text.count('order of the installed policy failed') == 1
    assert caplog.text.count('rates of the installed policy failed') == 1
    policy.is_broken = False
    assert guarded.order(COFLOWS) == COFLOWS
    assert guarded.rates(COFLOWS) == [0.5] * 3
    policy.is_broken = True
    guarded.order(COFLOWS)
    assert caplog.text.count('order of the installed policy failed') == 2


class Stuck:
    """Answers when told to, or never.

    :param wait: what it does meanwhile.
    """

    def __init__(self, wait):
        self.wait = wait
        self.n_asked = 0

    def order(self, coflows):
        self.n_asked += 1
        self.wait()
        return coflows


def loop_for_ever():
    while True:
        pass


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(own_policies, 'PATIENCE_S', 0.05)
    monkeypatch.setattr(own_policies, 'REST_S', 0.2)


def test_a_policy_that_loops_is_ended_and_rests(impatient, caplog):
    policy = Stuck(loop_for_ever)
    guarded = own_policies.Guarded(policy)
    for _ in range(3):
        assert [c.number for c in guarded.order(COFLOWS)] == [1, 2, 0]
        assert guarded.rates(COFLOWS) == [0.0] * 3
    assert policy.n_asked == 1
    assert caplog.text.count("TimeoutError('no answer in 0.05 s')") == 1
    guarded._thread.join()
    policy.wait = lambda: None
    patience.wait_for(lambda: guarded.order(COFLOWS) == COFLOWS,
                      'the end of its rest')


def test_a_policy_that_waits_is_not_asked_before_its_answer(impatient):
    over = threading.Event()
    policy = Stuck(over.wait)
    guarded = own_policies.Guarded(policy)
    guarded.order(COFLOWS)
    guarded._rests_until_s = 0.0
    assert [c.number for c in guarded.order(COFLOWS)] == [1, 2, 0]
    assert policy.n_asked == 1
    over.set()
    guarded._thread.join()


def test_a_policy_that_exits_harms_nobody(caplog):
    guarded = own_policies.Guarded(Stuck(sys.exit))
    assert [c.number for c in guarded.order(COFLOWS)] == [1, 2, 0]
    assert 'SystemExit' in caplog.text


def test_the_time_of_answers_is_known():
    before_s = own_policies.Guarded.spent_s
    guarded = own_policies.Guarded(Stuck(lambda: sum(range(10 ** 5))))
    assert guarded.order(COFLOWS) == COFLOWS
    assert own_policies.Guarded.spent_s > before_s


def test_rates_that_fail_beside_an_order_are_told_once(caplog):
    guarded = own_policies.Guarded(Broken())
    guarded._policy.order = lambda coflows: coflows
    for _ in range(3):
        assert guarded.order(COFLOWS) == COFLOWS
        assert guarded.rates(COFLOWS) == [0.0] * 3
    assert caplog.text.count('of the installed policy failed') == 1
