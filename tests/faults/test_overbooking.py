# SPDX-License-Identifier: Apache-2.0

"""Parallel schedulers, alternates and build failures on each database."""

import os

import pytest

from tests import databases as real_databases
from tests.faults import overbooking

FULL = os.environ.get('VIRTCO_FAULTS') == 'full'


@pytest.mark.parametrize('kind', real_databases.of(
    'sqlite', real_databases.KINDS, still='the launches on SQLite; conflicts '
    'on each server are in tests/functional/services'))
def test_no_host_is_booked_twice(kind, databases, tmp_path):
    outcome = overbooking.run(kind, databases, tmp_path,
                              n_launches=2000 if FULL else 60)
    overbooking.show(outcome)
    assert outcome.overbooked == []
    assert outcome.wrong == {}
    assert outcome.n_living_groups_without_members == 0
    # Something was tested.
    assert outcome.counts['planned'] > 0.9 * (2000 if FULL else 60)
    assert outcome.counts['failed builds'] > 0
    # A VM went to an alternate there, and Nova has not told yet.
    assert outcome.counts['refused by placement'] <= 2 + (
        0.02 * outcome.counts['planned'])
