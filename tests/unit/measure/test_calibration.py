# SPDX-License-Identifier: Apache-2.0

import pytest

from virtco.measure import calibration

SMALL = calibration.Setting(10, 200, 1472)
LARGE = calibration.Setting(10, 2000, 1472)
MANY = calibration.Setting(20, 200, 1472)


def _errors(**means):
    return {globals()[name.upper()]: calibration.Error(mean, mean, mean, 0.0)
            for name, mean in means.items()}


def test_the_cheapest_that_is_near_enough_is_taken():
    assert calibration.choose(_errors(small=.03, large=.01)) == SMALL
    assert calibration.choose(_errors(small=.09, large=.01)) == LARGE
    assert calibration.choose(_errors(small=.09, many=.04,
                                      large=.0)) == MANY


def test_without_one_that_is_near_enough_the_best_is_taken():
    assert calibration.choose(_errors(small=.3, large=.2)) == LARGE
    assert calibration.choose({}) is None
    failed = {SMALL: calibration.Error(.0, .0, .0, .1)}
    assert calibration.choose(failed) is None


def test_errors_are_shares_of_what_tcp_got():
    found = calibration.error([100, 200, 50], [110, 190, None])
    assert found == calibration.Error(
        pytest.approx(.075), pytest.approx(.075), pytest.approx(.1),
        pytest.approx(1 / 3))
    assert calibration.error([100], [None]).failed == 1


def test_tcp_moves_its_payload_of_each_frame():
    assert calibration.tcp_bps(100e6) == pytest.approx(95.64e6, rel=1e-4)
    assert calibration.tcp_bps(1e9, 9000) == pytest.approx(0.9927e9, rel=1e-3)


def test_the_grid_has_choreos_settings():
    assert {SMALL, LARGE} <= set(calibration.GRID)
