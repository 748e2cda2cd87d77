# SPDX-License-Identifier: Apache-2.0

"""The orders and ways of sharing an operator can choose from."""

from typing import NamedTuple

from virtco.scheduling import own_policy
from virtco.scheduling import sincronia

# How coflows are ordered. The numbers go into the compiled kernels.
BY_REMAINING = 0
BY_WHOLE = 1
BY_ARRIVAL = 2
BY_QUEUE = 3

# How rates follow from the order.
SHARE_MADD = 0
SHARE_COFLOWS = 1
SHARE_FLOWS = 2
SHARE_IN_ORDER = 3
SHARE_GREEDY = 4  # all by back-fill

# Use of the rates that MADD leaves over.
BACKFILL_NONE = 0
BACKFILL_GREEDY = 1
BACKFILL_MAX_MIN = 2
BACKFILL_IN_ORDER = 3


class Policy(NamedTuple):
    """A scheduling policy.

    :ivar key: BY_…, what the order within a class goes by.
    :ivar classes: whether operators' priority classes come first.
    :ivar sharing: SHARE_…
    :ivar trickle: share of each port that each coflow behind the head keeps;
        all of them together get half of the port at most (FIFO+).
    :ivar swaps: whether neighbours in the order swap while that lowers the
        sum of the prefix CCTs.
    :ivar own: object that orders in place of a key.
    """

    key: int
    classes: bool
    sharing: int
    trickle: float = 0.0
    swaps: bool = False
    own: own_policy.Policy | None = None


def of(own: own_policy.Policy) -> Policy:
    """Make the policy of an object that orders coflows.

    In a simulation, places in its order stand for the times of
    :data:`BY_WHOLE`.

    :raises virtco.exception.Invalid: see :func:`own_policy.checked`.
    """
    return Policy(BY_WHOLE, True, SHARE_MADD, own=own_policy.checked(own))


POLICIES = {
    'mrtf': Policy(BY_REMAINING, True, SHARE_MADD),  # VirtCO Algorithm 1
    'mrtf+swap': Policy(BY_REMAINING, True, SHARE_MADD, swaps=True),
    'sebf': Policy(BY_WHOLE, True, SHARE_MADD),  # Varys
    # Its paper wants rates that keep the order: each flow in turn, as fast as
    # it can.
    'sincronia': of(sincronia.Sincronia())._replace(sharing=SHARE_GREEDY),
    'fifo': Policy(BY_ARRIVAL, False, SHARE_MADD),
    # Orchestra, section 7.4.
    'fifo+': Policy(BY_ARRIVAL, False, SHARE_MADD, trickle=0.03),
    'priority': Policy(BY_ARRIVAL, True, SHARE_MADD),
    'weighted-fair': Policy(BY_ARRIVAL, True, SHARE_COFLOWS),  # section 4
    'fair': Policy(BY_ARRIVAL, True, SHARE_FLOWS),  # as TCP does
}


def backfill(policy: Policy) -> int:
    """Choose the back-fill of the rates that a policy leaves over.

    Under an order they go to the coflows in order, and within one to its
    flows in proportion to what they have left: those of a port end together,
    so that no rate is idle until the next report. Without an order all share.
    """
    return (BACKFILL_MAX_MIN if policy.sharing == SHARE_COFLOWS
            else BACKFILL_IN_ORDER)
