# SPDX-License-Identifier: Apache-2.0

"""Moves of running VMs that are worth their migration. Pure.

Choreo (section 2.4) places anew every T minutes and migrates where that pays.
A migration copies the memory of a VM that goes on writing it, so it takes
memory / (rate - dirty rate). It is worth what all coflows together save.
"""

from collections.abc import Callable
from collections.abc import Collection
import dataclasses
import math

from virtco import units
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import planner


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """Move of a running VM to another host.

    :ivar saved_s: time by which all coflows together would end earlier.
    :ivar cost_s: time that the migration takes.
    :ivar cct_s: CCT of the group now, and after the move.
    """

    vm_index: int
    source: str
    target: str
    saved_s: float
    cost_s: float
    cct_s: tuple[float, float]


def migration_s(memory_bytes: float, rate_bps: float,
                dirty_bps: float) -> float:
    """Compute the time to copy a VM's memory while it is written; inf: never.
    """
    if rate_bps <= dirty_bps:
        return math.inf
    return units.BITS_PER_BYTE * memory_bytes / (rate_bps - dirty_bps)


def best_move(problem: snapshot.PlacementProblem, hosts: tuple[str, ...],
              cost_s: Callable[[int, str, str], float],
              budget: budgets.Budget, n_times: float = 1.0,
              leaving: Collection[str] = ()) -> Move | None:
    """Find the move of one VM that saves most beyond its cost.

    It keeps the wishes and server groups of the problem, with all other VMs
    where they are. A VM that shares its host with others by an affinity group
    stays.

    :param problem: problem with VMs that may move; the room that they take is
        free where they are. Its coflows are what is left of them.
    :param hosts: host of each VM.
    :param cost_s: time to migrate a VM from a host to another one.
    :param n_times: how often the coflows will be sent.
    :param leaving: hosts that VMs leave at any cost.
    :returns: None where no move is worth it, or there was no time.
    :raises virtco.exception.Invalid: when the problem makes no sense.
    """
    now = planner.evaluate(problem, _plan(hosts), budget.slice(0.1))
    best: Move | None = None
    tied = {vm for group in problem.server_groups
            if group.policy == snapshot.GroupPolicy.AFFINITY
            and (len(group.members) > 1 or group.taken_hosts)
            for vm in group.members}
    for vm_index, source in enumerate(hosts):
        if not budget.in_time():
            break
        if vm_index in tied:
            continue
        ranked = [one for one in planner.rank_hosts(
            problem, now, vm_index, budget_s=budget.left_s(),
            clock=budget.clock)
            if one.feasible and one.host != source
            and one.host not in leaving]
        if not ranked:
            continue
        found = max((Move(
            vm_index, source, target.host,
            n_times * (now.objective_s - target.objective_s),
            cost_s(vm_index, source, target.host),
            (now.cct_s, target.cct_s)) for target in ranked),
            key=lambda move: _value(move, leaving))
        must = source in leaving and math.isfinite(found.cost_s)
        if (must or found.saved_s > found.cost_s) and (
                best is None or _value(found, leaving) > _value(
                    best, leaving)):
            best = found
    return best


def _value(move: Move, leaving: Collection[str]) -> tuple[bool, float]:
    return move.source in leaving, move.saved_s - move.cost_s


def _plan(hosts: tuple[str, ...]) -> snapshot.Plan:
    """Make a plan of the running VMs, without figures."""
    return snapshot.Plan(
        hosts=hosts, cct_s=0.0, coflow_cct_s=(),
        objective=snapshot.Objective.ONLINE, objective_s=0.0,
        lower_bound_s=0.0, gap=0.0, method=snapshot.Method.OTHER)
