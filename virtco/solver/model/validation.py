# SPDX-License-Identifier: Apache-2.0

"""Refuses placement problems that make no sense."""

from collections.abc import Sequence
import math

import numpy as np

from virtco import exception
from virtco.model import cluster
from virtco.model import snapshot
from virtco.solver.model import caps


def check(problem: snapshot.PlacementProblem) -> None:
    """Refuse a problem that contradicts itself.

    :raises virtco.exception.Invalid: naming field, value and limit.
    """
    names = [host.name for host in problem.hosts]
    known = set(names)
    n_resources = len(problem.resources)
    for field, values in (('hosts', names), ('tree.subtrees', [
            one.name for one in problem.tree.subtrees])):
        if len(set(values)) != len(values):
            raise exception.Invalid(field=field, value='a name twice',
                                    limit='different names')
    for host in problem.hosts:
        # A valid host costs a single look: there may be thousands.
        if not (len(host.free) == n_resources and host.egress_bps >= 0
                and host.ingress_bps >= 0
                and all(map(math.isfinite, host.free))):
            _check_vector(f'{host.name}.free', host.free, n_resources, None)
            _check_rate(f'{host.name}.egress_bps', host.egress_bps)
            _check_rate(f'{host.name}.ingress_bps', host.ingress_bps)
    _check_tree(problem.tree)
    for vm in problem.vms:
        _check_vector(f'{vm.name}.demand', vm.demand, n_resources, 0.0)
        for way in caps.WAYS:
            _check_rate(f'{vm.name}.{way}', getattr(vm, way))
        if vm.pinned is not None and vm.pinned not in known:
            raise exception.Invalid(field=f'{vm.name}.pinned',
                                    value=vm.pinned, limit='a known host')
    _check_traffic(problem)


def _check_tree(tree: cluster.Tree) -> None:
    known = {one.name for one in tree.subtrees}
    for one in tree.subtrees:
        _check_rate(f'{one.name}.uplink_out_bps', one.uplink_out_bps)
        _check_rate(f'{one.name}.uplink_in_bps', one.uplink_in_bps)
        if one.parent is not None and one.parent not in known:
            raise exception.Invalid(field=f'{one.name}.parent',
                                    value=one.parent, limit='a known subtree')
    try:
        tree.chains()
    except ValueError as error:
        name = str(error)
        raise exception.Invalid(field=f'{name}.parent', value=name,
                                limit='a subtree outside itself') from error
    for host, leaf in tree.leaf_of.items():
        if leaf not in known:
            raise exception.Invalid(field=f'tree.leaf_of[{host}]', value=leaf,
                                    limit='a known subtree')


def _check_traffic(problem: snapshot.PlacementProblem) -> None:
    n_vms = len(problem.vms)
    for coflow in problem.coflows:
        matrix = coflow.matrix
        for ends in (matrix.src, matrix.dst):
            _check_vms(f'{coflow.name}.flows', ends, n_vms)
        sizes = np.asarray(matrix.size_bytes)
        wrong = sizes[~((sizes >= 0) & (sizes < math.inf))]
        if len(wrong):
            raise exception.Invalid(
                field=f'{coflow.name}.size_bytes', value=float(wrong[0]),
                limit='a finite number, at least 0')
    for pair, rate_bps in (problem.pair_rate_bps or {}).items():
        _check_rate(f'pair_rate_bps{pair}', rate_bps)
    for group in problem.server_groups:
        _check_vms('server_groups.members', group.members, n_vms)


def _check_vms(field: str, members: Sequence[int], n_vms: int) -> None:
    numbers = np.asarray(members)
    wrong = numbers[(numbers < 0) | (numbers >= n_vms)]
    if len(wrong):
        raise exception.Invalid(field=field, value=int(wrong[0]),
                                limit=f'a VM index below {n_vms}')


def _check_vector(field: str, values: tuple[float, ...], length: int,
                  least: float | None) -> None:
    if len(values) != length:
        raise exception.Invalid(field=field, value=len(values),
                                limit=f'{length} entries')
    for value in values:
        if not math.isfinite(value) or (least is not None and value < least):
            raise exception.Invalid(
                field=field, value=value, limit='a finite number' + (
                    '' if least is None else f', at least {least:g}'))


def _check_rate(field: str, rate_bps: float) -> None:
    if math.isnan(rate_bps) or rate_bps < 0:
        raise exception.Invalid(field=field, value=rate_bps,
                                limit='a rate of at least 0')
