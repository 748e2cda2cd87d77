# SPDX-License-Identifier: Apache-2.0


from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

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
    rates, snapshots, _hit = _disturbed(seed, share)
    found = robustpca.constant_component(snapshots)
    errors = np.abs(found / rates - 1)
    assert np.median(errors) < 0.01
    assert np.quantile(errors, 0.9) < 0.02
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


def test_the_sum_that_is_minimised_is_near_its_least(monkeypatch):
    """A penalty that grows slowly finds the least."""
    tables = [_disturbed(seed, 0.2)[1] / 1e9 for seed in range(4)]

    def sums():
        for table in tables:
            low_rank, sparse = robustpca.decompose(table)
            yield (np.linalg.svd(low_rank, compute_uv=False).sum()
                   + np.abs(sparse).sum() / np.sqrt(table.shape[1]))

    found = np.array(list(sums()))
    monkeypatch.setattr(robustpca, '_GROWTH', 1.05)
    assert (found / list(sums())).mean() < 1.0009


def test_a_tall_matrix_is_split_as_a_wide_one():
    _, snapshots, _ = _disturbed(4, 0.2)
    for tall, wide in zip(robustpca.decompose(snapshots.T),
                          robustpca.decompose(snapshots)):
        np.testing.assert_array_equal(tall.T, wide)


def test_a_split_is_the_same_in_any_unit():
    _, snapshots, _ = _disturbed(4, 0.2)
    low_rank, sparse = robustpca.decompose(snapshots)
    for scale in (1e-12, 1e12):
        found = robustpca.decompose(snapshots * scale)
        np.testing.assert_allclose(found[0], low_rank * scale)
        np.testing.assert_allclose(found[1], sparse * scale,
                                   atol=1e-9 * scale * snapshots.max())


def test_a_reading_of_nothing_is_a_disturbed_one():
    rates, snapshots, _ = _disturbed(4, 0.0)
    snapshots[0, 7] = 0.0
    assert robustpca.constant_component(snapshots) == pytest.approx(
        rates, rel=0.01)


def test_corner_cases():
    zero = robustpca.constant_component(np.zeros((3, 4)))
    assert not zero.any()
    one = robustpca.constant_component(np.array([[5.0, 7.0]]))
    assert one == pytest.approx([5.0, 7.0])


@pytest.mark.parametrize('scale', [5e-324, 1e-310, 1e-200, 1e-8, 1e150])
def test_any_size_of_rates_is_split(scale):
    _, snapshots, _ = _disturbed(2, 0.05)
    found = robustpca.constant_component(snapshots * scale)
    assert np.isfinite(found).all()
    if scale > 1e-300:  # below, a float has few digits
        expected = robustpca.constant_component(snapshots)
        assert found / scale == pytest.approx(expected)
