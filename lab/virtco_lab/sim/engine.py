# SPDX-License-Identifier: Apache-2.0

"""What a simulation consists of, for the kernels of its event loop."""

from typing import NamedTuple

import numpy as np


class State(NamedTuple):
    """What changes while coflows run; shapes (C,).

    :ivar bound: bottleneck time at scale 1, seconds.
    :ivar left: flows that have not ended.
    :ivar whole_s: bottleneck time when the coflow became active.
    :ivar arrival_s: when it became active.
    :ivar served_s: when it last had been served for a quantum in all.
    :ivar credit_s: for how long it was served since then.
    :ivar lifted_s: until when starvation keeps it in front.
    :ivar end_s: when its last flow ended, NaN before.
    :ivar sent_bits: for queues by attained service.
    :ivar level: coarse rank, an operator's class.
    :ivar weight: what a second of its time is worth.
    :ivar intensity: what periodic coflows are ordered by, 0 of others.
    """

    bound: np.ndarray
    left: np.ndarray
    whole_s: np.ndarray
    arrival_s: np.ndarray
    served_s: np.ndarray
    credit_s: np.ndarray
    lifted_s: np.ndarray
    end_s: np.ndarray
    sent_bits: np.ndarray
    level: np.ndarray
    weight: np.ndarray
    intensity: np.ndarray


class Rules(NamedTuple):
    """A policy as numbers, for the kernels."""

    key: int
    sharing: int
    backfill: int
    each_flow: bool
    swaps: bool
    trickle: float
    theta_s: float
    quantum_s: float
