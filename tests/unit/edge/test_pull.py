# SPDX-License-Identifier: Apache-2.0

"""Which policies are taken, and when one is too old."""

import dataclasses
import threading
import time
import types

from oslo_config import cfg
import pytest

from edge_module import conf as edge_conf
from edge_module import pull
from edge_module import state
from tests.unit.edge import test_enforcer
from virtco import exception

POLICY = dataclasses.replace(test_enforcer.ONE, generation=5)
AWAY = exception.ControllerUnavailable(url='u', why='w')
UNKNOWN = exception.NotFound(what='host', id='h1')


class Stop(threading.Event):
    """Nobody really waits."""

    def __init__(self):
        super().__init__()
        self.waited_s = []

    def wait(self, timeout=None):
        self.waited_s.append(timeout)
        return self.is_set()


class Client:
    """Answers as told, and then ends it."""

    def __init__(self, stop, answers):
        self.stop, self.answers = stop, list(answers)
        self.asked, self.taken = [], []
        self.now_epoch, self.heard = 1, 0.0

    def epoch(self):
        return self.now_epoch

    def heard_s(self):
        return self.heard

    def get_policy(self, etag, wait_s):
        self.asked.append((etag, wait_s))
        answer = self.answers.pop(0)
        if not self.answers:
            self.stop.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def policy_taken(self, document, error):
        self.taken.append((document['generation'], error))


@pytest.fixture
def make(tmp_path):
    def made(answers=(), policy=None, fair=False):
        conf = cfg.ConfigOpts()
        edge_conf.register_opts(conf)
        conf([])
        conf.set_override('host', 'h1', 'edge')
        conf.set_override('poll_wait_s', 25.0, 'edge')
        stop = Stop()
        client = Client(stop, answers)
        enforcer = types.SimpleNamespace(policy=policy, fair=fair)
        applied, refused = [], []

        def apply(policy, fair):
            enforcer.policy, enforcer.fair = policy, fair
            applied.append((policy, fair))

        found = pull.PolicySource(
            conf, enforcer, state.StateDir(str(tmp_path)), stop, apply,
            refused.append, lambda: client)
        found.client, found.stop = client, stop
        found.applied, found.refused = applied, refused
        return found
    return made


def answer(**changes):
    policy = dataclasses.replace(POLICY, **changes)
    return f'"{policy.generation}"', policy.to_dict()


def test_policies_are_applied_and_saved(make):
    found = make([answer(), None, answer(generation=6)])
    assert found.controller_up is None
    found.pull()
    assert [one.generation for one, fair in found.applied] == [5, 6]
    assert not any(fair for _, fair in found.applied)
    assert found.client.taken == [(5, None), (6, None)]
    assert [etag for etag, _ in found.client.asked] == [None, '"5"', '"5"']
    assert found.controller_up is True and not found.refused
    again = make()
    again.load()
    assert again.applied == [(found.applied[-1][0], True)]  # heard at 0


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
    assert found.client.taken[1][0] == 3
    assert 'which is applied, or more' in found.client.taken[1][1]
    assert found.client.asked[2][0] == '"3"'


def test_an_absent_controller_is_asked_less_and_less_often(make):
    found = make([AWAY] * 9 + [None] + [AWAY] * 2)
    found.pull()
    assert found.stop.waited_s == pytest.approx(
        [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0, 0.2, 0.4])
    assert found.controller_up is False and not found.applied


def test_a_controller_that_does_not_know_us_is_there(make):
    found = make([None, UNKNOWN, UNKNOWN, AWAY])
    found.pull()
    assert found.stop.waited_s == [0.2, 0.2, 0.2]
    unknown = make([UNKNOWN])
    unknown.pull()
    assert unknown.controller_up is None


def test_an_answer_renews_the_policy(make):
    found = make([None, None], POLICY)
    found.client.heard = 1e6
    found.pull()
    found.decay(1e6 + POLICY.ttl_s)
    assert not found.applied
    found.decay(1e6 + POLICY.ttl_s + 0.1)
    assert found.applied == [(POLICY, True)]
    found.decay(1e6 + 2 * POLICY.ttl_s)
    assert len(found.applied) == 1


def test_without_a_policy_nothing_decays(make):
    found = make()
    found.decay(1e12)
    found.save()
    found.load()
    assert not found.applied


def test_order_and_rates_come_back_with_the_controller(make):
    found = make([AWAY, None, None], POLICY, True)
    found.pull()
    assert found.applied == [(POLICY, False)]
    assert [wait_s for _, wait_s in found.client.asked] == [0.0, 0.0, 20.0]
    empty = make([None], None, True)
    empty.pull()
    assert not empty.applied


@pytest.mark.parametrize('policy, fair, wait_s', [
    (None, False, 25.0), (None, True, 25.0), (POLICY, False, 20.0),
    (POLICY, True, 0.0),
    (dataclasses.replace(POLICY, ttl_s=90.0), False, 25.0)])
def test_answers_are_waited_for_in_the_time_to_live(make, policy, fair,
                                                    wait_s):
    assert make([], policy, fair)._poll_wait_s() == wait_s


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
    found._renewed_s = time.monotonic() - 40
    path = tmp_path / 'policy.json'
    found.save()
    _, age_s = state.StateDir(str(tmp_path)).load_policy()
    assert 39 < age_s < 59
    path.unlink()
    found.save()
    assert not path.exists()
    found._renewed_s += 1
    found.save()
    assert path.exists()
