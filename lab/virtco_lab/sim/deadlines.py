# SPDX-License-Identifier: Apache-2.0

"""Coflows with deadlines on the fluid: virtco's promises, and DCoflow.

DCoflow (Luu et al., IFIP Networking 2022) decides again at each arrival which
coflows it accepts, and may drop accepted ones. Varys (Chowdhury et al.,
SIGCOMM 2014, section 5.3) reserves a constant rate at the arrival or rejects.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from virtco.scheduling import deadlines
from virtco.scheduling import fabric as fabric_model
from virtco_lab.sim import demands as demand_model
from virtco_lab.sim import simulation

#: Relative tolerance of a deadline within which a coflow is on time.
_SLACK = 1e-6


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """Ports of a run, and arrivals and deadlines of its coflows, in seconds.

    :ivar cap_bps: egress of each host, then ingress, shape (2H,).
    :ivar arrivals_s: ascending, shape (C,).
    :ivar deadlines_s: inf for none, shape (C,).
    """

    cap_bps: np.ndarray
    demands: Sequence[fabric_model.Demand]
    arrivals_s: np.ndarray
    deadlines_s: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Arrays of shape (C,).

    :ivar end_s: end of each coflow.
    :ivar at_launch: whether it was accepted when it arrived.
    :ivar later: whether it was accepted after that.
    """

    load: Load
    end_s: np.ndarray
    at_launch: np.ndarray
    later: np.ndarray

    @property
    def is_on_time(self) -> np.ndarray:
        """Whether each coflow ended by its deadline, shape (n_coflows,)."""
        due_s = self.load.deadlines_s
        found: np.ndarray = self.end_s <= due_s + _SLACK * (
            due_s - self.load.arrivals_s)
        return found & (due_s < math.inf)

    def shares(self) -> dict[str, float]:
        """Return shares of the coflows with deadlines, 0 to 1, by name.

        ``kept`` is the share of promised coflows that end on time.
        """
        asked = self.load.deadlines_s < math.inf
        promised = (self.at_launch | self.later)[asked]
        on_time = self.is_on_time[asked]
        return {'on_time': float(on_time.mean()),
                'at_launch': float(self.at_launch[asked].mean()),
                'admitted': float(promised.mean()),
                'kept': float(on_time[promised].mean()
                              if promised.any() else 1.0)}


def with_deadlines(cap_bps: np.ndarray, demands: Sequence[fabric_model.Demand],
                   arrivals_s: np.ndarray, slack: float,
                   rng: np.random.Generator, share: float = 1.0) -> Load:
    """Draw deadlines of (1 + U[0, slack]) times alone (Varys, section 7.4).

    :param share: share of the coflows that have a deadline.
    """
    alone_s = simulation.alone_s(demand_model.fabric_of(cap_bps, demands))
    due_s = arrivals_s + alone_s * (1 + slack * rng.random(len(demands)))
    due_s[rng.random(len(demands)) >= share] = math.inf
    return Load(cap_bps, demands, arrivals_s, due_s)


def port_s(sim: simulation.Simulation, coflows: Sequence[int]) -> np.ndarray:
    """Return the port seconds that coflows have left, (n, n_ports)."""
    return np.array([sim.fabric.busy_s(c) for c in coflows]).reshape(
        -1, len(sim.fabric.cap))


class _Promises:
    """Promises of deadlines in a simulation, and the rates that keep them.
    """

    def __init__(self, sim: simulation.Simulation, load: Load,
                 withholds: bool):
        self._sim, self._load = sim, load
        self._promised: list[int] = []
        self._plan: deadlines.Plan | None = None
        self._withheld = deadlines.Withheld() if withholds else None

    def _claims(self, coflows: Sequence[int]) -> deadlines.Claims:
        return deadlines.Claims(
            tuple(map(str, coflows)), port_s(self._sim, coflows),
            self._load.deadlines_s[list(coflows)] - self._sim.now_s,
            np.zeros(len(coflows)))

    def ask(self, c: int, is_new: bool) -> bool:
        """Promise a coflow's deadline if all promises can be kept; return
        whether it was promised.
        """
        size_s = port_s(self._sim, [c])[0]
        alone_s = float(size_s.max())
        left_s = float(self._load.deadlines_s[c] - self._sim.now_s)
        withheld = self._withheld
        is_held = withheld is not None and withheld.holds(alone_s, left_s)
        fits = not is_held and deadlines.fits(
            self._claims(self._promised), size_s, left_s)
        if is_new and withheld is not None:
            withheld.note(alone_s, is_held or fits)
        if fits:
            self._promised.append(c)
        return fits

    def guarantee(self) -> float:
        """Set the floors of all coflows; return the time of the next change.
        """
        self._promised = [c for c in self._promised
                          if not self._sim.ended(c)]
        self._plan = deadlines.renew(self._claims(self._promised),
                                     self._sim.now_s, self._plan)
        floor = np.asarray(self._sim.rater.floor)
        floor[:] = 0.0
        for coflow_id, pace in self._plan.floors().items():
            # The kernels take the pace of the whole, not of the rest.
            floor[int(coflow_id)] = pace * self._sim.fabric.scale[
                int(coflow_id)]
        return self._plan.next_s


def run(load: Load, *, withholds: bool = True, asks_again: bool = True
        ) -> Outcome:
    """Let coflows arrive, be promised their deadlines or not, and end.

    :param withholds: see :class:`virtco.scheduling.deadlines.Withheld`.
    :param asks_again: judge coflows without a promise at each arrival, end
        and deadline of another.
    """
    sim = simulation.Simulation(load.cap_bps, simulation.Config('mrtf'),
                                load.demands)
    promises = _Promises(sim, load, withholds)
    n_coflows, due_s = len(load.demands), load.deadlines_s
    at_launch, later = (np.zeros(n_coflows, bool) for _ in range(2))
    n_arrived = 0
    while n_arrived < n_coflows or sim.n_live:
        is_waiting = ((sim.now_s < due_s) & (due_s < math.inf)
                      & np.isnan(sim.state.end_s) & ~at_launch & ~later)
        if asks_again:
            for c in np.flatnonzero(is_waiting[:n_arrived]).tolist():
                later[c] = promises.ask(c, False)
        while n_arrived < n_coflows and (
                load.arrivals_s[n_arrived] <= sim.now_s):
            sim.start(n_arrived)
            if due_s[n_arrived] < math.inf:
                at_launch[n_arrived] = promises.ask(n_arrived, True)
            n_arrived += 1
        _put_hopeless_last(sim, load, n_arrived)
        until_s = min(promises.guarantee(),
                      float(load.arrivals_s[n_arrived])
                      if n_arrived < n_coflows else math.inf)
        sim.run(until_s, stop_at_end=True)
    return Outcome(load, sim.state.end_s, at_launch, later)


def _put_hopeless_last(sim: simulation.Simulation, load: Load,
                       n_arrived: int) -> None:
    """Put coflows that are late even alone behind those that are not."""
    alone_s = sim.state.bound * sim.fabric.scale
    is_hopeless = load.deadlines_s - sim.now_s < alone_s * (1 - _SLACK)
    sim.state.level[:n_arrived] = is_hopeless[:n_arrived]


def run_dcoflow(load: Load) -> Outcome:
    """Simulate a load that DCoflow orders again at each arrival.

    Rejected coflows are served last, which DCoflow leaves open; they are
    considered again at the next arrival.
    """
    def judge(sim: simulation.Simulation, new: int) -> bool:
        running = sim.live[:sim.n_live]
        able = [c for c in running.tolist()
                if sim.now_s < load.deadlines_s[c] < math.inf]
        accepted, rejected = dcoflow(
            port_s(sim, able), load.deadlines_s[able] - sim.now_s)
        # After all that can be on time go those without a deadline.
        sim.state.level[running] = len(able)
        sim.state.level[[able[i] for i in rejected]] = len(accepted)
        for rank, i in enumerate(accepted):
            sim.state.level[able[i]] = rank
        return new in (able[i] for i in accepted)

    return _judged(load, 'fifo', judge)


def _judged(load: Load, policy: str,
            judge: Callable[[simulation.Simulation, int], bool]) -> Outcome:
    """Simulate a load whose coflows are accepted when they arrive, or not."""
    sim = simulation.Simulation(load.cap_bps, simulation.Config(policy),
                                load.demands)
    at_launch = np.zeros(len(load.demands), bool)
    for new, arrival_s in enumerate(load.arrivals_s.tolist()):
        sim.run(arrival_s)
        sim.start(new)
        at_launch[new] = judge(sim, new)
    sim.run()
    return Outcome(load, sim.state.end_s, at_launch,
                   np.zeros(len(load.demands), bool))


def dcoflow(size_s: np.ndarray, left_s: np.ndarray
            ) -> tuple[list[int], list[int]]:
    """Order coflows from the last to the first (DCoflow, Algorithm 1).

    On the port with most to serve, the coflow with the latest deadline goes
    last if it is on time there. Otherwise the coflow goes whose removal helps
    most: the one with the least sum of negative p_lj (T_j - sum_i p_li).

    :param size_s: port seconds, shape (n, n_ports).
    :param left_s: time to each deadline, shape (n,).
    :returns: accepted coflows in order, and rejected ones.
    """
    sizes_s = size_s.copy()
    unplaced = set(range(len(left_s)))
    order: list[int] = []
    doubtful: list[int] = []
    while unplaced:
        busy_s = sizes_s.sum(axis=0)
        port = int(busy_s.argmax())
        there = [c for c in sorted(unplaced) if sizes_s[c, port] > 0]
        if not there:
            order += sorted(unplaced)
            break
        last = max(there, key=lambda c: left_s[c])
        if left_s[last] < busy_s[port]:
            last = min(there, key=lambda c: float(np.minimum(
                0.0, sizes_s[c] * (left_s[c] - busy_s)).sum()))
            doubtful.append(last)
        order.append(last)
        unplaced.remove(last)
        sizes_s[last] = 0.0
    order.reverse()
    rejected = []
    for c in reversed(doubtful):
        ahead = size_s[order[:order.index(c) + 1]].sum(axis=0)
        if ahead[size_s[c] > 0].max() > left_s[c]:
            order.remove(c)
            rejected.append(c)
    return order, rejected


def run_varys(load: Load) -> Outcome:
    """Reserve bytes over time to the deadline at the arrival, or reject.

    What is not reserved goes to all coflows by their remaining time.
    """
    def judge(sim: simulation.Simulation, new: int) -> bool:
        if load.deadlines_s[new] == math.inf or sim.ended(new):
            return False
        floor = np.asarray(sim.rater.floor)
        held = [c for c in np.flatnonzero(floor).tolist()
                if not sim.ended(c)]
        taken = (port_s(sim, held) * (
            floor[held] / sim.fabric.scale[held])[:, None]).sum(axis=0)
        pace = 1.0 / (load.deadlines_s[new] - sim.now_s)
        size_s = port_s(sim, [new])[0]
        fits = (taken + size_s * pace <= 1 + _SLACK)[size_s > 0].all()
        if fits:
            floor[new] = pace
        return bool(fits)

    return _judged(load, 'mrtf', judge)
