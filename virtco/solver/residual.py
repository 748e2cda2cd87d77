# SPDX-License-Identifier: Apache-2.0

"""The bandwidth that running coflows leave, for the printed planner.

``virtco-printed`` is Algorithm 2 as the paper has it: the newcomer alone,
on the residual bandwidth, solved nearly to optimality by the local search.
"""

import dataclasses

import numpy as np

from virtco.model import snapshot
from virtco.solver.model import instance as instances

#: A port without residual bandwidth keeps this share, so that the printed
#: method can tell a full port from a dead one.
LEAST = 1e-3


def residual(inst: instances.Instance) -> snapshot.PlacementProblem:
    """Reduce the problem to the bandwidth that the active coflows leave.

    Active coflows get MADD rates (bytes / CCT on what is left) in MRTF
    order, as VirtCO's Algorithm 1 line 5 hands them out.
    """
    problem = inst.problem
    # A port with nothing left makes a coflow's time infinite, its rate 0.
    with np.errstate(divide='ignore'):
        full = 1 / inst.s_per_byte
        left, running = full.copy(), inst.running
        for first, last in zip(running.start, running.start[1:]):
            port = running.port[first:last]
            size_bytes = running.size_bytes[first:last]
            seconds = (size_bytes / left[port]).max(initial=0.0)
            # On unlimited ports alone it takes no time, and leaves all.
            if seconds > 0:
                left[port] = np.maximum(0.0, left[port] - size_bytes / seconds)
    share = np.divide(left, full, out=np.ones(len(full)),
                      where=(full > 0) & (full < np.inf))
    share = np.maximum(share, LEAST)
    m, q = inst.n_hosts, len(inst.uplinks)
    up = dict(zip((one.name for one in inst.uplinks.subtrees),
                  zip(share[2 * m:].tolist(), share[2 * m + q:].tolist())))
    return dataclasses.replace(
        problem, active=(), hosts=tuple(
            dataclasses.replace(
                host, egress_bps=host.egress_bps * out,
                ingress_bps=host.ingress_bps * into)
            for host, out, into in zip(problem.hosts, share.tolist(),
                                       share[m:].tolist())),
        tree=dataclasses.replace(problem.tree, subtrees=tuple(
            dataclasses.replace(
                one, uplink_out_bps=one.uplink_out_bps * out,
                uplink_in_bps=one.uplink_in_bps * into)
            for one in problem.tree.subtrees
            for out, into in [up.get(one.name, (1.0, 1.0))])))
