# SPDX-License-Identifier: Apache-2.0

"""Answers ``GET /v1/placements/{instance_uuid}/explanation``."""

from collections.abc import Mapping
import time
from typing import Any
import zlib

from virtco.ask import decisions
from virtco.db import codec
from virtco.solver import budget as budgets
from virtco.solver import counterfactuals

#: For all questions, unless the caller says otherwise.
BUDGET_S = 1.0


def answer(placement: Mapping[str, Any],
           decision: decisions.Decision | None,
           budget_s: float) -> dict[str, Any]:
    """:param placement: the answer that is explained.
    :param decision: by which its group was planned, if that is known.
    """
    found: dict[str, Any] = {
        'instance_uuid': placement['instance_uuid'],
        'status': placement['status'], 'why': placement['why'],
        'host': placement['host'], 'group': placement.get('group'),
        'group_name': placement.get('group_name'),
        'row': placement.get('row'), 'cct_s': placement.get('cct_s'),
        'bottleneck': placement.get('bottleneck'),
        'deadline': placement.get('deadline'), 'phases_s': {},
        'reasons': [], 'is_complete': False, 'seconds': 0.0,
        'why_not': ''}
    row = found['row']
    if decision is None or row not in decision.rows:
        found['why_not'] = ('its problem was not kept' if found['group']
                            else 'there is no plan')
        return found
    started = time.monotonic()
    explained = counterfactuals.explain(
        decision.problem, decision.plan, decision.rows.index(row),
        budgets.Budget(budgets.clock_of(time.monotonic), budget_s),
        zlib.crc32(decision.group_id.encode()))
    return found | {
        'phases_s': decision.spent_s,
        'reasons': [{
            'kind': reason.kind, 'subject': reason.subject,
            'host': reason.host, 'cct_s': codec.finite(reason.cct_s),
            'instead_of_s': codec.finite(reason.instead_of_s),
            'saved_objective_s': codec.finite(reason.saved_objective_s),
            'limiting': reason.limiting, 'text': reason.text}
            for reason in explained.reasons],
        'is_complete': explained.is_complete,
        'seconds': time.monotonic() - started}
