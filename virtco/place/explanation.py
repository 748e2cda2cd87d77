# SPDX-License-Identifier: Apache-2.0

"""Answers ``GET /v1/placements/{instance_uuid}/explanation``."""

import time
import zlib

import msgspec

from virtco.db import codec
from virtco.place import decisions
from virtco.solver import budget as budgets
from virtco.solver import counterfactuals
from virtco.wire import placement as wire

#: For all questions, unless the caller says otherwise.
BUDGET_S = 1.0


def answer(placement: wire.Kept, decision: decisions.Decision | None,
           budget_s: float) -> wire.Explanation:
    """:param placement: the answer that is explained.
    :param decision: by which its group was planned, if that is known.
    """
    found = wire.Explanation(**{name: getattr(placement, name) for name in (
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
        reasons=[wire.Reason(
            kind=reason.kind, subject=reason.subject, host=reason.host,
            cct_s=codec.finite(reason.cct_s),
            instead_of_s=codec.finite(reason.instead_of_s),
            saved_objective_s=codec.finite(reason.saved_objective_s),
            limiting=reason.limiting, text=reason.text)
            for reason in explained.reasons],
        is_complete=explained.is_complete,
        seconds=time.monotonic() - started)
