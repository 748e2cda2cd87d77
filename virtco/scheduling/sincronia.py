# SPDX-License-Identifier: Apache-2.0

"""The order of Sincronia. Pure.

Agarwal and others, "Sincronia: Near-Optimal Network Design for Coflows"
(SIGCOMM 2018), Algorithm 1, *bottleneck-select-scale-iterate*, of what the
coflows have left.
"""

from collections.abc import Sequence

import numpy as np

from virtco.scheduling import own_policy

_LONG_S = 1e12
#: Numbers this near to each other are equal, and so little weight is none.
_ROUNDING = 1e-9


class Sincronia:
    """Order from the last coflow to the first.

    The last one is the cheapest to delay on the port with most to send: that
    with the least weight per second there. The others' weights fall by the
    part that this delay has paid for. Of equal ones the last given is last, of
    equal ports the first one counts.
    """

    def order(self, coflows: Sequence[own_policy.Unfinished]
              ) -> list[own_policy.Unfinished]:
        """Return the coflows, the first to be served first."""
        left = list(coflows)
        # A port that is down keeps a coflow busy for ever.
        busy_s = np.minimum([coflow.busy_s for coflow in coflows], _LONG_S)
        weight = np.array([coflow.weight for coflow in coflows])
        found = []
        while left:
            sum_s = busy_s.sum(axis=0)
            at_port_s = busy_s[:, (sum_s >= sum_s.max() * (1 - _ROUNDING)
                                   ).argmax()]
            with np.errstate(divide='ignore', invalid='ignore'):
                price = np.where(at_port_s > 0, weight / at_port_s, np.inf)
            last = int(np.flatnonzero(
                price <= price.min() * (1 + _ROUNDING))[-1])
            if at_port_s[last] > 0:
                unpaid = weight - price[last] * at_port_s
                weight = np.where(unpaid > _ROUNDING * weight, unpaid, 0.0)
            found.append(left.pop(last))
            busy_s = np.delete(busy_s, last, axis=0)
            weight = np.delete(weight, last)
        return found[::-1]
