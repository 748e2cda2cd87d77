# SPDX-License-Identifier: Apache-2.0

"""Tenants are not trusted: the hints of who sends more are not believed.

A small claim buys an early turn. Up to the claim times 1 + beta a coflow is
honest (beta covers what estimates get wrong). Each byte of the overrun from
there on is owed: while the payer (a project or a coflow, as the caller keys
it) owes, its coflows are ordered as if they had no hints
(:mod:`virtco.scheduling.ordering`), until it has sent as many bytes that were
honestly claimed. Raising the claim stops the debt from growing; it does not
forgive what is owed.
"""

import dataclasses
import math


def allowance_bytes(claimed_bytes: float, beta: float) -> float:
    """Return the bytes that count as honest; inf without a claim."""
    if claimed_bytes <= 0:
        return math.inf
    return claimed_bytes * (1.0 + beta)


def overrun_bytes(claimed_bytes: float, sent_bytes: float, beta: float
                  ) -> float:
    """Return the bytes sent beyond the allowance."""
    return max(0.0, sent_bytes - allowance_bytes(claimed_bytes, beta))


@dataclasses.dataclass(frozen=True, slots=True)
class Account:
    """Debt of a payer, and the ``overruns`` charged per coflow."""

    debt_bytes: float = 0.0
    overruns: tuple[tuple[str, float], ...] = ()

    @property
    def in_debt(self) -> bool:
        """Whether the payer owes bytes, so that its hints do not count."""
        return self.debt_bytes > 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """Bytes of one coflow since the last report.

    :ivar sent_bytes: in all, ``new_bytes`` included.
    """

    coflow_id: str
    claimed_bytes: float
    sent_bytes: float
    new_bytes: float


def charge(account: Account, reports: list[Report], beta: float) -> Account:
    """Book the payer's reports of one period.

    Overruns that are new raise the debt; honestly claimed bytes pay it off
    when the payer was already in debt in that period.
    """
    overruns: dict[str, float] = dict(account.overruns)
    owed, paid = 0.0, 0.0
    for report in reports:
        overrun = overrun_bytes(report.claimed_bytes, report.sent_bytes, beta)
        fresh = max(0.0, overrun - overruns.get(report.coflow_id, 0.0))
        if overrun > 0:
            overruns[report.coflow_id] = max(
                overrun, overruns.get(report.coflow_id, 0.0))
        owed += fresh
        if account.in_debt:
            paid += max(0.0, report.new_bytes - fresh)
    return Account(max(0.0, account.debt_bytes - paid) + owed,
                   tuple(sorted(overruns.items())))


def forget(account: Account, coflow_id: str) -> Account:
    """Drop a finished coflow's record; its debt stays."""
    return Account(account.debt_bytes, tuple(
        row for row in account.overruns if row[0] != coflow_id))
