# SPDX-License-Identifier: Apache-2.0

"""What a hypervisor takes of a virtual machine's processors."""

from collections.abc import Sequence
import pathlib

#: A test of rates and delays says nothing where more was taken meanwhile.
MOST = 0.1
_STEAL = 7


def times() -> list[int]:
    """Of all processors: user, nice, system, idle, iowait, irq, softirq,
    steal, in ticks.
    """
    line = pathlib.Path('/proc/stat').read_text().splitlines()[0]
    return [int(word) for word in line.split()[1:9]]


def share(before: Sequence[int], after: Sequence[int]) -> float:
    """Part of the time that was taken between two looks."""
    spent = [late - early for early, late in zip(before, after)]
    return spent[_STEAL] / max(1, sum(spent))
