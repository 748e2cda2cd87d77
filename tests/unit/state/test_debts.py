# SPDX-License-Identifier: Apache-2.0

"""Debts of projects, by the bytes that their coflows claim and send."""

import collections

import hypothesis
from hypothesis import strategies as st
import pytest

from virtco.state import byte_counters
from virtco.state import debts


class Debts(debts.Debts):
    """With the coflows that owe."""

    def __init__(self, *args, **values):
        super().__init__(*args, **values)
        self.coflows = collections.defaultdict(
            lambda: byte_counters.CoflowProgress([0.0]))


def charged(found, sent_bytes, new_bytes, claimed_bytes=100.0, name='c',
            project_id='p'):
    found.coflows[name].excess_bytes = sent_bytes
    found.charge(project_id, claimed_bytes, found.coflows[name], new_bytes)
    return found.owed_bytes(project_id)


@pytest.fixture
def found():
    return Debts()


def test_the_honest_have_no_account(found):
    assert charged(found, 150.0, 150.0) == 0
    assert charged(found, 1e9, 1e9, claimed_bytes=0.0) == 0
    assert (found.all(), found.take_unsaved()) == ({}, {})


def test_an_overrun_is_owed_once_and_paid_by_what_was_claimed(found):
    assert charged(found, 250.0, 250.0) == 100.0
    assert charged(found, 250.0, 0.0) == 100.0
    assert found.all() == {'p': 100.0}
    assert charged(found, 60.0, 60.0, name='d') == 40.0
    assert charged(found, 100.0, 40.0, name='d') == 0.0
    assert found.all() == {}


def test_the_next_iteration_has_an_allowance_of_its_own(found):
    charged(found, 250.0, 250.0)
    del found.coflows['c']
    assert charged(found, 250.0, 250.0) == 50.0 + 50.0


def test_no_debt_is_above_the_bound():
    found = Debts(most_bytes=30.0)
    assert charged(found, 250.0, 250.0) == 30.0
    off = Debts(most_bytes=0.0)
    assert charged(off, 250.0, 250.0) == 0.0
    assert off.all() == {}


def test_debts_are_saved_until_the_database_has_them(found):
    charged(found, 250.0, 250.0)
    unsaved = found.take_unsaved()
    assert unsaved == {'p': 100.0}
    assert found.take_unsaved() == {}
    charged(found, 260.0, 10.0)
    found.not_saved(unsaved)
    assert found.take_unsaved() == {'p': 110.0}
    found.forgive('p')
    assert found.take_unsaved() == {'p': 0.0}
    again = debts.Debts()
    again.load({'p': 7.0, 'q': 0.0, 'r': 0.5})
    assert again.all() == {'p': 7.0, 'r': 0.5}


def test_what_is_forgiven_is_not_charged_again(found):
    charged(found, 250.0, 250.0)
    found.forgive('p')
    assert charged(found, 250.0, 0.0) == 0.0
    assert charged(found, 260.0, 10.0) == 10.0


def test_a_part_of_a_byte_is_owed_too(found):
    assert charged(found, 150.5, 150.5) == 0.5
    assert found.all() == {'p': 0.5}


def test_what_was_not_saved_is_saved_with_the_next(found):
    charged(found, 250.0, 250.0)
    unsaved = found.take_unsaved()
    charged(found, 160.0, 160.0, name='d', project_id='q')
    found.not_saved(unsaved)
    assert found.take_unsaved() == {'p': 100.0, 'q': 10.0}
    assert found.take_unsaved() == {}


def test_bytes_beyond_the_claim_do_not_pay(found):
    found.load({'p': 10.0})
    found.tolerance = 0.0
    assert charged(found, 100.0, 90.0, 10.0) == pytest.approx(100.0)


def test_bytes_that_were_sent_before_pay_nothing_back(found):
    found.load({'p': 10.0})
    found.tolerance = 0.0
    assert charged(found, 100.0, 5.0, 10.0) == 100.0


def test_another_coflow_pays_what_is_not_new(found):
    found.tolerance = 0.0
    assert charged(found, 1.5, 0.5, 1.0) == 0.5
    assert charged(found, 1.0, 1.0, 9.0, 'd') == 0.0
    assert charged(found, 2.0, 0.5, 1.0) == 0.5


def test_a_raised_claim_stops_the_debt_and_forgives_nothing(found):
    found.tolerance = 0.0
    assert charged(found, 50.0, 50.0, 10.0) == 40.0
    assert charged(found, 60.0, 10.0, 1000.0) == 30.0


def test_a_lowered_and_raised_claim_is_not_charged_twice(found):
    found.tolerance = 0.0
    for claimed_bytes, new_bytes in ((10.0, 50.0), (60.0, 0.0), (10.0, 0.0)):
        assert charged(found, 50.0, new_bytes, claimed_bytes) == 40.0


@hypothesis.given(st.lists(st.floats(0, 1e9), min_size=1, max_size=20),
                  st.floats(1, 1e9), st.floats(0, 1))
def test_the_debt_of_one_coflow_is_its_overrun(news, claimed_bytes, beta):
    """However the bytes are reported, in steps or at once."""
    found, sent_bytes = Debts(), 0.0
    found.tolerance = beta
    for new_bytes in news:
        sent_bytes += new_bytes
        owed_bytes = charged(found, sent_bytes, new_bytes, claimed_bytes)
    assert owed_bytes == pytest.approx(
        max(0.0, sent_bytes - claimed_bytes * (1 + beta)), abs=1e-3)
