# SPDX-License-Identifier: Apache-2.0

"""Rates that a VM never exceeds, such as its flavor's ``quota:vif_*``.

A hypervisor enforces a cap at the VM's port, so traffic between VMs of one
host passes it, too. The time that a VM's cap needs is then the same in every
placement: the best placement stays the best, and only its figures change.
"""

from collections.abc import Iterator
import dataclasses
import math

import numpy as np

from virtco import units
from virtco.model import cluster
from virtco.model import matrix as matrix_model
from virtco.model import snapshot

#: Fields of a VM with its caps: on bytes that it sends, and on those that it
#: receives.
WAYS = ('egress_cap_bps', 'ingress_cap_bps')
#: Fields with the bursts: bytes that a VM saved up and sends above the cap.
BURSTS = ('egress_burst_bytes', 'ingress_burst_bytes')


def port_name(vm: cluster.Vm, way: str) -> str:
    """Name a cap as a bottleneck, such as 'cap of vm-3, 2 Gbit/s out'.

    :param way: one of :data:`WAYS`.
    """
    return (f'cap of {vm.name}, {units.format_rate(getattr(vm, way))} '
            f'{"out" if way == WAYS[0] else "in"}')


def slowest(problem: snapshot.PlacementProblem) -> tuple[float, str]:
    """Find the slowest cap for all coflows: its time, in s, and its name.

    :returns: 0 s and '' where no cap has anything to pass.
    """
    return max(((max(0.0, float(taken_s.sum()) - burst_s),
                 port_name(problem.vms[vm], way))
                for vm, way, taken_s, burst_s in _times_s(problem)),
               default=(0.0, ''), key=lambda found: found[0])


def applied(plan: snapshot.Plan, problem: snapshot.PlacementProblem
            ) -> snapshot.Plan:
    """Raise a plan's times to those that the caps of its VMs allow.

    The objective and its bound stay those without caps.
    """
    times = [(taken_s, burst_s)
             for _, _, taken_s, burst_s in _times_s(problem)]
    if not times:
        return plan
    found_s, name = slowest(problem)
    # A coflow waits at a cap for those that are served before it.
    order = np.argsort(plan.coflow_cct_s, kind='stable')
    prefix_s = np.zeros(len(order))
    prefix_s[order] = np.max([np.cumsum(taken_s[order]) - burst_s
                              for taken_s, burst_s in times], axis=0)
    cct_s = max(plan.cct_s, found_s)
    lower_bound_s = max(plan.lower_bound_s, found_s)
    return dataclasses.replace(
        plan, cct_s=cct_s, lower_bound_s=lower_bound_s,
        coflow_cct_s=tuple(map(max, plan.coflow_cct_s, prefix_s.tolist())),
        gap=snapshot.gap(cct_s, lower_bound_s),
        bottleneck=name if found_s > plan.cct_s else plan.bottleneck)


def _times_s(problem: snapshot.PlacementProblem
             ) -> Iterator[tuple[int, str, np.ndarray, float]]:
    """Yield VM, way, the time of each coflow, shape (C,), and of the burst at
    every cap.
    """
    for ends, way, burst in zip(('src', 'dst'), WAYS, BURSTS, strict=True):
        capped = [i for i, vm in enumerate(problem.vms)
                  if math.isfinite(getattr(vm, way))]
        passing = [_passing(coflow.matrix, ends, len(problem.vms))
                   for coflow in problem.coflows if capped]
        for i in capped:
            rate_bps = getattr(problem.vms[i], way)
            yield i, way, np.array([
                units.transfer_time_s(each[i], rate_bps) for each in passing
                ]), units.transfer_time_s(
                    getattr(problem.vms[i], burst),
                    rate_bps) if rate_bps else 0.0


def _passing(matrix: matrix_model.Matrix, ends: str, n_vms: int
             ) -> list[float]:
    """Sum up the bytes that each VM sends (``src``) or receives (``dst``).
    """
    src, dst = np.asarray(matrix.src), np.asarray(matrix.dst)
    found: list[float] = np.bincount(
        src if ends == 'src' else dst,
        np.asarray(matrix.size_bytes) * (src != dst), n_vms).tolist()
    return found
