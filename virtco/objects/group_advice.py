# SPDX-License-Identifier: Apache-2.0

"""Trees and mappings for the VMs of a group, by measurements."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

import numpy as np
from oslo_config import cfg

from virtco import exception
from virtco import hint_matrix
from virtco.advise import estimates
from virtco.advise import mappings
from virtco.advise import nccl
from virtco.advise import orders
from virtco.advise import trees
from virtco.db import codec
from virtco.db import groups as db_groups
from virtco.measure import constant
from virtco.model import coflow as coflow_model
from virtco.objects import new_groups
from virtco.state import measured_rates
from virtco.state import state as states
from virtco.wire import group as wire

#: As the RPCA paper's section V broadcasts.
SIZE_BYTES = 8e6
#: A collective in segments takes no smaller ones, and no more of them.
LEAST_SEGMENT_BYTES = 16384
MOST_SEGMENTS = 256
# Divisor of the search's work for estimates other than the chosen one.
_LESS = 5

#: Mappings by some paths and with so much work.
Adviser = Callable[[mappings.Paths, int], tuple[mappings.Mapping, ...]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    group_id: str
    name: str
    members: list[wire.AdvisedMember]
    hosts: list[str]
    coflows: list[coflow_model.Coflow]


class Advice:
    """Advice on the communication of a group.

    :param state: room with the rates measured between the hosts.
    """

    def __init__(self, conf: cfg.ConfigOpts, state: states.State,
                 clock: Callable[[], float]):
        self._conf = conf
        self._state = state
        self._clock = clock

    def tree(self, project_id: str | None, group: str, root: int = 0,
             size_bytes: float = SIZE_BYTES, is_reduce: bool = False,
             basis: wire.Basis = 'constant') -> wire.Tree:
        """Build trees of one message from or to a member, by each estimate.

        :param project_id: project of the group; None = any.
        :param group: id or name.
        :raises virtco.exception.NotFound: without such a group.
        :raises virtco.exception.Invalid: for a root that is none, and for a
            group of which not all VMs have hosts.
        """
        found = self._group(project_id, group)
        all_of = self._estimates(found, basis)
        chosen = all_of[basis]

        def really_s(tree: trees.Tree) -> float:
            """Time a tree by the estimate that was chosen."""
            sent = message(chosen, size_bytes)
            return (sent.turned().took_s(trees.turned(tree.edges),
                                         tree.n_segments)
                    if is_reduce else sent.took_s(tree.edges,
                                                  tree.n_segments))

        by_basis = trees_by(all_of, root, size_bytes, is_reduce)
        best = by_basis[basis]
        first = best.orders[0]
        return wire.Tree(
            group=found.group_id, group_name=found.name,
            members=found.members, matrix=basis,
            operation='reduce' if is_reduce else 'broadcast',
            root=root, size_bytes=size_bytes,
            shape=str(first.shape), order=list(first.order),
            rank_hint=list(first.order),
            predicted_s=first.predicted_s, bound_s=best.bound_s,
            best=best.best.name,
            orders=[wire.Order(
                shape=str(one.shape), order=list(one.order),
                predicted_s=one.predicted_s, n_segments=one.n_segments)
                for one in best.orders],
            trees=[wire.NamedTree(
                tree=tree.name, predicted_s=tree.predicted_s,
                n_segments=tree.n_segments, edges=list(tree.edges))
                for tree in best.trees],
            estimates=[_estimate(
                all_of[name], best=one.best.name, bound_s=one.bound_s,
                predicted_s={tree.name: tree.predicted_s
                             for tree in one.trees},
                as_chosen_s=really_s(one.best))
                for name, one in by_basis.items()])

    def mapping(self, project_id: str | None, group: str, matrix: Any = None,
                basis: wire.Basis = 'constant',
                all_reduce_bytes: float | None = None) -> wire.Mapping:
        """Map the ranks of a matrix to VMs, by each estimate.

        :param matrix: matrix of bytes between ranks, in any form of
            ``virtco:tm``; None = all matrices of the group's own hint.
        :param all_reduce_bytes: bytes of NCCL's all-reduce, in place of a
            matrix.
        :raises virtco.exception.NotFound: without such a group.
        :raises virtco.exception.Invalid: for a matrix that does not fit, and
            as :meth:`tree`.
        """
        if matrix is not None and all_reduce_bytes is not None:
            raise exception.Invalid(field='all_reduce_bytes',
                                    value=all_reduce_bytes,
                                    limit='nothing beside tm')
        found = self._group(project_id, group)
        exchanges, advise = self._exchanges(found, matrix, all_reduce_bytes)
        all_of = self._estimates(found, basis)
        chosen = all_of[basis]
        by_basis = mappings_by(all_of, basis, advise)
        best = by_basis[basis][0]
        return wire.Mapping(
            group=found.group_id, group_name=found.name,
            members=found.members, matrix=basis,
            operation='exchange' if all_reduce_bytes is None
            else 'all_reduce',
            size_bytes=float(exchanges[0].sum())
            if all_reduce_bytes is None else all_reduce_bytes,
            order=list(best.order), rank_hint=list(best.order),
            predicted_s=best.predicted_s, bound_s=best.bound_s,
            best=best.name,
            mappings=[wire.NamedMapping(
                mapping=one.name, order=list(one.order),
                predicted_s=one.predicted_s, gap=codec.finite(one.gap))
                for one in by_basis[basis]],
            estimates=[_estimate(
                all_of[name], best=first.name, bound_s=first.bound_s,
                predicted_s={one.name: one.predicted_s
                             for one in (first, *others)},
                as_chosen_s=mappings.slowest_s(
                    exchanges, np.array(first.order), chosen.paths))
                for name, (first, *others) in by_basis.items()])

    def _exchanges(self, group: _Group, matrix: Any,
                   all_reduce_bytes: float | None
                   ) -> tuple[Sequence[mappings.Matrix], Adviser]:
        """Return the bytes between ranks, and the search of mappings."""
        n = len(group.members)
        if all_reduce_bytes is not None:
            return (nccl.volumes(n, all_reduce_bytes),
                    functools.partial(nccl.advise, all_reduce_bytes))
        volumes = _volumes(
            group.coflows if matrix is None else hint_matrix.parse_matrix(
                matrix, group.name, new_groups.limits_of(self._conf)), n)
        return [volumes], functools.partial(mappings.advise, volumes)

    def _group(self, project_id: str | None, group: str) -> _Group:
        """Read a group for advice; refuse one with a VM without a host."""
        with self._state.database.reader() as session:
            stored = db_groups.only_living(session, project_id, group)
            members = db_groups.members(session, stored.id)
            coflows = [codec.decode_coflow(one)
                       for one in db_groups.coflows(session, stored.id)
                       if one.expires_at is None]
            missing = [str(member.row_index) for member in members
                       if member.instance_uuid is None or not member.host]
            if missing:
                raise exception.Invalid(
                    field='group', value=stored.name, limit='a group whose '
                    'VMs all have hosts (without one: row '
                    + ', '.join(missing[:5])
                    + (', …)' if len(missing) > 5 else ')'))
            addresses = self._state.live.addresses_of(
                [str(member.instance_uuid) for member in members])
            return _Group(stored.id, stored.name, [wire.AdvisedMember(
                row=member.row_index, instance_uuid=member.instance_uuid,
                display_name=member.display_name, addresses=tuple(ips),
                host=member.host)
                for member, ips in zip(members, addresses)],
                [str(member.host) for member in members], coflows)

    def _estimates(self, group: _Group, chosen: str
                   ) -> Mapping[str, estimates.Estimate]:
        """Estimate the rates between a group's hosts, on all bases shown."""
        now_s = self._clock()
        readings = estimates.Readings.of(
            self._state.rates.table(now_s - measured_rates.RETENTION_S),
            group.hosts, self._state.live.links_bps(set(group.hosts), now_s),
            self._conf.placement.default_link_bps,
            states.rules_of(self._conf).payload_fraction)
        return estimates_by(readings, estimates.Basis(chosen),
                            self._state.rates.estimator)


def estimates_by(readings: estimates.Readings, chosen: estimates.Basis,
                 estimator: constant.Estimator | None
                 ) -> Mapping[str, estimates.Estimate]:
    """Estimate on several bases side by side, the chosen one among them.

    :param estimator: estimator that the controller uses.
    """
    return {basis: readings.estimate(basis, estimator)
            for basis in readings.side_by_side(chosen)}


def trees_by(all_of: Mapping[str, estimates.Estimate], root: int,
             size_bytes: float, is_reduce: bool
             ) -> Mapping[str, orders.Advice]:
    """Advise a tree by each estimate of the rates."""
    return {name: orders.advise(message(one, size_bytes), root, is_reduce)
            for name, one in all_of.items()}


def mappings_by(all_of: Mapping[str, estimates.Estimate], chosen: str,
                advise: Adviser) -> Mapping[str, tuple[mappings.Mapping, ...]]:
    """Advise mappings by each estimate, the chosen one with more work."""
    return {name: advise(one.paths, mappings.WORK if name == chosen
                         else mappings.WORK // _LESS)
            for name, one in all_of.items()}


def message(one: estimates.Estimate, size_bytes: float) -> trees.Message:
    """Build a message timed by one estimate, segmented if it is large."""
    return trees.message(
        trees.message_s(size_bytes, one.paths.rates_bps, one.paths.latency_s),
        one.paths.machines, one.paths.latency_s, _most_segments(size_bytes))


def _most_segments(size_bytes: float) -> int:
    """Compute the most segments of a message, a power of two."""
    most = min(MOST_SEGMENTS, size_bytes / LEAST_SEGMENT_BYTES)
    return 1 << max(0, int(most).bit_length() - 1)


def _volumes(coflows: Sequence[coflow_model.Coflow], n: int
             ) -> mappings.Matrix:
    """Sum the bytes between all ranks over all coflows."""
    found = np.zeros((n, n))
    for coflow in coflows:
        if coflow.n_vms != n:
            raise exception.Invalid(
                field='tm', value=f'{coflow.n_vms} rows',
                limit=f'{n} rows, one for each VM of the group')
        for src, dst, size_bytes in coflow.matrix.rows():
            found[src, dst] += size_bytes
    return found


def _estimate(one: estimates.Estimate, **advised: Any) -> wire.Estimate:
    return wire.Estimate(
        matrix=one.basis.value,
        estimator=one.estimator and str(one.estimator), noise=one.noise,
        trust=one.trust and str(one.trust), n_measured=one.n_measured,
        n_pairs=one.n_pairs, **advised)
