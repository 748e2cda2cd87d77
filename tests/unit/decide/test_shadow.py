# SPDX-License-Identifier: Apache-2.0

"""What is counted of a coflow that ran while virtco only watched."""

import pytest

from virtco import metrics
from virtco.decide import loop
from virtco.state import byte_counters
from virtco.state import summary

OUTCOMES = 'alike', 'faster', 'slower'


def noted(took_s, planned_s):
    """:returns: what was counted of each outcome, and the seconds."""
    counts = metrics.Metrics()
    loop.note_shadow(summary.Status(
        'c', 'C', 'DONE', 1, 0.0, 0.0, 9.0, planned_s,
        None if took_s is None else byte_counters.Span(
            (1.0, 1.0), (1.0 + took_s, 1.0 + took_s))), counts)
    return ({outcome: value for outcome in OUTCOMES if (
        value := counts.shadow_coflows.labels(outcome)._value.get())},
        counts.shadow_saved_seconds._value.get(),
        counts.shadow_lost_seconds._value.get())


@pytest.mark.parametrize(('took_s', 'planned_s', 'outcome', 'saved_s'), [
    (8.0, 4.0, 'faster', 4.0), (4.0, 8.0, 'slower', -4.0),
    # A twentieth of the longer one is no difference.
    (100.0, 95.0, 'alike', 5.0), (95.0, 100.0, 'alike', -5.0),
    (100.0, 94.5, 'faster', 5.5), (94.5, 100.0, 'slower', -5.5),
    (1.0, 0.5, 'faster', 0.5), (None, 4.0, 'slower', -4.0),
    (None, 0.0, 'alike', 0.0)])
def test_what_is_counted(took_s, planned_s, outcome, saved_s):
    assert noted(took_s, planned_s) == (
        {outcome: 1}, max(0.0, saved_s), max(0.0, -saved_s))


def test_without_a_plan_nothing_is_compared():
    assert noted(5.0, None) == ({}, 0.0, 0.0)
