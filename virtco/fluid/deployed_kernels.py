# SPDX-License-Identifier: Apache-2.0

"""Rates that stay until the next policy arrives, compiled.

See :mod:`virtco_lab.sim.deployed`. Scales stay 1: ``base`` is what a flow has
left.
"""

import cython

if cython.compiled:
    from cython.cimports.virtco.fluid.run_kernels import end_coflow
    from cython.cimports.virtco.fluid.run_kernels import end_flow
    from cython.cimports.virtco.fluid.run_kernels import Run
    from cython.cimports.virtco.scheduling.order_kernel import bottleneck
    from cython.cimports.virtco.scheduling.rate_kernel import next_alive
    from cython.cimports.virtco.scheduling.rater_kernel import Rater
else:
    from virtco.fluid.run_kernels import end_coflow
    from virtco.fluid.run_kernels import end_flow
    from virtco.fluid.run_kernels import Run
    from virtco.scheduling.order_kernel import bottleneck
    from virtco.scheduling.rate_kernel import next_alive
    from virtco.scheduling.rater_kernel import Rater


def write_rates(rater: Rater, order: cython.longlong[::1],
                floor: cython.double, flow_bps: cython.double[::1]) -> None:
    """Write the rate of each live flow of ``order`` as its host enforces it.

    :param floor: share of a link that its classes without a rate get, all of
        them together; see virtco.table.sheet.
    :param flow_bps: out, shape (F,).
    """
    for i in range(order.shape[0]):
        c = order[i]
        f = next_alive(rater, rater.flow_ptr[c])
        while f < rater.flow_ptr[c + 1]:
            flow_bps[f] = rater.base[f] * rater.pace[c]
            f = next_alive(rater, f + 1)
    for i in range(rater.n_extra):
        flow_bps[rater.extra_flow[i]] += rater.extra_rate[i]
    for p in range(rater.cap.shape[0]):
        rater.count[p] = 0
    for i in range(order.shape[0]):
        c = order[i]
        for e in range(rater.entry_ptr[c], rater.split[c]):
            if rater.alive[e] > 0:
                rater.count[rater.port[e]] += 1
    raise_to_floor(rater, order, floor, flow_bps)
    fit(rater, order, True, flow_bps)
    fit(rater, order, False, flow_bps)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def raise_to_floor(rater: Rater, order: cython.longlong[::1],
                   floor: cython.double, flow_bps: cython.double[::1]
                   ) -> cython.void:
    """Give every flow its part of its class's part of the floor."""
    for i in range(order.shape[0]):
        c = order[i]
        for e in range(rater.entry_ptr[c], rater.split[c]):
            if rater.alive[e] == 0:
                continue
            p = rater.port[e]
            least_bps = floor * rater.cap[p] / (
                1.0 * rater.count[p] * rater.alive[e])
            f = next_alive(rater, rater.first[e])
            while f < rater.last[e]:
                flow_bps[f] = max(flow_bps[f], least_bps)
                f = next_alive(rater, f + 1)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fit(rater: Rater, order: cython.longlong[::1], egress: cython.bint,
        flow_bps: cython.double[::1]) -> cython.void:
    """Scale down the flows of each egress or ingress that has too little.

    A sender's link is scaled by the controller; at a receiver TCP shares what
    there is, here in proportion.
    """
    for p in range(rater.cap.shape[0]):
        rater.demand[p] = 0.0
    for i in range(order.shape[0]):
        c = order[i]
        f = next_alive(rater, rater.flow_ptr[c])
        while f < rater.flow_ptr[c + 1]:
            rater.demand[rater.port[rater.src[f] if egress
                                    else rater.dst[f]]] += flow_bps[f]
            f = next_alive(rater, f + 1)
    for i in range(order.shape[0]):
        c = order[i]
        f = next_alive(rater, rater.flow_ptr[c])
        while f < rater.flow_ptr[c + 1]:
            p = rater.port[rater.src[f] if egress else rater.dst[f]]
            if rater.demand[p] > rater.cap[p]:
                flow_bps[f] *= rater.cap[p] / rater.demand[p]
            f = next_alive(rater, f + 1)


def send(rater: Rater, run: Run, order: cython.longlong[::1],
         flow_bps: cython.double[::1], now_s: cython.double,
         until_s: cython.double) -> None:
    """Let the live flows of ``order`` send from now_s to until_s."""
    for i in range(order.shape[0]):
        c = order[i]
        run.now_s = now_s
        f = next_alive(rater, rater.flow_ptr[c])
        while f < rater.flow_ptr[c + 1]:
            bits = flow_bps[f] * (until_s - now_s)
            if bits >= rater.base[f]:
                if bits > 0.0:
                    run.now_s = max(run.now_s,
                                    now_s + rater.base[f] / flow_bps[f])
                end_flow(rater, run, c, f)
            else:
                rater.base[f] -= bits
                rater.load[rater.src[f]] -= bits
                rater.load[rater.dst[f]] -= bits
            f = next_alive(rater, f + 1)
        if run.left[c] == 0:
            end_coflow(rater, run, c)
        else:
            run.bound[c] = bottleneck(rater, c)
