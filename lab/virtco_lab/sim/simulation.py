# SPDX-License-Identifier: Apache-2.0

"""Coflows over time on a fabric: the simulator without its planner."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from virtco import exception
from virtco import units
from virtco.fluid import engine
from virtco.fluid import event_kernels
from virtco.fluid import run_kernels
from virtco.model import uplinks
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling import order_kernel
from virtco.scheduling import own_policy
from virtco.scheduling import policies
from virtco.scheduling import rater_kernel
from virtco_lab.sim import demands as demand_model

#: virtco's policies, and queues by attained service, without sizes (Aalo), for
#: comparison only.
POLICIES = {**policies.POLICIES, 'dark': policies.Policy(
    policies.BY_QUEUE, False, policies.SHARE_IN_ORDER)}
BACKFILLS = {'none': policies.BACKFILL_NONE,
             'greedy': policies.BACKFILL_GREEDY,
             'max-min': policies.BACKFILL_MAX_MIN,
             'in-order': policies.BACKFILL_IN_ORDER}
#: Events between two calls of a progress callback.
CHUNK_EVENTS = 20000
#: Actor in a simulation. It yields the time at which it goes on, and a coflow
#: at whose end it goes on earlier, or None.
Process = Iterator[tuple[float, int | None]]


@dataclasses.dataclass(frozen=True, slots=True)
class Config:
    """How coflows are scheduled.

    :ivar policy: a policy, or the name of one of :data:`POLICIES`. One of
        one's own is asked when a coflow starts or ends.
    :ivar backfill: use of the bandwidth that MADD leaves: ``greedy`` hands it
        to the flows in order, ``max-min`` shares it between all of them,
        ``in-order`` hands it to the coflows in order, whose flows share it in
        proportion to the bytes that they have left, as the controller does.
    :ivar each_flow: rate anew whenever a flow ends; else, as Varys does, only
        when a coflow starts or ends.
    :ivar theta_s: a coflow without progress for this long goes first until
        it was served for a tenth of that; less is not progress.
    """

    policy: str | policies.Policy = 'mrtf'
    backfill: str = 'greedy'
    each_flow: bool = True
    theta_s: float = math.inf

    def chosen(self) -> policies.Policy:
        """Return the policy."""
        return (POLICIES[self.policy] if isinstance(self.policy, str)
                else self.policy)

    def rules(self) -> engine.Rules:
        """Convert the configuration to the engine's numbers.

        :raises virtco.exception.Invalid: for an unknown name of a back-fill.
        """
        policy = self.chosen()
        if self.backfill not in BACKFILLS:
            raise exception.Invalid(field='backfill', value=self.backfill,
                                    limit='one of ' + ', '.join(BACKFILLS))
        rules = engine.Rules(
            key=policy.key, sharing=policy.sharing,
            backfill=BACKFILLS[self.backfill], each_flow=self.each_flow,
            swaps=policy.swaps, trickle=policy.trickle, theta_s=self.theta_s,
            quantum_s=self.theta_s / 10 if self.theta_s < math.inf else 0.0)
        if policy.sharing == policies.SHARE_GREEDY:
            # Back-fill is all, and some flows wait for others to end.
            return rules._replace(each_flow=True, backfill=rules.backfill
                                  or policies.BACKFILL_GREEDY)
        return rules


class Simulation:
    """A fabric on which coflows are added, started and run.

    Deterministic: the same calls give the same times.
    """

    def __init__(self, cap_bps: np.ndarray, config: Config,
                 demands: Iterable[fabric_model.Demand] = (),
                 above: uplinks.Uplinks = uplinks.NONE):
        """Lay out a fabric.

        :param cap_bps: egress of each host, then ingress, shape (2H,).
        :param demands: coflows known from the start; none is active yet.
        :param above: the uplinks above the hosts.
        """
        self.rules = config.rules()
        self.policy = config.chosen()
        self.now_s = 0.0
        self.events = 0
        self._take(demand_model.fabric_of(cap_bps, demands, above))
        self.live = np.zeros(max(1, len(self.fabric.scale)), np.int64)
        self.n_live = 0

    def _take(self, fabric: fabric_model.Fabric) -> None:
        self.fabric = fabric
        self.rater = rater_kernel.Rater(fabric)
        bound = np.zeros(len(fabric.scale))
        order_kernel.bottlenecks(self.rater, bound)
        self.state = engine.begin(fabric, bound)
        self.run_of = run_kernels.Run(self.rater, self.state, self.rules)
        self.whole_bits = self._left_bits()

    def _left_bits(self) -> np.ndarray:
        """Add up the bits that each coflow has left, shape (C,)."""
        fabric = self.fabric
        left_bits: np.ndarray = np.bincount(
            fabric.owner, fabric.base, len(fabric.scale)) * fabric.scale
        return left_bits

    def add(self, demands: Sequence[fabric_model.Demand]) -> range:
        """Add coflows that are not active yet; returns their indices."""
        first = len(self.state.left)
        old, whole_bits = self.state, self.whole_bits
        self._take(demand_model.append(self.fabric, demands))
        for fresh_column, old_column in zip(self.state, old):
            fresh_column[:first] = old_column
        self.whole_bits[:first] = whole_bits
        self.live = np.append(self.live, np.zeros(len(demands), np.int64))
        return range(first, first + len(demands))

    def start(self, index: int, *, priority_class: int = 0,
              weight: float = 1.0) -> None:
        """Make a coflow active now; one without flows ends at once."""
        state = self.state
        state.arrival_s[index] = state.served_s[index] = self.now_s
        state.whole_s[index] = state.bound[index]
        state.weight[index] = weight
        state.level[index] = 2 * priority_class if self.policy.classes else 0
        if state.left[index] == 0:
            state.end_s[index] = self.now_s
            return
        self.live[self.n_live] = index
        self.n_live += 1

    def run(self, until_s: float = math.inf, stop_at_end: bool = False,
            progress: Callable[[float, int], None] | None = None) -> None:
        """Let time pass until ``until_s`` or, without it, until all ended.

        :param stop_at_end: return as soon as a coflow has ended.
        :param progress: called now and then with the time reached and the
            number of events so far.
        :raises virtco.exception.Invalid: when a coflow can never end.
        """
        while self.n_live and self.now_s < until_s:
            before = self.n_live
            if self.policy.own is not None:
                self._ask(self.policy.own)
            self.now_s, self.n_live, events = event_kernels.advance(
                self.rater, self.run_of, self.live, self.n_live,
                self.now_s, until_s, CHUNK_EVENTS,
                stop_at_end or self.policy.own is not None)
            self.events += events
            if progress is not None:
                progress(self.now_s, self.events)
            if stop_at_end and self.n_live < before:
                return
            if self.n_live == before and events < CHUNK_EVENTS and (
                    self.now_s < until_s):
                raise exception.Invalid(
                    field='fabric', value=f'0 for {self.n_live} coflows',
                    limit='a rate above 0 on every port in use')
        if until_s < math.inf:
            self.now_s = max(self.now_s, until_s)

    def _ask(self, own: own_policy.Policy) -> None:
        """Have a policy of one's own order the live coflows."""
        fabric, state = self.fabric, self.state
        coflows = own_policy.unfinished(
            fabric, self.live[:self.n_live].tolist(), state.arrival_s,
            state.weight,
            (self.whole_bits - self._left_bits()) / units.BITS_PER_BYTE)
        n_coflows = len(fabric.scale)
        state.whole_s[:] = own_policy.places(own, coflows, n_coflows)
        np.asarray(self.rater.floor)[:] = own_policy.floors(
            own, coflows, n_coflows) * fabric.scale

    def drive(self, processes: Sequence[Process],
              until_s: float = math.inf) -> None:
        """Let processes act in time until they and all coflows have ended.

        Those that go on at the same time do so in their order.
        """
        waits: dict[int, tuple[float, int | None]] = dict.fromkeys(
            range(len(processes)), (self.now_s, None))
        while self.now_s < until_s and (waits or self.n_live):
            while due := [i for i, (time_s, index) in waits.items()
                          if time_s <= self.now_s
                          or index is not None and self.ended(index)]:
                for i in due:
                    wait = next(processes[i], None)
                    if wait is None:
                        del waits[i]
                    else:
                        waits[i] = wait
            self.run(min([until_s, *(time_s for time_s, _ in waits.values())]),
                     any(index is not None for _, index in waits.values()))

    def ended(self, index: int) -> bool:
        return not math.isnan(self.state.end_s[index])

    def completion_s(self) -> np.ndarray:
        """Return the CCT of each coflow, NaN while it runs, shape (C,)."""
        cct_s: np.ndarray = self.state.end_s - self.state.arrival_s
        return cct_s

    def remaining_flows(self, index: int
                        ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return source host, destination host and bytes left of live flows.
        """
        fabric = self.fabric
        flows = slice(fabric.flow_ptr[index], fabric.flow_ptr[index + 1])
        left = fabric.base[flows] * fabric.scale[index] / units.BITS_PER_BYTE
        alive = left > 0
        src, dst = (fabric.port[entries[flows]][alive]
                    for entries in (fabric.src, fabric.dst))
        return src, dst - fabric.n_hosts, left[alive]


def alone_s(fabric: fabric_model.Fabric) -> np.ndarray:
    """Compute each coflow's time alone, a lower bound of its CCT, in s."""
    out = np.zeros(len(fabric.scale))
    order_kernel.bottlenecks(rater_kernel.Rater(fabric), out)
    return out
