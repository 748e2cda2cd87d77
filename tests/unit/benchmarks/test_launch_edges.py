# SPDX-License-Identifier: Apache-2.0

"""Times of a call end with its answer."""

import types

import pytest

from benchmarks import launch_edges
from virtco.place import deadline as deadlines


class Place:
    """Answers after 0.5 s while its thread solves 2 s, as one in time."""

    def __init__(self):
        self.now_s = 0.0

    def _in_time(self, placer, request, is_gone):
        deadline = deadlines.Deadline(0.5, lambda: self.now_s)
        if placer is None:
            raise ValueError
        self.rest = self._work(placer, request, deadline)
        next(self.rest)
        return 'answer'

    def _work(self, _placer, _request, deadline):
        self.now_s += 0.1
        deadline.enter('solve')
        self.now_s += 0.4
        yield
        self.now_s += 1.6
        deadline.enter('rank')


def test_a_solve_after_the_answer_is_not_counted():
    place = Place()
    phases = launch_edges.Phases(place)
    request = types.SimpleNamespace(instance_uuid='i')
    assert place._in_time('placer', request, bool) == 'answer'
    assert list(place.rest) == []
    assert phases.spent_s['i']['solve'] == pytest.approx(0.4)
    assert phases.spent_s['i']['queue'] == pytest.approx(0.1)


def test_a_call_that_never_began_has_no_phases():
    place = Place()
    phases = launch_edges.Phases(place)
    with pytest.raises(ValueError):
        place._in_time(None, types.SimpleNamespace(instance_uuid='i'), bool)
    assert phases.spent_s == {}


def block(*groups, slowest):
    return launch_edges.Block(
        list(groups), [ms for group in groups for ms in group], slowest, 1,
        {'at_s': 2.0, 'here_s': 1.0, 'there_s': 0.5, 'policies': 3})


def test_blocks_are_judged_together():
    found = launch_edges.summary([
        block([1.0, 2.0], slowest=(2.0, {'read': 0.002})),
        block([3.0], [94.0, 5.0], slowest=(94.0, {'read': 0.09}))])
    assert found['vms'] == 5 and found['neutral'] == 0.4
    assert found['call_p50_ms'] == 3.0
    assert found['slowest_ms'] == {'read': 90.0}
    assert (found['policies'], found['controller_core']) == (6, 0.5)


def test_the_interval_has_the_ratio_and_knows_how_few_groups_there_are():
    quiet = [[10.0] * 12 for _ in range(20)]
    assert launch_edges.ratio_interval(quiet, [[12.0] * 12]) == [1.2, 1.2]
    # One slow group may be drawn or not.
    low, high = launch_edges.ratio_interval(
        quiet, [*quiet[1:], [30.0] * 12])
    assert (low, high) == (1.0, 3.0)
