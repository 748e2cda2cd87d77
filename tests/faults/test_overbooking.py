# SPDX-License-Identifier: Apache-2.0

"""Parallel schedulers, alternates and build failures on each database."""

import os

import hypothesis
from hypothesis import stateful
import pytest

from tests import databases as real_databases
from tests.faults import ledger
from tests.faults import overbooking
from virtco.db import session as db_session

FULL = os.environ.get('VIRTCO_FAULTS') == 'full'


@pytest.mark.parametrize('kind', real_databases.of(
    'sqlite', real_databases.KINDS, still='the launches on SQLite; conflicts '
    'on each server are in tests/functional/services'))
def test_no_host_is_booked_twice(kind, databases, tmp_path):
    outcome = overbooking.run(kind, databases, tmp_path,
                              n_launches=2000 if FULL else 60, fullness=0.95)
    print(outcome)
    assert outcome.overbooked == []
    assert outcome.wrong == {}
    assert outcome.n_living_groups_without_members == 0
    # Something was tested. Where notifications lag behind, what left its
    # host still holds room, and VMs are refused rather than booked above it.
    n_without_room = sum(
        count for what, count in outcome.counts.items()
        if what.startswith('neutral: no valid placement'))
    assert outcome.counts['neutral'] == n_without_room
    assert n_without_room < 0.3 * outcome.counts['planned']
    assert outcome.counts['failed builds'] > 0
    # Others are VMs' that went to an alternate there, or where Nova alone
    # chose, and of which it has not told yet.
    assert outcome.counts['refused though known'] <= (
        0.01 * outcome.counts['planned'])


@pytest.mark.parametrize('kind', real_databases.of(
    None, list(real_databases.SERVERS),
    still='the stories on SQLite, tests/unit/place/test_ledger.py'))
def test_no_story_books_above_a_capacity(kind, databases, tmp_path):
    class Launches(ledger.Launches):
        def make_database(self):
            return db_session.Database(
                databases.make_current(kind, tmp_path), 20)

    stateful.run_state_machine_as_test(
        Launches, settings=hypothesis.settings(
            ledger.SETTINGS, max_examples=20))
