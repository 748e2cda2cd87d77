# SPDX-License-Identifier: Apache-2.0

"""Order of coflows of whose sizes nothing is believed. Pure.

They are served by what they were served so far, in queues: Chowdhury and
Stoica, "Efficient Coflow Scheduling Without Prior Knowledge" (Aalo, SIGCOMM
2015), section 4.2. A coflow begins in the first queue and falls into the next
one at the queue's limit; each limit is the same multiple of the one before,
and within a queue the first to arrive goes first. Here a queue is a *time* on
the coflow's slowest port, so that links of any speed have the same queues, and
the limit compares with what a hinted coflow has left: of sizes with long tails
about as much is to come as was sent.
"""

import math

#: Time on the slowest port after which a coflow leaves the first queue.
FIRST_S = 0.5
#: From each queue's limit to the next one's.
GROWTH = 2.0


def limit_s(served_s: float, first_s: float = FIRST_S,
            growth: float = GROWTH) -> float:
    """Limit of the queue that a coflow is in.

    :param served_s: what it sent, as time on its slowest port; inf where that
        has no rate left.
    """
    if served_s < first_s:
        return first_s
    if served_s == math.inf:
        return math.inf
    found = first_s * growth ** math.floor(
        math.log(served_s / first_s, growth) + 1)
    # A logarithm may be a rounding error short of a limit.
    return found if found > served_s else found * growth
