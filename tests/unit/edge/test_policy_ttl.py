# SPDX-License-Identifier: Apache-2.0

"""Which policies are taken, and when one is past its time to live."""

import json
import logging
import math
import time
import types

from msgspec import structs
import pytest

from edge_module import kept_state as state
from edge_module import policy_ttl
from tests.unit.edge import test_enforcer
from virtco import exception

POLICY = structs.replace(test_enforcer.ONE, generation=5)


@pytest.fixture
def files(tmp_path):
    return state.StateDir(str(tmp_path))


@pytest.fixture
def clock(monkeypatch):
    now = types.SimpleNamespace(s=1000.0)
    monkeypatch.setattr(policy_ttl, 'time', types.SimpleNamespace(
        monotonic=lambda: now.s, time=lambda: 1e9 + now.s))
    return now


@pytest.fixture
def held(files, clock):
    return policy_ttl.HeldPolicy('h1', files)


def document(**changes):
    return structs.replace(POLICY, **changes).to_dict()


@pytest.mark.parametrize('changes, field', [
    # Of what is older the connection knows.
    ({'generation': 5}, None), ({'generation': 4}, None),
    ({'generation': 7, 'host': 'h2'}, 'host'),
    ({'generation': 7, 'egress_bps': -1.0}, 'egress_bps')])
def test_one_that_is_not_for_us_is_refused(held, changes, field):
    assert held.take(document()) == POLICY == held.policy
    if field is None:
        taken = held.take(document(**changes))
        assert taken is held.policy and taken.generation == changes[
            'generation']
        return
    with pytest.raises(exception.PolicyInvalid, match=field):
        held.take(document(**changes))
    assert held.policy == POLICY


def test_whatever_is_heard_renews_the_policy(held, clock, caplog):
    caplog.set_level(logging.INFO)
    held.take(document())
    assert [held.count_past(1000.0 + n * POLICY.ttl_s + rest_s, -math.inf)
            for n, rest_s in ((1, 0.0), (1, 0.1), (2, -0.1), (2, 0.1), (9, 1))
            ] == [0, 1, 1, 2, 9]
    assert held.n_past == 9
    assert held.count_past(1e6, -math.inf) == policy_ttl.MOST_STEPS
    assert caplog.text.count('have shares of the link') == 1
    # Order and rates come back with the controller.
    assert not held.count_past(1e6, 1e6 - 1)
    assert not held.count_past(1e6 + POLICY.ttl_s - 1.1, 1e6 - 9)
    assert caplog.text.count('The controller is back') == 1
    assert held.count_past(1e6 + POLICY.ttl_s, 1e6 - 9) == 1
    assert not held.count_past(1e6, 1e6)


def test_a_policy_that_may_not_age_has_aged_at_once(held):
    held.take(document(ttl_s=0.0))
    assert not held.count_past(1000.0, -math.inf)
    assert held.count_past(1000.1, -math.inf) == policy_ttl.MOST_STEPS


def test_without_a_policy_nothing_is_past(held, files):
    assert held.load() is None and not held.count_past(1e12, -math.inf)
    held.save()
    assert files.load('policy') is None


@pytest.mark.parametrize('age_s, n_past', [(1.0, 0), (61.0, 1)])
def test_a_saved_policy_is_as_old_as_it_is(held, files, clock, age_s,
                                           n_past):
    held.take(document())
    held.save()
    clock.s += age_s
    again = policy_ttl.HeldPolicy('h1', files)
    assert not again.n_past
    assert again.load() == POLICY and again.n_past == n_past
    # Its time to live goes on.
    assert again.count_past(1000.1 + POLICY.ttl_s, -math.inf) == 1
    again.save()
    clock.s = 1000.1 + POLICY.ttl_s
    last = policy_ttl.HeldPolicy('h1', files)
    assert last.load() and last.n_past == 1


def test_a_clock_that_was_set_back_makes_no_policy_younger(held, files,
                                                           clock):
    held.take(document())
    held.save()
    clock.s -= 500
    again = policy_ttl.HeldPolicy('h1', files)
    again.load()
    assert not again.count_past(clock.s + POLICY.ttl_s, -math.inf)
    assert again.count_past(clock.s + POLICY.ttl_s + 0.1, -math.inf)


@pytest.mark.parametrize('saved', [
    {}, [], {'policy': {}, 'renewed_at': 1.0},
    {'policy': test_enforcer.ONE.to_dict(), 'renewed_at': 'x'},
    # Of the machine that this one is a copy of.
    {'policy': document(host='h2'), 'renewed_at': 1.0}])
def test_a_saved_policy_that_is_none_is_not_taken(held, files, saved, caplog):
    files.save('policy', saved)
    assert held.load() is None and held.policy is None
    assert 'of no use' in caplog.text


def test_a_new_policy_is_saved_at_once_and_a_renewal_in_time(held, files,
                                                             clock, tmp_path):
    path = tmp_path / 'policy.json'

    def is_saved():
        path.unlink(missing_ok=True)
        held.save()
        return path.exists()

    held.take(document())
    assert is_saved() and not is_saved()
    clock.s += 4.9
    held.count_past(clock.s, clock.s)
    assert not is_saved()
    clock.s = 1005.0
    assert is_saved() and not is_saved()
    assert json.loads(json.dumps(files.load('policy'))) is None
    held.take(document(generation=6))
    assert is_saved()
    assert files.load('policy')['renewed_at'] == pytest.approx(
        time.time() * 0 + 1e9 + 1004.9)
