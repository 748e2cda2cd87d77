# SPDX-License-Identifier: Apache-2.0

"""Setting the machine's clock changes nothing in a process."""

import logging

import pytest

from virtco import clock as clocks


class Machine:
    def __init__(self):
        self.wall_s, self.steady_s = 1e9, 50.0

    def wait(self, seconds):
        self.wall_s += seconds
        self.steady_s += seconds

    def clock(self):
        return clocks.Clock(lambda: self.wall_s, lambda: self.steady_s)


@pytest.mark.parametrize('step_s', [3600, -3600])
def test_a_step_is_no_time_that_passes(step_s, caplog):
    machine = Machine()
    clock = machine.clock()
    assert clock() == 1e9
    machine.wait(7)
    machine.wall_s += step_s
    assert clock() == 1e9 + 7
    with caplog.at_level(logging.WARNING):
        assert clock.check() == step_s
        machine.wait(1)
        assert clock.check() == step_s
    # Once.
    assert caplog.text.count(f'{step_s:+} s') == 1
    # A process that begins now takes the new time.
    assert machine.clock()() == machine.wall_s


@pytest.mark.parametrize('off_s', [3600, -3600, 3])
def test_a_machine_that_is_wrong_goes_by_the_database(off_s, caplog):
    machine = Machine()
    clock = machine.clock()
    is_wrong = off_s != 3
    with caplog.at_level(logging.WARNING):
        clock.follow(1e9 - off_s)
        assert clock() == 1e9 - off_s * is_wrong
        machine.wait(7)
        assert clock() == 1e9 - off_s * is_wrong + 7
        clock.check()
    assert [f'is {off_s:+} s off' in one for one in caplog.messages] == (
        [True] * is_wrong)


def test_slewing_is_no_step(caplog):
    machine = Machine()
    clock = machine.clock()
    machine.wall_s += 1
    assert clock.check() == 1
    assert not caplog.records


def test_the_machine_is_close():
    assert abs(clocks.Clock().check()) < 1
