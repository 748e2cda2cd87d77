# SPDX-License-Identifier: Apache-2.0

import logging

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
