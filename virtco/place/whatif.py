# SPDX-License-Identifier: Apache-2.0

"""Questions without consequences: hypothetical plans, reasons of plans."""

from collections.abc import Callable
from collections.abc import Mapping
import time
import zlib

import msgspec
from oslo_config import cfg

from virtco import exception
from virtco import hint_matrix
from virtco import hints
from virtco.model import booking
from virtco.model import cluster
from virtco.model import snapshot
from virtco.objects import new_groups
from virtco.place import answer as answers
from virtco.place import deadline_promises
from virtco.place import decisions
from virtco.place import problem as problem_builder
from virtco.place import question as requests
from virtco.place import wishes
from virtco.solver import budget as budgets
from virtco.solver import counterfactuals
from virtco.solver import delays
from virtco.solver import planner
from virtco.solver import together
from virtco.wire import placement as placements
from virtco.wire import plan as wire

#: Delayed coflows that an answer names, at most.
MOST_DELAYS = 100
#: Seconds for all questions of an explanation, unless the caller says.
EXPLAIN_S = 1.0


def build(conf: cfg.ConfigOpts, request: wire.PlanRequest,
          capacities: problem_builder.Rates, tree: cluster.Tree,
          loads: tuple[snapshot.ActiveCoflow, ...]
          ) -> tuple[snapshot.PlacementProblem, list[tuple[str, int]]]:
    """Build one problem of all groups, and (group, row) of each VM."""
    limits = new_groups.limits_of(conf)
    hosts = tuple(_host(entry, capacities) for entry in request.hosts or ())
    problems: list[snapshot.PlacementProblem] = []
    labels: list[tuple[str, int]] = []
    for group in request.groups:
        coflows = hint_matrix.parse_matrix(group.tm, group.name, limits)
        rows = range(coflows[0].n_vms)
        demand = requests.vector(group.flavor)
        problems.append(snapshot.PlacementProblem(
            hosts, tuple([cluster.Vm(f'{group.name}-{row}', demand)
                          for row in rows]), coflows, tree,
            loads if request.respect_active else (),
            resources=booking.RESOURCES))
        labels += [(group.name, row) for row in rows]
        if len(labels) > limits.max_vms:  # before more are read
            raise exception.Invalid(
                field='groups', value=f'{len(labels)} VMs',
                limit=f'at most {limits.max_vms} VMs')
    return together.join(problems), labels


def _host(entry: wire.GivenHost,
          capacities: problem_builder.Rates) -> cluster.Host:
    egress_bps, ingress_bps = capacities[entry.host]
    return cluster.Host(
        entry.host, requests.vector(entry.free),
        egress_bps if entry.egress_bps is None else entry.egress_bps,
        ingress_bps if entry.ingress_bps is None else entry.ingress_bps)


def answer(conf: cfg.ConfigOpts, request: wire.PlanRequest,
           settings: Mapping[str, str],
           capacities: problem_builder.Rates, tree: cluster.Tree,
           loads: tuple[snapshot.ActiveCoflow, ...],
           judge: Callable[..., deadline_promises.Judged] | None = None
           ) -> wire.Plan:
    """Answer ``POST /v1/plans``.

    :param judge: :meth:`virtco.place.deadline_promises.Promises.judge`.
    :raises virtco.exception.HintInvalid:
    :raises virtco.exception.PlacementInfeasible:
    """
    problem, labels = build(conf, request, capacities, tree, loads)
    started = time.monotonic()
    budget_s = request.budget_s or conf.placement.budget_s

    def solve(some: snapshot.PlacementProblem) -> snapshot.Plan:
        return planner.plan(
            some, objective=snapshot.Objective(
                request.objective or settings['objective']),
            planner=request.planner or settings['planner'],
            seed=request.seed, budget_s=budget_s, certify=True)

    met = wishes.plan(problem, hints.Wishes(*(
        None if text is None else hints.wish(name, text)
        for name, text in (('within', request.within),
                           ('spread', request.spread)))), solve)
    plan = met.plan
    promise = None
    if request.deadline is not None and judge is not None:
        promise = judge(hints.deadline(request.deadline), problem, plan,
                        len(problem.vms), True).promise
    return wire.Plan(
        vms=[wire.Vm(group, row, host)
             for (group, row), host in zip(labels, plan.hosts)],
        coflows=[wire.PlannedCoflow(coflow.name.partition('/')[2], cct_s)
                 for coflow, cct_s in
                 zip(problem.coflows, plan.coflow_cct_s)],
        objective=plan.objective, objective_s=plan.objective_s,
        notes=[*met.notes, *plan.notes],
        delays=msgspec.convert(delays.delays(problem, plan)[:MOST_DELAYS],
                               list[wire.Delay], from_attributes=True),
        deadline=promise, n_hosts=len(problem.hosts),
        seconds=time.monotonic() - started, **answers.figures(plan))


def explain(placement: placements.Kept, decision: decisions.Decision | None,
            budget_s: float) -> placements.Explanation:
    """Answer ``GET /v1/placements/{instance_uuid}/explanation``.

    :param placement: the answer that is explained.
    :param decision: decision by which its group was planned, if that is known.
    """
    found = placements.Explanation(**{
        name: getattr(placement, name) for name in (
            'instance_uuid', 'status', 'why', 'host', 'group', 'group_name',
            'row', 'cct_s', 'bottleneck', 'deadline')})
    row = found.row
    if decision is None or row is None or row not in decision.rows:
        return msgspec.structs.replace(
            found, why_not='its problem was not kept' if found.group
            else 'there is no plan')
    started = time.monotonic()
    explained = counterfactuals.explain(
        decision.problem, decision.plan, decision.rows.index(row),
        budgets.Budget(budgets.clock_of(time.monotonic), budget_s),
        zlib.crc32(decision.group_id.encode()))
    return msgspec.structs.replace(
        found, phases_s=decision.spent_s,
        reasons=msgspec.convert(
            explained.reasons, list[placements.Reason], from_attributes=True),
        is_complete=explained.is_complete,
        seconds=time.monotonic() - started)
