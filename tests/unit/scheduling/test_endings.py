# SPDX-License-Identifier: Apache-2.0

"""Ends and beginnings, by what was counted."""

import pytest

from virtco.scheduling import endings

MB = 1e6
RULES = endings.Rules()


@pytest.mark.parametrize(('left_bytes', 'silent_s', 'ended'), [
    (0.0, None, True), (0.0, 0.0, True), (0.009 * MB, 0.0, True),
    (0.02 * MB, 0.9, False), (0.02 * MB, 1.0, True), (0.9 * MB, 1.0, True),
    (1.1 * MB, 1000.0, False), (0.9 * MB, None, False)])
def test_the_end_is_all_or_most_and_then_nothing(left_bytes, silent_s,
                                                 ended):
    assert endings.has_ended(10 * MB, left_bytes, silent_s, RULES) == ended


@pytest.mark.parametrize(('new_bytes', 'rested_s', 'begins'), [
    (0.0, 100.0, False), (9_999.0, 100.0, False), (10_000.0, 100.0, True),
    # What the last iteration may have left over begins nothing.
    (10_000.0, 0.0, False), (0.9 * MB, 2.9, False), (0.9 * MB, 3.0, True),
    (1.1 * MB, 0.0, True)])
def test_leftovers_and_noise_are_no_beginning(new_bytes, rested_s, begins):
    assert endings.begins_anew(10 * MB, new_bytes, rested_s,
                               RULES) == begins


@pytest.mark.parametrize('rested_s', [0.0, 100.0])
def test_a_matrix_smaller_than_noise_begins_all_the_same(rested_s):
    assert endings.begins_anew(100.0, 20.0, rested_s, RULES)
    assert not endings.begins_anew(100.0, 0.0, rested_s, RULES)
    assert not endings.begins_anew(0.0, 0.0, rested_s, RULES)


def test_less_exact_counters_wait_longer():
    rules = endings.Rules(quiet_s=30.0, done_fraction=0.5)
    assert not endings.has_ended(100.0, 40.0, 29.0, rules)
    assert endings.has_ended(100.0, 40.0, 30.0, rules)
    assert not endings.begins_anew(100.0, 40.0, 89.0, rules)
    assert endings.begins_anew(100.0, 50.0, 0.0, rules)


def test_what_is_left_may_be_as_much_as_counters_get_wrong():
    rules = endings.Rules(negligible_fraction=0.125, done_fraction=0.75)
    assert endings.is_all_sent(8.0, 1.0, rules)
    assert not endings.is_all_sent(8.0, 1.0 + 1e-9, rules)
    assert endings.has_ended(8.0, 2.0, 1.0, rules)
    assert not endings.has_ended(8.0, 2.0 + 1e-9, 1.0, rules)


def test_times_follow_how_long_is_quiet():
    rules = endings.Rules(quiet_s=4.0)
    assert (rules.pause_s, rules.settle_s) == (6.0, 12.0)
    assert rules.give_up_s == 60 * 60
    assert endings.begins_anew(4.0, 0.5, 12.0, rules)


def test_without_a_size_nothing_is_overrun():
    rules = endings.Rules()
    assert not endings.is_overrun(0.0, 5.0, rules)
    assert not endings.is_overrun(100.0, 110.0, rules)
    assert endings.is_overrun(100.0, 110.1, rules)


def test_a_hundredth_more_is_what_counters_get_wrong():
    assert not endings.is_exceeded(100.0, 101.0, RULES)
    assert endings.is_exceeded(100.0, 101.1, RULES)
    assert endings.is_noise(1e6, 9_999.0, RULES)
    assert not endings.is_noise(1e6, 10_000.0, RULES)
    assert not endings.is_noise(100.0, 10.1, RULES)


def test_a_tail_ends_by_silence_or_after_three_times_as_long():
    rules = endings.Rules(tail_s=2.0, quiet_s=9.0)
    assert endings.has_tail(1.9, 5.9, rules)
    assert not endings.has_tail(2.0, 5.9, rules)
    assert not endings.has_tail(1.9, 6.0, rules)
    assert not endings.has_tail(None, 0.0, rules)
    assert not endings.has_tail(0.0, 0.0, endings.Rules(tail_s=0.0))


@pytest.mark.parametrize(('size_bytes', 'new_bytes', 'gets_on'), [
    (1e9, 1e6, False), (1e9, 1e6 + 1, True), (1e12, 1e8, False),
    (1e12, 1e8 + 1, True), (0.0, 0.0, False), (0.0, 1.0, True)])
def test_keep_alives_are_nothing_to_get_on_by(size_bytes, new_bytes, gets_on):
    assert endings.gets_on(size_bytes, new_bytes, RULES) is gets_on
