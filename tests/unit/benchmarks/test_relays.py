# SPDX-License-Identifier: Apache-2.0

"""What processes note of their edges for the one that measures."""

from benchmarks import relays


def test_one_reads_what_another_noted(tmp_path):
    here, there = (relays.Times(tmp_path / 'times', 3)
                   for _ in range(2))
    assert here.came_s() == []
    there.by_number[2] = 7.5
    there.by_number[0] = 6.5
    assert here.came_s() == [6.5, 7.5]
    here.clear()
    assert there.came_s() == []
