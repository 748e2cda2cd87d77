# SPDX-License-Identifier: Apache-2.0

"""What would be planned: a question without consequences."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import time
from typing import Any

import msgspec
from oslo_config import cfg

from virtco import exception
from virtco import hint_matrix
from virtco import hints
from virtco.ask import membership
from virtco.ask import problem as problem_builder
from virtco.ask import promises
from virtco.ask import wishes
from virtco.db import codec
from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco.model import snapshot
from virtco.solver import delays
from virtco.solver import planner

#: Running coflows that an answer names, of either kind.
MOST_DELAYS = 100


def build(conf: cfg.ConfigOpts, request: Mapping[str, Any],
          capacities: problem_builder.Rates, tree: cluster.Tree,
          loads: tuple[snapshot.ActiveCoflow, ...]
          ) -> tuple[snapshot.PlacementProblem, list[tuple[str, int]]]:
    """The problem of all groups together, and (group, row) of each VM."""
    limits = membership.limits_of(conf)
    vms: list[cluster.Vm] = []
    labels: list[tuple[str, int]] = []
    flows: list[tuple[coflow_model.Coflow, int]] = []
    for group in request['groups']:
        coflows = (hint_matrix.parse_matrix_text(
            group['tm'], group['name'], limits)
            if isinstance(group['tm'], str)
            else hint_matrix.parse_matrix(group['tm'], group['name'],
                                          limits))
        demand = problem_builder.demand_of(group['flavor'])
        flows += [(coflow, len(vms)) for coflow in coflows]
        for row in range(coflows[0].n_vms):
            vms.append(cluster.Vm(f'{group["name"]}-{row}', demand))
            labels.append((group['name'], row))
    if len(vms) > limits.max_vms:
        raise exception.Invalid(field='groups', value=f'{len(vms)} VMs',
                                limit=f'at most {limits.max_vms} VMs')
    return snapshot.PlacementProblem(
        hosts=tuple(_host(entry, capacities) for entry in request['hosts']),
        vms=tuple(vms),
        coflows=tuple(_shifted(coflow, by, len(vms), i)
                      for i, (coflow, by) in enumerate(flows)),
        tree=tree, active=loads if request.get('respect_active', True) else (),
        resources=problem_builder.RESOURCES), labels


def _host(entry: Mapping[str, Any],
          capacities: problem_builder.Rates) -> cluster.Host:
    egress_bps, ingress_bps = capacities[entry['host']]
    return cluster.Host(
        entry['host'], problem_builder.demand_of(entry['free']),
        entry.get('egress_bps', egress_bps),
        entry.get('ingress_bps', ingress_bps))


def _shifted(coflow: coflow_model.Coflow, by: int, n_vms: int,
             number: int) -> coflow_model.Coflow:
    return dataclasses.replace(
        coflow.renumbered(n_vms, range(by, by + coflow.n_vms)),
        name=f'{number}:{coflow.name}')


def answer(conf: cfg.ConfigOpts, request: Mapping[str, Any],
           settings: Mapping[str, str],
           capacities: problem_builder.Rates, tree: cluster.Tree,
           loads: tuple[snapshot.ActiveCoflow, ...],
           judge: Callable[..., promises.Judged] | None = None
           ) -> dict[str, Any]:
    """Answer ``POST /v1/plans``.

    :param judge: :meth:`virtco.ask.promises.Promises.judge`.
    :raises virtco.exception.HintInvalid:
    :raises virtco.exception.PlacementInfeasible:
    """
    problem, labels = build(conf, request, capacities, tree, loads)
    started = time.monotonic()
    budget_s = request.get('budget_s', conf.placement.budget_s)

    def solve(some: snapshot.PlacementProblem, part: float) -> snapshot.Plan:
        return planner.plan(
            some, objective=snapshot.Objective(
                request.get('objective', settings['objective'])),
            planner=request.get('planner', settings['planner']),
            seed=request.get('seed', 0), budget_s=budget_s * part,
            certify=True)

    met = wishes.plan(problem, hints.Wishes(*(
        hints.wish(name, request[name]) if name in request else None
        for name in ('within', 'spread'))), solve)
    plan = met.plan
    promise = None
    if 'deadline' in request and judge is not None:
        promise = msgspec.to_builtins(judge(
            hints.deadline(request['deadline']), problem, plan,
            len(problem.vms), True).promise)
    finite = codec.finite
    return {
        'vms': [{'group': group, 'row': row, 'host': host}
                for (group, row), host in zip(labels, plan.hosts)],
        'cct_s': finite(plan.cct_s),
        'coflows': [{'name': coflow.name.partition(':')[2],
                     'cct_s': finite(cct_s)} for coflow, cct_s in
                    zip(problem.coflows, plan.coflow_cct_s)],
        'objective': plan.objective, 'objective_s': finite(plan.objective_s),
        'lower_bound_s': finite(plan.lower_bound_s), 'gap': finite(plan.gap),
        'method': plan.method, 'bottleneck': plan.bottleneck,
        'notes': [*met.notes, *plan.notes],
        'delays': [{'coflow_id': late.coflow_id,
                    'before_s': finite(late.before_s),
                    'after_s': finite(late.after_s)}
                   for late in delays.delays(problem, plan)[:MOST_DELAYS]],
        'deadline': promise, 'n_hosts': len(problem.hosts),
        'seconds': time.monotonic() - started}
