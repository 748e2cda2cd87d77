# SPDX-License-Identifier: Apache-2.0

"""Which policies are taken, and when one is too old."""

import dataclasses
import math
import threading
import time
import types

from oslo_config import cfg
import pytest

from edge_module import conf as edge_conf
from edge_module import pull
from edge_module import state
from tests.unit.edge import test_enforcer

POLICY = dataclasses.replace(test_enforcer.ONE, generation=5)
class Link:
    """Answers as told, and then ends it."""

    def __init__(self, stop, answers):
        self.stop, self.answers = stop, list(answers)
        self.asked, self.taken = [], []
        self.epoch, self.heard_s, self.is_up = 1, -math.inf, False

    def wait_policy(self, have, wait_s):
        assert wait_s == 1.0
        self.asked.append(have)
        answer = self.answers.pop(0)
        if not self.answers:
            self.stop.set()
        return answer

    def say_taken(self, generation, error):
        self.taken.append((generation, error))


@pytest.fixture
def make(tmp_path):
    def made(answers=(), policy=None, fair=False):
        conf = cfg.ConfigOpts()
        edge_conf.register_opts(conf)
        conf([])
        conf.set_override('host', 'h1', 'edge')
        stop = threading.Event()
        link = Link(stop, answers)
        enforcer = types.SimpleNamespace(policy=policy, fair=fair)
        applied, refused = [], []

        def apply(policy, fair):
            enforcer.policy, enforcer.fair = policy, fair
            applied.append((policy, fair))

        found = pull.PolicySource(
            conf, enforcer, state.StateDir(str(tmp_path)), stop, apply,
            refused.append, link)
        found.link = link
        found.applied, found.refused = applied, refused
        return found
    return made


def answer(**changes):
    policy = dataclasses.replace(POLICY, **changes)
    return policy.generation, policy.to_dict()


def test_policies_are_applied_and_saved(make):
    found = make([answer(), None, answer(generation=6)])
    assert found.controller_up is False
    found.pull()
    assert [one.generation for one, fair in found.applied] == [5, 6]
    assert not any(fair for _, fair in found.applied)
    assert found.link.taken == [(5, None), (6, None)]
    assert found.link.asked == [None, 5, 5]
    found.link.is_up = True
    assert found.controller_up is True and not found.refused
    again = make()
    again.load()
    assert again.applied == [(found.applied[-1][0], False)]


@pytest.mark.parametrize('epochs, changes, field', [
    ((1, 1), {'generation': 5}, None),
    ((1, 1), {'generation': 4}, 'generation'),
    ((1, 2), {'generation': 4}, None),
    ((2, 1), {'generation': 4}, 'generation'),
    ((1, 1), {'generation': 7, 'host': 'h2'}, 'host'),
    ((1, 2), {'generation': 7, 'egress_bps': -1.0}, 'egress_bps')])
def test_one_that_is_not_for_us_or_older_is_refused(make, epochs, changes,
                                                    field):
    found = make()
    assert found._take(answer()[1], epochs[0]) is None
    why = found._take(answer(**changes)[1], epochs[1])
    if field is None:
        assert why is None and len(found.applied) == 2
    else:
        assert field in why and found.refused == [why]
        assert [one for one, _ in found.applied] == [POLICY]


def test_the_epoch_is_remembered_of_what_was_applied(make):
    found = make()
    found._take(answer()[1], 3)
    found._take(answer(host='h2')[1], 9)
    assert found._take(answer(generation=1)[1], 4) is None


def test_a_refusal_is_told_and_the_same_is_not_asked_for_again(make):
    found = make([answer(), answer(generation=3), None])
    found.pull()
    assert found.link.taken[1][0] == 3
    assert 'which is applied, or more' in found.link.taken[1][1]
    assert found.link.asked[2] == 3


def test_whatever_is_heard_renews_the_policy(make):
    found = make((), POLICY)
    found.link.heard_s = 1e6
    found.decay(1e6 + POLICY.ttl_s)
    assert not found.applied
    found.decay(1e6 + POLICY.ttl_s + 0.1)
    assert found.applied == [(POLICY, True)]
    found.decay(1e6 + 2 * POLICY.ttl_s)
    assert len(found.applied) == 1
    # Order and rates come back with the controller.
    found.link.heard_s = 1e6 + 2 * POLICY.ttl_s
    found.decay(1e6 + 3 * POLICY.ttl_s)
    assert found.applied[1:] == [(POLICY, False)]


def test_without_a_policy_nothing_decays(make):
    found = make()
    found.decay(1e12)
    found.save()
    found.load()
    assert not found.applied


@pytest.mark.parametrize('age_s, is_old', [(1.0, False), (61.0, True)])
def test_a_saved_policy_is_as_old_as_it_is(make, tmp_path, age_s, is_old):
    state.StateDir(str(tmp_path)).save_policy(POLICY, False, age_s)
    found = make()
    found.load()
    assert found.applied == [(POLICY, is_old)]
    # Its time to live goes on.
    found.applied.clear()
    found.enforcer.fair = False
    now_s = time.monotonic()
    found.decay(now_s + POLICY.ttl_s - age_s - 30)
    assert not found.applied
    found.decay(now_s + POLICY.ttl_s - age_s + 1)
    assert found.applied == [(POLICY, True)]


def test_what_did_not_change_is_not_saved_again(make, tmp_path):
    found = make([], POLICY)
    found.link.heard_s = time.monotonic() - 40
    found._saved_s = -math.inf
    path = tmp_path / 'policy.json'
    found.save()
    _, age_s = state.StateDir(str(tmp_path)).load_policy()
    assert 39 < age_s < 59
    path.unlink()
    found.save()
    assert not path.exists()
    found.link.heard_s += 1
    found.save()
    assert path.exists()
