# SPDX-License-Identifier: Apache-2.0

"""Orchestra's figures, of casts that the test makes up."""

import contextlib
import math
import types

import pytest

from tests.unit.lab.emulation import drawing
from virtco_lab.emulation import casts
from virtco_lab.emulation import extent
from virtco_lab.emulation import orchestra
from virtco_lab.emulation import racks as racks_module

#: Seconds that a copy takes longer with each scheme.
_FACTORS = {name: 1 + place / 4 for place, name in enumerate(
    reversed(casts.SCHEMES))}


@pytest.fixture(name='story')
def _story(monkeypatch):
    made = []

    @contextlib.contextmanager
    def built(sizes, rate_bps, oversubscription, slower_bps=None):
        made.append(f'racks of {list(sizes)} at {rate_bps}, '
                    f'{oversubscription}:1, slower {slower_bps}')
        racks = {f'r{rack}v{vm}': f'rack{rack}'
                 for rack, size in enumerate(sizes) for vm in range(size)}
        yield types.SimpleNamespace(rate_bps=rate_bps, bed=(
            types.SimpleNamespace(racks=racks)))
        made.append('removed')

    monkeypatch.setattr(racks_module, 'built', built)

    def run(racks, size_bytes, scheme, seed, *, receivers=None,
            clusters=None):
        name, = (name for name, one in casts.SCHEMES.items() if one == scheme)
        source, *others = racks.bed.racks
        others = others[:receivers]
        copy_s = size_bytes * 8 / racks.rate_bps
        made.append(f'{name}: {size_bytes} bytes, seed {seed}, {receivers}, '
                    f'{sorted((clusters or {}).items())}')
        taken_s = copy_s * _FACTORS[name] * (1 + seed % 7 / 50) * (
            1 + math.log(len(others)) * (name == 'star'))
        if clusters:
            taken_s /= 1.5
        rates_bps = {
            (one, other): racks.rate_bps / 3 * (
                3 if racks.bed.racks[one] == racks.bed.racks[other] else 1)
            * (1 + (place * 7 + number * 3 + seed) % 11 / 100)
            for place, one in enumerate(racks.bed.racks)
            for number, other in enumerate(racks.bed.racks)
            if one != other and (place + number + seed) % 3}
        return casts.Found(
            {other: taken_s * (0.5 + (place + 1) / len(others) / 2)
             for place, other in enumerate(others)},
            1.0 + seed % 5, rates_bps)

    monkeypatch.setattr(casts, 'run', run)
    return made


@pytest.mark.parametrize('is_short', [False, True])
@pytest.mark.parametrize('name', orchestra.FIGURES)
def test_a_figure_is_drawn_as_ever(name, is_short, story):
    display = drawing.Display()
    found = orchestra.FIGURES[name](extent.Options(
        10e6, (0, 3), is_short, display=display))
    drawing.check(f'{name}{"-short" * is_short}', found,
                  [*display.said, *story])


@pytest.mark.parametrize(('name', 'unmet'), [
    ('9', ('virtco-cast is not ahead of a star',)), ('10', ()),
    ('11', ('who knows racks is not ahead of who does not',)),
    ('17', ('iterations with virtco-cast are not ahead of a star',))])
def test_a_cast_that_is_not_ahead_does_not_meet_the_claim(
        name, unmet, story, monkeypatch):
    monkeypatch.setattr(casts, 'run', lambda *_, **__: casts.Found(
        {'a': 1.0, 'b': 1.0}, 1.0, {}))
    found = orchestra.FIGURES[f'orchestra-{name}'](extent.Options(
        10e6, (0,), display=drawing.Display()))
    assert found.unmet == unmet


def test_clusters_are_right_by_pairs():
    truth = {'a': 'x', 'b': 'x', 'c': 'y'}
    assert orchestra._right(truth, truth) == 1
    assert orchestra._right({}, truth) == pytest.approx(1 / 3)
    assert orchestra._right({'a': '1', 'b': '2', 'c': '2'}, truth) == (
        pytest.approx(1 / 3))


def test_a_short_form_has_fewer_receivers_of_half_the_bytes():
    usual, short = extent.Options(8e6), extent.Options(8e6, short=True)
    for options, expected in ((usual, ((2, 5, 10, 19), 10, 3_000_000)),
                              (short, ((2, 5), 4, 1_500_000))):
        assert (orchestra.receivers_of(options), orchestra.per_rack(options),
                orchestra.size_bytes_of(options, 3.0)) == expected
