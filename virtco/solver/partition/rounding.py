# SPDX-License-Identifier: Apache-2.0

"""The rounding of the relaxed linear program: a dive.

A cover has fractions of sets. The set with the largest share is fixed, with
all that are whole already, and what is left is covered anew, with more sets
found on the way, until every node is in one set.
"""

from collections.abc import Callable

import numpy as np

from virtco.solver.partition import master

#: Shares from which a set is taken for granted.
WHOLE = 0.999


def dive(program: master.Master,
         cover: Callable[[], master.Cover | None]) -> np.ndarray | None:
    """Fix sets until all nodes have hosts; return None without a cover.

    :param cover: covers what is not fixed yet.
    """
    program.release()
    while not program.is_done():
        found = cover()
        if found is None:
            return None
        fix_largest(program, found)
    return program.assign


def fix_largest(program: master.Master, cover: master.Cover) -> None:
    """Fix the set with the largest share, and all whole ones."""
    for rank, i in enumerate(np.argsort(-cover.share, kind='stable')):
        if cover.share[i] < (WHOLE if rank else 0.0):
            break
        program.fix(cover.chosen[i])
