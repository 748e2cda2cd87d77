# SPDX-License-Identifier: Apache-2.0


from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from virtco import exception
from virtco.measure import robustpca


def _disturbed(seed, share, n_snapshots=10, n_pairs=90):
    rng = np.random.default_rng(seed)
    rates = rng.uniform(2e8, 1e9, n_pairs)
    snapshots = np.tile(rates, (n_snapshots, 1))
    hit = rng.random(snapshots.shape) < share
    snapshots[hit] *= rng.uniform(0.1, 0.7, int(hit.sum()))
    return rates, snapshots, float(hit.mean())


@settings(max_examples=20)
@given(st.integers(0, 10 ** 6), st.floats(0.0, 0.08))
def test_the_long_run_is_found_among_disturbed_readings(seed, share):
    rates, snapshots, hit = _disturbed(seed, share)
    found = robustpca.constant_component(snapshots)
    errors = np.abs(found.rates / rates - 1)
    assert np.median(errors) < 0.01
    assert np.quantile(errors, 0.9) < 0.02
    assert found.noise == pytest.approx(hit, abs=0.06)
    # The mean, which a plain average would take, is further off.
    if share > 0.05:
        plain = np.abs(snapshots.mean(axis=0) / rates - 1)
        assert errors.mean() < plain.mean()


def test_both_parts_add_up_and_are_what_they_should_be():
    _, snapshots, hit = _disturbed(3, 0.1)
    low_rank, sparse = robustpca.decompose(snapshots)
    assert np.allclose(low_rank + sparse, snapshots, rtol=1e-5)
    values = np.linalg.svd(low_rank, compute_uv=False)
    assert values[1] < 0.05 * values[0]
    large = np.abs(sparse) > 0.05 * snapshots.mean()
    assert large.mean() == pytest.approx(hit, abs=0.05)


def test_a_network_without_a_constant_says_so():
    rng = np.random.default_rng(1)
    found = robustpca.constant_component(rng.exponential(1e8, (10, 90)))
    assert found.noise > 0.5


@pytest.mark.parametrize('snapshots', [
    [], [1.0, 2.0], [[]], [[1.0, -1.0]], [[float('nan')]], [[float('inf')]]])
def test_what_is_no_set_of_snapshots_is_refused(snapshots):
    with pytest.raises(exception.Invalid, match='snapshots'):
        robustpca.constant_component(snapshots)


def test_corner_cases():
    zero = robustpca.constant_component(np.zeros((3, 4)))
    assert not zero.rates.any() and zero.noise == 0
    one = robustpca.constant_component([[5.0, 7.0]])
    assert one.rates == pytest.approx([5.0, 7.0])


@pytest.mark.parametrize('scale', [5e-324, 1e-310, 1e-200, 1e-8, 1e150])
def test_any_size_of_rates_is_split(scale):
    _, snapshots, _ = _disturbed(2, 0.05)
    found = robustpca.constant_component(snapshots * scale)
    assert np.isfinite(found.rates).all() and 0 <= found.noise <= 1
    if scale > 1e-300:  # below, a float has few digits
        expected = robustpca.constant_component(snapshots)
        assert found.rates / scale == pytest.approx(expected.rates)
        assert found.noise == pytest.approx(expected.noise)


def test_when_to_measure_anew():
    assert robustpca.has_changed(10.0, 16.0, 0.5)
    assert not robustpca.has_changed(10.0, 14.0, 0.5)
    assert robustpca.has_changed(10.0, 4.0, 0.5)
