# SPDX-License-Identifier: Apache-2.0

"""What each figure draws of made-up samples.

Tables are compared with the documentation's; plots stand nowhere. A figure
that is changed on purpose gets the number that the failure names.
"""

import dataclasses

import pytest

from virtco_lab.sim import figures
from virtco_lab.sim.figures import record
from virtco_lab.sim.figures import samples

DRAWN = {
    'choreo-fig10a': -5079.10250302,
    'choreo-fig10b': -4947.10250302,
    'choreo-greedy': 972.946421793,
    'facebook-like': 62.5625,
    'facebook-trace': 502.42,
    'liars': 144.252173227,
    'monitoring-2': 36963.2,
    'monitoring-3': 340.7375,
    'monitoring-4': 12303.1,
    'monitoring-5': 340.7375,
    'orchestra-fig11': 44.75,
    'orchestra-fig14': 766.6,
    'orchestra-fig15': 291.62,
    'orchestra-fig16': 48.4005952381,
    'orchestra-fig7': 1228.08446051,
    'orchestra-fig9': 4702.4875,
    'orchestra-table3': 696.676711573,
    'rpca-dynamics': 1111.0,
    'rpca-dynamics-tree': 1111.0,
    'rpca-fig10': 327.241417842,
    'rpca-fig11': 151.388441236,
    'rpca-fig12': 336.87259631,
    'rpca-fig13': 151.614194935,
    'rpca-fig4': 5392.2,
    'rpca-fig5': 2017.43274706,
    'rpca-fig6': 210.779698491,
    'rpca-fig7': 151.388441236,
    'rpca-fig8': 241.444459161,
    'rpca-fig9': 195.838783608,
    'rpca-fig9-cg': 284.181110807,
    'rpca-fig9-size': 195.838783608,
    'training-cluster': 15689.75,
    'training-mixed': 1220.5375,
    'training-pair': 161.9,
    'virtco-case1': 3370.16114082,
    'virtco-case2': 3079.82474315,
    'virtco-case3': 911.8,
    'virtco-case4': 3317.33794113,
    'virtco-case5': 4487.1437383,
    'virtco-case6': 5165.0877843,
    'virtco-sigma': 2067.48439716,
    'wrong-hints': 130.076125929}


def made_up(found):
    """Samples of the same settings, series and seeds, of other numbers."""
    made = samples.Samples(found.seeds)
    for place, (setting, rows_of) in enumerate(found.values.items()):
        made.values[setting] = {
            series: [[1 + (7 * place + 3 * column + 5 * row + 2 * k) % 11 / 10
                      for k in range(len(values))]
                     for row, values in enumerate(rows)]
            for column, (series, rows) in enumerate(rows_of.items())}
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
    drawn = figures.FIGURES[name].show(made_up(found), samples.Context())
    return sum(value * (1 + place % 7)
               for place, value in enumerate(numbers(drawn.panels)))


@pytest.mark.parametrize('name', figures.FIGURES)
def test_what_is_drawn(name):
    assert weighed(name) == pytest.approx(DRAWN[name], rel=1e-9)
