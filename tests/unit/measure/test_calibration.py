# SPDX-License-Identifier: Apache-2.0

import pytest

from virtco.measure import calibration

SMALL = calibration.Setting(10, 200)
LARGE = calibration.Setting(10, 2000)
MANY = calibration.Setting(20, 200)


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
    # Nothing found is as wrong as nothing.
    assert calibration.error([100], [None]) == calibration.Error(1, 1, 1, 1)
    with pytest.raises(ValueError):
        calibration.error([100, 200], [100])


def test_tcp_moves_its_payload_of_each_frame():
    assert calibration.tcp_bps(100e6) == pytest.approx(
        100e6 * 1448 / 1514)
    assert calibration.tcp_bps(1e9, 9000) == pytest.approx(
        1e9 * 8948 / 9014)


def test_the_grid_has_choreos_settings():
    assert {SMALL, LARGE} <= set(calibration.GRID)


@pytest.mark.parametrize('mean, is_near', [(.05, True), (.051, False)])
def test_a_setting_is_written_as_configuration(mean, is_near):
    text = calibration.as_config(
        SMALL, calibration.Error(mean, .2, .3, 0.0), 'By day', near_enough=.05)
    assert text.startswith(
        f'# By day\n# Error against TCP: mean {mean:.1%}, median 20.0%, '
        'worst 30.0%.\n')
    assert text.endswith(
        '[probe]\nbursts = 10\npackets = 200\n')
    assert ('No setting came within 5.0%' in text) == (not is_near)


def test_a_setting_that_is_as_near_as_wanted_is_taken():
    assert calibration.choose(_errors(small=.05, large=.01),
                              near_enough=.05) == SMALL


def test_the_bytes_of_a_train():
    assert calibration.Setting(10, 200).train_bytes == 10 * 200 * 1472
