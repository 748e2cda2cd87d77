# SPDX-License-Identifier: Apache-2.0

"""What each figure draws of made-up samples.

Tables are compared with the documentation's; plots stand nowhere. A figure
that is changed on purpose gets the number that the failure names.
"""

import dataclasses
import hashlib

from matplotlib import figure as mpl_figure
import numpy as np
import pytest

from virtco_lab.sim.figures import document
from virtco_lab.sim.figures import index
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import plots
from virtco_lab.sim.figures import record
from virtco_lab.sim.figures import samples

DRAWN = {
    'choreo-fig10a': -5079.10250302,
    'choreo-fig10b': -4947.10250302,
    'choreo-greedy': 970.323208693,
    'facebook-like': 62.5625,
    'facebook-rules': 75.7,
    'facebook-trace': 502.42,
    'liars': 144.252173227,
    'monitoring-2': 36963.2,
    'monitoring-3': 340.175,
    'monitoring-4': 12303.1,
    'monitoring-5': 340.7375,
    'orchestra-fig11': 45.5,
    'orchestra-fig14': 766.6,
    'orchestra-fig15': 291.62,
    'orchestra-fig16': 48.4005952381,
    'orchestra-fig7': 1226.50566454,
    'orchestra-fig9': 4702.4,
    'orchestra-table3': 696.676711573,
    'rpca-dynamics': 1111.0,
    'rpca-dynamics-tree': 1111.0,
    'rpca-fig10': 327.602601269,
    'rpca-fig11': 152.768977559,
    'rpca-fig12': 336.87259631,
    'rpca-fig13': 153.495671095,
    'rpca-fig4': 5392.2,
    'rpca-fig5': 2017.43274706,
    'rpca-fig6': 210.779698491,
    'rpca-fig7': 152.768977559,
    'rpca-fig8': 244.471922998,
    'rpca-fig9': 197.523893909,
    'rpca-fig9-cg': 285.494444738,
    'rpca-fig9-size': 197.523893909,
    'training-cluster': 15551,
    'training-mixed': 1219.85,
    'training-pair': 161.9,
    'virtco-case1': 3223.21558125,
    'virtco-case2': 3458.15675503,
    'virtco-case3': 916.9,
    'virtco-case4': 3473.63423015,
    'virtco-case5': 4698.9672789,
    'virtco-case6': 5167.86530338,
    'virtco-sigma': 2107.0818528,
    'wrong-hints': 130.076125929}


def made_up(found):
    """Samples of the same settings, series and seeds, of other numbers.

    They do not depend on the order in which the record has its series.
    """
    made = samples.Samples(found.seeds)
    for place, (setting, rows_of) in enumerate(found.values.items()):
        made.values[setting] = {
            series: [[1 + (7 * place + 3 * column + 5 * row + 2 * k) % 11 / 10
                      for k in range(len(values))]
                     for row, values in enumerate(rows)]
            for column, (series, rows) in enumerate(sorted(rows_of.items()))}
        made.cpu_s[setting] = 1.0 + place
    return made


def numbers(value):
    """Numbers of panels, in order; a flag is 0 or 1."""
    if isinstance(value, int | float):
        return [float(value)]
    if dataclasses.is_dataclass(value):
        value = [getattr(value, field.name)
                 for field in dataclasses.fields(value)]
    return [one for part in value for one in numbers(part)] if isinstance(
        value, tuple | list) else []


def weighed(name):
    """The sum of a figure's numbers, each times one to seven in turn."""
    found = record.read(record.DIRECTORY, name).found
    drawn = index.FIGURES[name].show(made_up(found), samples.Context())
    return sum(value * (1 + place % 7)
               for place, value in enumerate(numbers(drawn.panels)))


@pytest.mark.parametrize('name', index.FIGURES)
def test_what_is_drawn(name):
    assert weighed(name) == pytest.approx(DRAWN[name], rel=1e-9)


def drawn(figure):
    """What matplotlib was asked to draw, as text and numbers."""
    texts, values = [figure._suptitle.get_text(), *(
        text.get_text() for text in figure.legends[0].get_texts())], []
    for axes in figure.axes:
        texts += [axes.get_title(), axes.get_xlabel(), axes.get_ylabel(),
                  axes.get_yscale(), *(
                      f'{line.get_marker()} {line.get_linestyle()} '
                      f'{line.get_color()} {line.get_drawstyle()}'
                      for line in axes.lines), *(
                      f'{patch.get_hatch()} {patch.get_facecolor()}'
                      for patch in axes.patches), *(
                      f'{label.get_text()} {label.get_rotation()} '
                      f'{label.get_horizontalalignment()}'
                      for label in axes.get_xticklabels())]
        values += [*axes.get_ylim(), *figure.get_size_inches(), *(
            float(value) for line in axes.lines
            for value in np.ravel(line.get_xydata())), *(
            float(value) for patch in axes.patches
            for value in np.ravel(patch.get_patch_transform().transform(
                patch.get_path().vertices)))]
    found = np.nan_to_num(np.array(values, float))
    return hashlib.sha256('\n'.join(texts).encode()).hexdigest()[:8], float(
        found @ (1 + np.arange(len(found)) % 7))


PAGES = {
    'choreo-fig10a': ('95aed322', -3013.93782628),
    'choreo-fig10b': ('85007759', -2473.93782628),
    'choreo-greedy': ('fd6ee688', 1445.92919573),
    'facebook-like': ('aeddb22c', 1247.78),
    'facebook-rules': ('f9139dae', 1761),
    'facebook-trace': ('8db4c58a', 1891.358),
    'liars': ('b79bb035', 363.615024687),
    'monitoring-2': ('19e1bb43', 49445.1019493),
    'monitoring-3': ('cdab693c', 10974.215),
    'monitoring-4': ('462470c9', 16519),
    'monitoring-5': ('2ae5da01', 10975.1525),
    'orchestra-fig11': ('01ce0759', 376.03625),
    'orchestra-fig14': ('50bcdd64', 632.87),
    'orchestra-fig15': ('ed1e4d48', 1284.227),
    'orchestra-fig16': ('ddd72f61', 276.398630952),
    'orchestra-fig7': ('21d35858', 3824.45303989),
    'orchestra-fig9': ('2cc9d82e', 4771.05),
    'orchestra-table3': ('abee0ef0', 375.502385752),
    'rpca-dynamics': ('4800f5e2', 36406.71),
    'rpca-dynamics-tree': ('d3a915f0', 36406.71),
    'rpca-fig10': ('bbdafe76', 757.202808345),
    'rpca-fig11': ('6079259b', 1100.86258852),
    'rpca-fig12': ('f645b3ac', 7231.31817881),
    'rpca-fig13': ('7da25376', 1100.68643561),
    'rpca-fig4': ('dfa4624f', 20153.5410597),
    'rpca-fig5': ('e3a26ab6', 4712.36482873),
    'rpca-fig6': ('13c5abec', 564.764954535),
    'rpca-fig7': ('f235e170', 1100.86258852),
    'rpca-fig8': ('07e2b48c', 2943.18937145),
    'rpca-fig9': ('89dc6de9', 1911.69648589),
    'rpca-fig9-cg': ('a7303d6a', 4194.28361829),
    'rpca-fig9-size': ('b11fcd97', 1911.69648589),
    'training-cluster': ('a62ce0af', 33081.68),
    'training-mixed': ('6e6c0c60', 3146.2375),
    'training-pair': ('25a631a3', 1521.56),
    'virtco-case1': ('5489b8c0', 6324.14598648),
    'virtco-case2': ('fc0b742e', 8884.85821196),
    'virtco-case3': ('89e7266e', 1245.12083333),
    'virtco-case4': ('edb4d2e7', 5075.70438239),
    'virtco-case5': ('518b64b4', 7355.20837231),
    'virtco-case6': ('875cf888', 9300.11466398),
    'virtco-sigma': ('c323735a', 5017.20139726),
    'wrong-hints': ('776c9b22', 3489.22254006)}


@pytest.mark.parametrize('name', index.FIGURES)
def test_what_is_on_the_page(name, tmp_path, monkeypatch):
    pages = []
    monkeypatch.setattr(mpl_figure.Figure, 'savefig',
                        lambda self, path, dpi: pages.append((self, path)))
    found = record.read(record.DIRECTORY, name).found
    plots.draw(index.FIGURES[name].show(made_up(found), samples.Context()),
               tmp_path / 'new')
    (page, path), = pages
    assert path == tmp_path / 'new' / f'{name}.png' and path.parent.is_dir()
    text, number = drawn(page)
    assert (text, number) == (PAGES[name][0], pytest.approx(
        PAGES[name][1], rel=1e-6))


def test_a_plot_is_drawn_once_more(tmp_path):
    panel = outcome.Panel('lines', 't', 'x', 'y', (
        outcome.Series('a', (1.0, 2.0), (0.0, 2.0)),), log_y=True)
    for _ in range(2):
        path = plots.draw(outcome.Outcome('o', 't', (), (), (panel,)),
                          tmp_path / 'a' / 'b')
        assert path.stat().st_size > 1000


def test_each_table_is_its_records():
    assert document.outdated(record.DIRECTORY, index.FIGURES) == []


def test_points_are_drawn_so_that_one_sees_through(tmp_path):
    panel = outcome.Panel('points', 'x', 'x', 'y', (
        outcome.Series('s', (1.0, 2.0), (3.0, 4.0)),))
    path = plots.draw(outcome.Outcome('x', 'x', (), (), (panel,)), tmp_path)
    assert path.read_bytes().startswith(b'\x89PNG')
