# SPDX-License-Identifier: Apache-2.0

"""Reasons in one line that name no hypervisor, for tenants. Pure."""

from virtco import units

#: Kinds of the events about servers without a plan.
IGNORED, NEUTRAL = 'hint_ignored', 'neutral'

#: Reason for a VM that was placed without a plan. The operator's reason may
#: name a database or its host.
NO_PLAN = 'placed without a plan; the operator sees the reason'


def of_coflow(cct_s: float | None, measured_cct_s: float | None, end: str
              ) -> str:
    """Tell a coflow's planned and measured time, and why it ended.

    :param end: reason of the end; empty: it did not end.
    """
    times = (f'{name} CCT {units.format_time(time_s)}' for name, time_s in (
        ('planned', cct_s), ('measured', measured_cct_s))
        if time_s is not None)
    return '; '.join([*times, *([end] if end else [])]) or 'no planned CCT'


def of_unplanned(kind: str, detail: str) -> str:
    """Tell why a server was launched without a plan.

    :param kind: kind of the event, :data:`IGNORED` or :data:`NEUTRAL`.
    :param detail: detail of the event.
    """
    return (f'hint ignored: {detail}' if kind == IGNORED
            else f'neutral: {NO_PLAN}')
