# SPDX-License-Identifier: Apache-2.0

"""What the comparison of estimates says, with seeds that it does not use."""

import numpy as np
import pytest

from virtco_lab.sim import clouds
from virtco_lab.sim.figures import rpca_dynamics
from virtco_lab.sim.figures import samples

SEEDS = tuple(range(1000, 1004))


def figure(name, *settings):
    (found,) = [one for one in rpca_dynamics.FIGURES if one.name == name]
    context = samples.Context(seeds=SEEDS)
    values = samples.Samples(SEEDS)
    for setting in settings:
        for seed in SEEDS:
            values.add(setting, found.run(setting, seed, context), 0.0)
    return found, values, context


def test_errors():
    settings = ('20 % cut', '40 % cut', '50 % of the snapshots slow')
    found, values, context = figure('rpca-dynamics', *settings)

    def mean(setting, name):
        return float(np.mean(values.of(setting, name)))

    for setting in settings[:2]:
        for name in ('mean rate', 'mean time', 'least rate', 'rpca of rates'):
            assert mean(setting, 'rpca') < 0.5 * mean(setting, name)
        assert mean(setting, 'rpca') < mean(setting, 'median')
        assert mean(setting, 'chosen') <= 1.05 * mean(setting, 'rpca')
    # Only there RPCA knows more than each pair's own readings.
    slow = settings[2]
    assert mean(slow, 'rpca') < 0.5 * min(
        mean(slow, name) for name in ('median', 'upper-quartile'))
    shown = found.show(values, context)
    assert [row[0] for row in shown.rows] == list(settings)
    assert all(len(row) == len(shown.columns) for row in shown.rows)


def test_trees_gain_over_the_mean_of_times():
    _found, values, _context = figure('rpca-dynamics-tree', '30 % cut')
    saved = values.saving('30 % cut', 'mean time', 'rpca')
    assert saved.percent - saved.half > 0
    assert abs(values.saving('30 % cut', 'median', 'rpca').percent) < 5


def test_an_error_is_cut_off_and_leaves_a_common_factor_out():
    truth = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    rates = 3 * truth * [0.5, 1.0, 1.0, 1.5, 9.0]
    assert rpca_dynamics.error(rates, truth) == pytest.approx(
        100 * (0.5 + 0.5 + 5.0) / 5)


@pytest.mark.parametrize('setting', rpca_dynamics.SETTINGS)
def test_readings_have_their_dynamics(setting):
    rng = np.random.default_rng(7)
    how = rpca_dynamics.SETTINGS[setting]
    cloud = clouds.Cloud(rpca_dynamics.N_HOSTS, how, rng)
    found = rpca_dynamics.readings_of(how, cloud, rng)
    assert found.shape == (how.snapshots, 32 * 31)
    assert np.isfinite(found).any(axis=0).all()
    assert np.isnan(found).mean() == pytest.approx(how.unseen, abs=0.03)
