# SPDX-License-Identifier: Apache-2.0

"""A matrix of host pairs as a picture."""

from matplotlib import figure as mpl_figure
import numpy as np

from virtco.wire import rate as wire

#: Hosts with a name on the axes, at most: more names could not be read.
MOST_NAMES = 64
_SCALES = {'rate': (1e-6, 'Mbit/s', 'viridis'),
           'latency': (1e3, 'ms', 'viridis_r')}


def save(found: wire.Matrix, path: str) -> None:
    """Draw a matrix of pairs as a heat map and save it to a file.

    :param found: the answer of ``GET /v1/matrices/{kind}``.
    """
    factor, unit, colours = _SCALES[found.kind]
    values = factor * np.array([
        [np.nan if value is None else value for value in row]
        for row in found.values], dtype=float).reshape(
            (len(found.hosts),) * 2)
    size = min(16.0, 4 + 0.18 * len(values))
    drawn = mpl_figure.Figure(figsize=(size + 1, size),
                              layout='constrained')
    axes = drawn.add_subplot()
    axes.set_facecolor('0.85')  # pairs that nobody measured
    image = axes.imshow(values, cmap=colours, interpolation='nearest')
    drawn.colorbar(image, ax=axes, label=unit, shrink=0.8)
    axes.set_title(f'{found.statistic} {found.kind} of '
                   f'{len(values)} hosts')
    axes.set_xlabel('to')
    axes.set_ylabel('from')
    if len(values) <= MOST_NAMES:
        places = np.arange(len(values))
        axes.set_xticks(places, found.hosts, rotation=90, fontsize=7)
        axes.set_yticks(places, found.hosts, fontsize=7)
    drawn.savefig(path, dpi=110)
