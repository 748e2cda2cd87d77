# SPDX-License-Identifier: Apache-2.0

"""Promises of deadlines at launch, and the answers about them."""

from collections.abc import Callable
from collections.abc import Iterable
import math
from typing import NamedTuple

import numpy as np

from virtco import hints
from virtco import units
from virtco.db import codec
from virtco.model import coflow as coflow_model
from virtco.model import live
from virtco.model import snapshot
from virtco.place import problem as problem_builder
from virtco.scheduling import deadlines
from virtco.solver.model import caps
from virtco.state import live_state
from virtco.wire import placement as wire

#: More than the hint says is reserved: for packets that are sent twice, and
#: for the time until rates are in force.
MARGIN = 1.05


class Judged(NamedTuple):
    """Judgement of a deadline.

    :ivar beside: ids of the coflows whose promises it was judged by.
    """

    promise: wire.Promise
    beside: frozenset[str] = frozenset()


class Promises:
    """Judge of launches with deadlines beside the promises in force."""

    def __init__(self, state: live_state.LiveState, is_fair: Callable[
            [], bool], clock: Callable[[], float]):
        self._state = state
        self._is_fair = is_fair
        self._clock = clock
        self._withheld = deadlines.Withheld()

    def judge(self, hint: hints.Deadline,
              problem: snapshot.PlacementProblem, plan: snapshot.Plan,
              n_vms: int, is_asked: bool = False) -> Judged:
        """Decide whether a group keeps its deadline on its planned hosts.

        :param n_vms: VMs of the group; a plan may lack some of them.
        :param is_asked: a question without consequences.
        """
        now_s = self._clock()
        due_s = hint.due_s(now_s)
        ports, promised = self._state.promised(now_s, self._is_fair())
        why_not = _unpromisable(problem.coflows)
        unknown = sorted(set(plan.hosts) - set(ports.hosts))
        if self._is_fair():
            why_not = 'under fair sharing no rate is guaranteed'
        elif len(plan.hosts) < n_vms:
            why_not = 'not all of its VMs are planned'
        elif unknown:
            why_not = f'nothing is known of host {unknown[0]}'
        if why_not:
            return Judged(wire.Promise(
                at=due_s, promised=False, why=f'no: {why_not}',
                bound_s=codec.finite(plan.lower_bound_s)))
        left_s, size_s = due_s - now_s, _port_s(problem, plan, ports)
        caps_s = MARGIN * caps.slowest(problem)[0]
        verdict = deadlines.judge(promised, size_s, left_s, caps_s)
        alone_s = float(size_s.max(initial=caps_s))
        earliest_s = verdict.earliest_s
        if alone_s > self._withheld.limit_s:
            earliest_s = max(earliest_s, self._withheld.LOOSE * alone_s)
        waits = self._withheld.holds(alone_s, left_s)
        # A deadline that no empty cloud could promise tells nothing of room.
        if not is_asked and alone_s <= MARGIN * left_s:
            self._withheld.note(alone_s, waits or verdict.is_promised)
        is_promised = verdict.is_promised and not waits
        # Bound of the group alone, on any hosts.
        least_s = min(plan.lower_bound_s, verdict.bound_s)
        return Judged(wire.Promise(
            at=due_s, promised=is_promised,
            why=_text(is_promised, waits and verdict.is_promised, least_s,
                      verdict.bound_s, earliest_s),
            bound_s=codec.finite(least_s),
            bound_here_s=codec.finite(verdict.bound_s),
            earliest_s=codec.finite(earliest_s)), frozenset(promised.ids))


def _unpromisable(coflows: Iterable[coflow_model.Coflow]) -> str:
    """Return why no deadline can ever be promised; empty if one can."""
    for coflow in coflows:
        if coflow.is_estimated:
            return f'the sizes of {coflow.name} are not known'
        if coflow.iterations != 1:
            return f'{coflow.name} is sent again and again'
    return ''


def _text(is_promised: bool, waits: bool, least_s: float,
          bound_s: float, earliest_s: float) -> str:
    """Write the verdict as a line for the tenant."""
    needs = (f'it takes at least {_time(least_s)} on any hosts it may use, '
             f'and {_time(bound_s)} on these beside the promises to others')
    if is_promised:
        return f'yes, its rates are reserved; {needs}'
    if waits:
        needs = ('others find no room, and it is among the largest that ask; '
                 + needs)
    return f'no: {needs}' + (
        f'; {_time(earliest_s)} could be promised'
        if math.isfinite(earliest_s) else '')


def _time(time_s: float) -> str:
    return (units.format_time(time_s) if math.isfinite(time_s)
            else 'forever')


def _port_s(problem: snapshot.PlacementProblem, plan: snapshot.Plan,
            ports: live.Ports) -> np.ndarray:
    """Sum the port seconds of a plan's coflows, shape (n_ports,)."""
    sizes: dict[tuple[str, str], float] = {}
    for coflow in problem.coflows:
        for src, dst, size_bytes in coflow.matrix.rows():
            pair = plan.hosts[src], plan.hosts[dst]
            sizes[pair] = sizes.get(pair, 0.0) + size_bytes * MARGIN
    index = {host: i for i, host in enumerate(ports.hosts)}
    egress_bps, ingress_bps = _rates(problem, ports)
    return live.Ports(
        ports.hosts, egress_bps, ingress_bps, ports.uplinks).busy_s(
            live.Flows(live.Pairs(sizes), np.array(list(sizes.values()))),
            index)


def _rates(problem: snapshot.PlacementProblem, ports: live.Ports
           ) -> tuple[np.ndarray, np.ndarray]:
    """Return each host's rates: the question's, or its own if slower."""
    given: problem_builder.Rates = {
        host.name: (host.egress_bps, host.ingress_bps)
        for host in problem.hosts}
    always = math.inf, math.inf
    rates = np.array([given.get(host, always) for host in ports.hosts]
                     ).reshape(-1, 2)
    return (np.minimum(ports.egress_bps, rates[:, 0]),
            np.minimum(ports.ingress_bps, rates[:, 1]))
