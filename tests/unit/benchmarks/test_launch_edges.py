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
