# SPDX-License-Identifier: Apache-2.0

"""Whatever is said is handed on, the newest report of each host alone."""

import logging

import pytest

from tests import patience
from virtco import periodic
from virtco.distribute import intake


def make():
    """An intake, and the list of all that it handed over."""
    said = []
    return intake.Intake(lambda *args: said.append(args),
                         lambda hosts: said.append(hosts)), said


def test_an_outage_is_one_line_and_its_end_another(caplog):
    caplog.set_level(logging.INFO, logger='virtco')
    taken, failures = [], []

    def report(host, said):
        if said['is_lost']:
            raise OSError('no database')
        taken.append(host)

    found = intake.Intake(report, lambda hosts: None,
                          lambda: failures.append(1))
    for is_lost in (True, True, True, False, False):
        for host in ('h0', 'h1'):
            found.add_report(host, {'is_lost': is_lost})
        found._take()
    assert len(failures) == 6
    assert len(taken) == 4
    assert [record.getMessage() for record in caplog.records] == [
        'Cannot take in what edges say: no database',
        'What edges say is taken in again; 6 reports or measurements were '
        'lost.']


def test_its_thread_hands_over_whatever_comes_and_ends_with_it():
    found, taken = make()
    found.start()
    for add, args, said in (
            (found.add_report, ('h0', 1), ('h0', 1)),
            (found.add_heard, (['h1'],), {'h1'}),
            (found.add_newest, ('h2', taken.append, 6), 6),
            (found.add, (taken.append, 7), 7)):
        n_before = len(taken)
        add(*args)
        patience.wait_for(lambda: len(taken) > n_before, 'what was added')
        assert taken[-1] == said
    found.stop()
    assert not found.is_alive()


def test_calls_of_nova_go_first(monkeypatch):
    monkeypatch.setattr(periodic, 'AHEAD_S', 60.0)
    found, taken = make()
    busy, waited = [True, True, False], []
    found._is_answering = lambda within_s: (
        waited.append((within_s, *taken)), busy.pop(0))[1]
    found.start()
    found.add_report('h0', 1)
    patience.wait_for(lambda: taken, 'the report')
    assert waited == [(intake.TAKES_S,)] * 3
    busy.append(False)
    found.stop()


def test_what_comes_shortly_after_is_taken_in_one_go(monkeypatch):
    monkeypatch.setattr(intake, 'GATHERED_S', 60.0)
    found, taken = make()
    found.start()
    found.add_report('h0', 1)
    patience.wait_for(lambda: taken, 'the first one is taken at once')
    for number in (2, 3):
        found.add_report('h0', number)
        found.add_report('h1', number)
    found.stop()
    assert taken == [('h0', 1), ('h0', 3), ('h1', 3)]


@pytest.mark.parametrize('add, told', [
    (lambda found, said: found.add_report('h1', 1), ('h1', 1)),
    (lambda found, said: found.add_heard(['h1']), {'h1'}),
    (lambda found, said: found.add_newest('h1', said.append, 6), 6),
    (lambda found, said: found.add(said.append, 7), 7)])
def test_what_arrives_wakes_the_intake(add, told):
    found, said = make()
    found.start()
    patience.wait_for(lambda: found._there_is_some._waiters, 'it to wait')
    add(found, said)
    patience.wait_for(lambda: said == [told], 'what was said')
    patience.wait_for(lambda: found._there_is_some._waiters, 'it to wait')
    found.stop()
    assert not found.is_alive() and said == [told]


def test_what_arrived_is_handed_over_at_the_end():
    found, said = make()
    found.add_report('h1', 1)
    found.add(said.append, 7)
    found.start()
    found.stop()
    assert said == [('h1', 1), 7] and not found.is_alive()


def test_the_newest_report_of_each_host_is_kept():
    found, said = make()
    for number in range(2):
        found.add_report('h0', number)
        found.add_report('h1', number)
    found._take()
    assert said == [('h0', 1), ('h1', 1)]
    said.clear()
    found._take()
    assert said == []


def test_the_last_report_of_an_epoch_is_kept_too():
    found, said = make()
    for number, epoch in enumerate('aabab'):
        found.add_report('h0', number, epoch)
    found.add_report('h1', 5, 'a')
    found._take()
    assert said == [('h0', 3), ('h0', 4), ('h1', 5)]


def test_epochs_without_end_are_bounded():
    found, said = make()
    for number in range(intake.MOST_EPOCHS + 2):
        found.add_report('h0', number, str(number))
    found._take()
    assert said == [('h0', number)
                    for number in range(2, intake.MOST_EPOCHS + 2)]


def test_hosts_without_news_are_told_before_reports_are_read():
    found, said = make()
    found.add_report('h0', 1)
    found.add_heard(['h0', 'h1'])
    found._take()
    assert said == [{'h1'}, ('h0', 1)]


def test_what_a_report_takes_is_told_once():
    def work(_host, n_rounds):
        for _ in range(n_rounds):
            sum(range(1000))

    found = intake.Intake(work, lambda hosts: None)
    found.add_report('h0', 1)
    found.add_report('h1', 1000)
    found._take()
    few_s, many_s = map(found.take_spent_s, ('h0', 'h1'))
    assert 0 < few_s < many_s
    found.add_report('h1', 1000)
    found._take()
    found.add_report('h1', 1000)
    found._take()
    assert found.take_spent_s('h1') > many_s
    assert found.take_spent_s('h1') == found.take_spent_s('h2') == 0


def test_all_else_is_handed_over_in_order_and_bounded():
    found, said = make()
    for number in range(intake.MOST_OTHERS + 2):
        found.add(said.append, number)
    found._take()
    assert said == list(range(2, intake.MOST_OTHERS + 2))
    said.clear()
    found._take()
    assert said == []


def test_one_that_fails_does_not_keep_the_others():
    """Failures are counted until one succeeds."""
    failures, said = [], []

    def fail(*args):
        raise OSError

    found = intake.Intake(fail, fail, lambda: failures.append(1))
    found.add_report('h1', 1)
    found.add_heard(['h2'])
    found.add(fail, 7)
    found._take()
    assert len(failures) == found._n_lost == 3
    found.add(said.append, 8)
    found._take()
    assert (len(failures), found._n_lost, said) == (3, 0, [8])


def test_failures_need_not_be_counted():
    found = intake.Intake(lambda *args: 1 / 0, lambda hosts: None)
    found.add_report('h1', 1)
    found._take()
    assert found._n_lost == 1
