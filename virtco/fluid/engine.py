# SPDX-License-Identifier: Apache-2.0

"""State and rules of a simulation, for the kernels of its event loop."""

import math
from typing import NamedTuple

import numpy as np

from virtco.scheduling import fabric as fabric_model


class State(NamedTuple):
    """Changing state of the coflows; arrays of shape (C,).

    :ivar bound: bottleneck time at scale 1, seconds.
    :ivar left: number of flows that have not ended.
    :ivar whole_s: bottleneck time when the coflow became active; its place in
        the order of a policy of one's own.
    :ivar arrival_s: time at which it became active.
    :ivar served_s: time at which it last completed a quantum of service.
    :ivar credit_s: seconds of service since then.
    :ivar lifted_s: time until which starvation keeps it in front.
    :ivar end_s: time at which its last flow ended, NaN before.
    :ivar sent_bits: bits sent, for queues by attained service.
    :ivar level: coarse rank, an operator's class.
    :ivar weight: cost of a second of its completion time.
    :ivar intensity: order of periodic coflows, 0 for others.
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


def begin(fabric: fabric_model.Fabric, bound: np.ndarray) -> State:
    """Return the state of coflows before any of their bytes is sent."""
    n_coflows = len(bound)
    zeros = {name: np.zeros(n_coflows) for name in (
        'whole_s', 'arrival_s', 'served_s', 'credit_s', 'sent_bits',
        'intensity')}
    return State(
        bound=bound, left=np.diff(fabric.flow_ptr),
        lifted_s=np.full(n_coflows, -math.inf),
        end_s=np.full(n_coflows, math.nan),
        level=np.zeros(n_coflows, np.int64), weight=np.ones(n_coflows),
        **zeros)
