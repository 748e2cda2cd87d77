# SPDX-License-Identifier: Apache-2.0

"""Actions at their times beside a block."""

from concurrent import futures
import functools
import time

import pytest

from virtco_lab.emulation import timetable


@pytest.fixture(name='pool')
def _pool():
    with futures.ThreadPoolExecutor(1) as pool:
        yield pool


def test_each_comes_at_its_time_until_the_block_is_over(pool):
    done = []

    def act(number):
        done.append((number, time.monotonic()))

    began_s = time.monotonic()
    with timetable.running([
            (number * 0.02, functools.partial(act, number))
            for number in range(1, 5)] + [(1e6, pytest.fail)], pool):
        while len(done) < 2:
            time.sleep(0.001)
    assert [number for number, _ in done] == [1, 2, 3, 4][:len(done)]
    for number, at_s in done:
        assert at_s >= began_s + number * 0.02


def test_one_that_is_due_does_not_wait(pool):
    done = []
    with timetable.running([(-5.0, lambda: done.append(1))], pool):
        while not done:
            time.sleep(0.001)
    with timetable.running([], pool):
        pass


def test_an_error_is_raised_at_the_end(pool):
    def fail():
        failed.append(1)
        raise KeyError('x')

    failed = []
    with pytest.raises(KeyError), timetable.running([(0.0, fail)], pool):
        while not failed:
            time.sleep(0.001)


def test_the_error_of_the_block_comes_first(pool):
    with pytest.raises(ValueError), timetable.running([
            (0.0, lambda: 1 / 0)], pool):
        raise ValueError
