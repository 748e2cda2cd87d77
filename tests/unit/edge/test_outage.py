# SPDX-License-Identifier: Apache-2.0

"""An outage is one line, and its end is one."""

import logging

import pytest

from edge_module import outage
from virtco import exception


def ask(found, answer=None):
    with found.watch():
        if answer is not None:
            raise answer


def away(why='refused'):
    return exception.ControllerUnavailable(url='http://c', why=why)


def fail(found, answer):
    with pytest.raises(type(answer)):
        ask(found, answer)


def lines(caplog):
    return [record.getMessage() for record in caplog.records
            if record.levelno > logging.DEBUG]


def test_many_failures_are_one_line(caplog):
    caplog.set_level(logging.DEBUG)
    found = outage.Outage()
    ask(found)
    found.begin('Lost the distributor: it was closed.')
    fail(found, away())
    fail(found, away('silent'))
    assert lines(caplog) == [
        'Lost the distributor: it was closed. The last policy holds.']
    ask(found)
    ask(found)
    assert len(lines(caplog)) == 2
    assert 'answers again after' in lines(caplog)[1]
    fail(found, away())
    assert len(lines(caplog)) == 3


def test_who_knows_nothing_answers_all_the_same(caplog):
    caplog.set_level(logging.INFO)
    found = outage.Outage()
    fail(found, away())
    fail(found, exception.NotFound(what='host', id='h1'))
    assert len(lines(caplog)) == 2


def test_an_answer_to_an_earlier_question_ends_nothing(caplog):
    caplog.set_level(logging.INFO)
    found = outage.Outage()
    with found.watch():
        found.begin('Gone.')
    assert lines(caplog) == ['Gone. The last policy holds.']


def test_other_errors_tell_nothing_of_the_controller(caplog):
    caplog.set_level(logging.INFO)
    found = outage.Outage()
    fail(found, away())
    fail(found, exception.PolicyInvalid(field='a', value=1, limit='b'))
    assert len(lines(caplog)) == 1
