# SPDX-License-Identifier: Apache-2.0

"""Debts of projects that sent more than they claimed. Pure.

Tenants are not trusted: the hints of a project that sends more are not
believed. A small claim buys an early turn. Up to the claim and a part of it,
which covers errors of estimates, a coflow is honest. Each byte of the overrun
from there on is owed. While the project owes, its coflows are ordered as if
they had no hints (:mod:`virtco.scheduling.ordering`), also those that begin
later, until it has sent as many bytes that were honestly claimed. Raising the
claim stops the debt from growing; it does not forgive what is owed.
"""

from collections.abc import Mapping
import math

from virtco.state import byte_counters

#: Part of a claim by which estimates may be exceeded and nothing is owed.
TOLERANCE = 0.5


class Debts:
    """Bytes that projects owe; the caller locks.

    :param most_bytes: largest debt of a project.
    :ivar tolerance: a coflow is honest up to its claim times 1 + this.
    """

    def __init__(self, most_bytes: float = math.inf):
        self.tolerance = TOLERANCE
        self.most_bytes = most_bytes
        self._debt_bytes: dict[str, float] = {}
        self._unsaved: set[str] = set()

    def load(self, debts: Mapping[str, float]) -> None:
        """Take over the debts in bytes that the database holds."""
        self._debt_bytes = {project_id: debt_bytes for project_id, debt_bytes
                            in debts.items() if debt_bytes}

    def charge(self, project_id: str, claimed_bytes: float,
               progress: byte_counters.CoflowProgress, new_bytes: float
               ) -> None:
        """Book reported bytes: an overrun is owed, and claimed bytes pay off
        earlier debts.

        :param claimed_bytes: 0 where all bytes are honest.
        :param progress: the coflow's, ``new_bytes`` included.
        """
        honest_bytes = (claimed_bytes * (1 + self.tolerance)
                        if claimed_bytes > 0 else math.inf)
        sent_bytes = progress.all_bytes
        fresh_bytes = max(0.0, sent_bytes - max(honest_bytes,
                                                progress.charged_bytes))
        if fresh_bytes:
            progress.charged_bytes = sent_bytes
        owed_bytes = self.owed_bytes(project_id)
        self._set(project_id, fresh_bytes + max(
            0.0, owed_bytes - max(0.0, new_bytes - fresh_bytes)))

    def forgive(self, project_id: str) -> None:
        """Set the debt of a project to 0; an overrun is not charged twice."""
        self._set(project_id, 0.0)

    def owed_bytes(self, project_id: str) -> float:
        """Return the bytes that a project owes, 0 without a debt."""
        return self._debt_bytes.get(project_id, 0.0)

    def all(self) -> dict[str, float]:
        """Return the debt in bytes of each project that has one."""
        return dict(self._debt_bytes)

    def take_unsaved(self) -> dict[str, float]:
        """Return the debts that changed since the last call."""
        unsaved, self._unsaved = self._unsaved, set()
        return {project_id: self.owed_bytes(project_id)
                for project_id in unsaved}

    def not_saved(self, debts: Mapping[str, float]) -> None:
        """Put debts back that the database did not take."""
        self._unsaved |= debts.keys()

    def _set(self, project_id: str, debt_bytes: float) -> None:
        """Set a project's debt, bounded."""
        before_bytes = self._debt_bytes.pop(project_id, 0.0)
        if debt_bytes := min(self.most_bytes, debt_bytes):
            self._debt_bytes[project_id] = debt_bytes
        if debt_bytes != before_bytes:
            self._unsaved.add(project_id)
