# SPDX-License-Identifier: Apache-2.0

"""Debts of projects that sent more than they claimed. Pure.

The rules are :mod:`virtco.scheduling.policing`'s, the payer is the project: a
coflow that begins after a lying one pays on.
"""

from collections.abc import Mapping
import dataclasses
import math

from virtco.scheduling import policing

#: Part of a claim by which estimates may be exceeded and nothing is owed.
TOLERANCE = 0.5
_NO_DEBT = policing.Account()


class Debts:
    """Accounts of the projects that owe bytes or overrun; the caller locks.

    :ivar tolerance: a coflow is honest up to its claim times 1 + this.
    :ivar most_bytes: largest debt of a project.
    """

    def __init__(self, most_bytes: float = math.inf):
        self.tolerance = TOLERANCE
        self.most_bytes = most_bytes
        self._accounts: dict[str, policing.Account] = {}
        self._unsaved: set[str] = set()

    def load(self, debts: Mapping[str, float]) -> None:
        """Take over the debts in bytes that the database holds."""
        self._accounts = {project_id: policing.Account(debt_bytes)
                          for project_id, debt_bytes in debts.items()
                          if debt_bytes}

    def charge(self, project_id: str, report: policing.Report) -> None:
        """Book reported bytes: an overrun is owed, claimed bytes pay it off.
        """
        self._set(project_id, policing.charge(
            self._account(project_id), [report], self.tolerance))

    def end(self, project_id: str, coflow_id: str) -> None:
        """Forget a coflow or iteration that is over; its debt stays."""
        self._set(project_id, policing.forget(self._account(project_id),
                                              coflow_id))

    def forgive(self, project_id: str) -> None:
        """Set the debt of a project to 0; an overrun is not charged twice."""
        self._set(project_id, dataclasses.replace(self._account(project_id),
                                                  debt_bytes=0.0))

    def owed_bytes(self, project_id: str) -> float:
        """Return the bytes that a project owes, 0 without a debt."""
        return self._account(project_id).debt_bytes

    def all(self) -> dict[str, float]:
        """Return the debt in bytes of each project that has one."""
        return {project_id: account.debt_bytes
                for project_id, account in self._accounts.items()
                if account.in_debt}

    def take_unsaved(self) -> dict[str, float]:
        """Return the debts that changed since the last call."""
        unsaved, self._unsaved = self._unsaved, set()
        return {project_id: self.owed_bytes(project_id)
                for project_id in unsaved}

    def not_saved(self, debts: Mapping[str, float]) -> None:
        """Put debts back that the database did not take."""
        self._unsaved |= debts.keys()

    def _account(self, project_id: str) -> policing.Account:
        return self._accounts.get(project_id, _NO_DEBT)

    def _set(self, project_id: str, account: policing.Account) -> None:
        """Store a project's account, bounded, if it owes anything."""
        account = dataclasses.replace(account, debt_bytes=min(
            self.most_bytes, account.debt_bytes))
        if account.debt_bytes != self.owed_bytes(project_id):
            self._unsaved.add(project_id)
        self._accounts[project_id] = account
        if account == _NO_DEBT:
            del self._accounts[project_id]
