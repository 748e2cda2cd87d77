# SPDX-License-Identifier: Apache-2.0

"""A picture of a matrix: its numbers, their unit, and the names beside."""

from matplotlib import figure
import numpy as np
import pytest

from virtco.measure import heatmap
from virtco.wire import rate as wire


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved, without the time that this takes."""
    found = []
    monkeypatch.setattr(
        figure.Figure, 'savefig',
        lambda self, path, **kwargs: found.append((self, path)))
    return found


def matrix(hosts, kind='rate', values=None):
    return wire.Matrix(
        kind=kind, statistic='median', hosts=hosts, unit='', ages_s=[],
        values=values if values is not None else [
            [None if a == b else 1e6 * (i + 2 * k)
             for k, b in enumerate(hosts)]
            for i, a in enumerate(hosts)])


@pytest.mark.parametrize(('kind', 'value', 'shown', 'unit', 'colours'), [
    ('rate', 2.5e6, 2.5, 'Mbit/s', 'viridis'),
    ('latency', 4e-3, 4.0, 'ms', 'viridis_r')])
def test_values_are_shown_in_their_unit(drawn, kind, value, shown, unit,
                                        colours):
    heatmap.save(matrix(['a', 'b'], kind, [[None, value], [0.0, None]]),
                 'x.png')
    ((found, path),) = drawn
    axes, bar = found.axes
    (image,) = axes.images
    data = np.ma.filled(image.get_array(), np.nan)
    np.testing.assert_allclose(data, [[np.nan, shown], [0.0, np.nan]])
    assert image.get_cmap().name == colours and path == 'x.png'
    assert bar.get_ylabel() == unit
    assert (axes.get_xlabel(), axes.get_ylabel()) == ('to', 'from')
    # What nobody measured is neither slow nor fast.
    assert axes.get_facecolor() == pytest.approx((0.85, 0.85, 0.85, 1.0))
    assert {label.get_rotation() for label in axes.get_xticklabels()} == {
        90.0}
    assert axes.get_title() == f'median {kind} of 2 hosts'
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        label.get_text() for label in axes.get_xticklabels()] == ['a', 'b']


@pytest.mark.parametrize(('n_hosts', 'height', 'has_names'), [
    (0, 4.0, True), (10, 5.8, True), (64, 15.52, True), (65, 15.7, False),
    (100, 16.0, False)])
def test_a_picture_grows_until_names_cannot_be_read(drawn, n_hosts, height,
                                                    has_names):
    hosts = [f'host{i}' for i in range(n_hosts)]
    heatmap.save(matrix(hosts), 'x.png')
    ((found, _path),) = drawn
    assert found.get_size_inches() == pytest.approx((height + 1, height))
    names = [label.get_text()
             for label in found.axes[0].get_xticklabels()]
    assert (names == hosts) is has_names
