# SPDX-License-Identifier: Apache-2.0


import hypothesis
from hypothesis import strategies as st
import pytest

from virtco.scheduling import policing
from virtco.scheduling.policing import Account
from virtco.scheduling.policing import Report


def test_within_the_allowance_nothing_is_owed():
    account = policing.charge(Account(), [Report('a', 100, 120, 120)], 0.2)
    assert account == Account()
    assert policing.overrun_bytes(0, 1e12, 0.0) == 0.0
    assert policing.charge(Account(), [Report('a', 0, 0, 0)], 0.0
                           ) == Account()


def test_overrun_is_charged_once():
    account = Account()
    for sent, new in ((90, 90), (150, 60), (150, 0)):
        account = policing.charge(account, [Report('a', 100, sent, new)], 0.2)
    assert account.debt_bytes == pytest.approx(30)
    assert account.in_debt


def test_debt_is_paid_with_honest_bytes_from_behind():
    account = Account(debt_bytes=50.0)
    account = policing.charge(account, [Report('b', 100, 30, 30)], 0.2)
    assert account.debt_bytes == 20.0
    account = policing.charge(account, [Report('b', 100, 60, 30)], 0.2)
    assert not account.in_debt


def test_bytes_beyond_the_claim_do_not_pay():
    account = policing.charge(Account(10.0), [Report('a', 10, 100, 90)], 0.0)
    assert account.debt_bytes == pytest.approx(100.0)


def test_bytes_that_were_sent_before_pay_nothing_back():
    account = policing.charge(Account(10.0), [Report('a', 10, 100, 5)], 0.0)
    assert account == Account(100.0, (('a', 90.0),))


def test_less_than_a_byte_is_owed_too():
    account = policing.charge(Account(), [Report('a', 1, 1.5, 0.5)], 0.0)
    assert account == Account(0.5, (('a', 0.5),))
    account = policing.charge(account, [Report('b', 9, 1, 1),
                                        Report('a', 1, 2, 0.5)], 0.0)
    assert account == Account(0.5, (('a', 1.0),))


def test_raised_claim_stops_the_debt_but_forgives_nothing():
    account = policing.charge(Account(), [Report('a', 10, 50, 50)], 0.0)
    later = policing.charge(account, [Report('a', 1000, 60, 10)], 0.0)
    assert (account.debt_bytes, later.debt_bytes) == (40.0, 30.0)


def test_lowered_and_raised_claim_is_not_charged_twice():
    account = policing.charge(Account(), [Report('a', 10, 50, 50)], 0.0)
    account = policing.charge(account, [Report('a', 60, 50, 0)], 0.0)
    account = policing.charge(account, [Report('a', 10, 50, 0)], 0.0)
    assert account.debt_bytes == 40.0


def test_forgotten_coflow_leaves_the_debt():
    account = policing.charge(Account(), [Report('a', 10, 50, 50)], 0.0)
    assert policing.forget(account, 'a') == Account(40.0, ())


@hypothesis.given(st.lists(st.floats(0, 1e9), min_size=1, max_size=20),
                  st.floats(1, 1e9), st.floats(0, 1))
def test_debt_of_one_coflow_is_its_overrun(news, claimed, beta):
    """However the bytes are reported, in steps or at once."""
    account, sent = Account(), 0.0
    for new in news:
        sent += new
        account = policing.charge(
            account, [Report('a', claimed, sent, new)], beta)
    overrun = policing.overrun_bytes(claimed, sent, beta)
    assert account.debt_bytes == pytest.approx(overrun, abs=1e-3)
