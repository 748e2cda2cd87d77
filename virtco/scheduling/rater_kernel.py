# SPDX-License-Identifier: Apache-2.0

"""The arrays of a fabric and of its rates, laid out for kernels."""

from typing import Any

import cython
import numpy as np

#: Python's own buffers give plain kernels Python's own numbers.
view: Any = memoryview


@cython.final
@cython.cclass
class Rater:
    """The arrays of a fabric, of its rates, and of scratch, for kernels.

    Built once per fabric; the arrays are shared with those given.
    """

    def __init__(self, fabric: Any, rates: Any) -> None:
        """Take a fabric's arrays.

        :param fabric: a :class:`virtco.scheduling.fabric.Fabric`.
        :param rates: a :class:`virtco.scheduling.fabric.Rates`, written to.
        """
        self.cap, self.load = view(fabric.cap), view(fabric.load)
        self.base, self.scale = view(fabric.base), view(fabric.scale)
        self.weight, self.split = view(fabric.weight), view(fabric.split)
        self.flow_ptr = view(fabric.flow_ptr)
        self.entry_ptr = view(fabric.entry_ptr)
        self.skip, self.owner = view(fabric.skip), view(fabric.owner)
        self.src, self.dst = view(fabric.src), view(fabric.dst)
        self.port, self.alive = view(fabric.port), view(fabric.alive)
        self.first, self.last = view(fabric.first), view(fabric.last)
        self.up_ptr, self.up = view(fabric.up_ptr), view(fabric.up)
        self.residual, self.pace = view(rates.residual), view(rates.pace)
        self.floor = view(rates.floor)
        self.extra_flow = view(rates.extra_flow)
        self.extra_rate = view(rates.extra_rate)
        self.n_extra = 0
        n_ports, n_flows = len(fabric.cap), len(fabric.base)
        self.demand = view(np.zeros(n_ports))
        self.share = view(np.zeros(n_ports))
        self.count = view(np.zeros(n_ports, np.int64))
        self.start = view(np.zeros(n_ports + 1, np.int64))
        self.place = view(np.zeros(n_ports + 1, np.int64))
        self.rising = view(np.zeros(n_ports, np.int64))
        self.chosen = view(np.zeros(len(fabric.scale), np.int64))
        self.flows = view(np.empty(n_flows, np.int64))
        self.rising_weight = view(np.empty(n_flows))
        self.at_port = view(np.empty(2 * n_flows + len(fabric.up), np.int32))
        self.stopped = view(np.empty(n_flows, np.uint8))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.inline
def clear(rater: Rater) -> cython.void:
    for p in range(rater.cap.shape[0]):
        rater.demand[p] = 0.0
        rater.count[p] = 0
