# SPDX-License-Identifier: Apache-2.0

import logging

from tests import patience
from virtco.distribute import intake


def test_an_outage_is_one_line_and_its_end_another(caplog):
    caplog.set_level(logging.INFO, logger='virtco')
    taken, failures = [], []

    def report(host, said):
        if said['is_lost']:
            raise OSError('no database')
        taken.append(host)

    found = intake.Intake(report, lambda hosts: None, lambda rate: None,
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
    taken = []
    found = intake.Intake(
        lambda *args: taken.append(args), lambda hosts: taken.append(hosts),
        lambda rate: taken.append(rate), lambda: None)
    found.start()
    for add, args, said in (
            (found.add_report, ('h0', 1), ('h0', 1)),
            (found.add_heard, (['h1'],), {'h1'}),
            (found.add_measurement, (7,), 7)):
        n_before = len(taken)
        add(*args)
        patience.wait_for(lambda: len(taken) > n_before, 'what was added')
        assert taken[-1] == said
    found.stop()
    assert not found._thread.is_alive()


def test_the_newest_report_and_the_newest_measurements_are_kept():
    taken = []
    found = intake.Intake(
        lambda *args: taken.append(args), lambda hosts: taken.append(hosts),
        lambda rate: taken.append(rate), lambda: None)
    for number in range(2):
        found.add_report('h0', number)
    for number in range(intake.MOST_MEASUREMENTS + 2):
        found.add_measurement(number)
    found._take()
    assert taken[0] == ('h0', 1)
    assert taken[1:] == list(range(2, intake.MOST_MEASUREMENTS + 2))
    taken.clear()
    found._take()
    assert taken == []
