# SPDX-License-Identifier: Apache-2.0

"""Peace with whoever else may look after the uplink's qdisc."""

from typing import Protocol


class Guard(Protocol):
    """Asked before every change to the kernel."""

    def ensure(self) -> None:
        """Agree with the other one.

        :raises virtco.exception.QdiscConflict: when it shapes the uplink.
        """

    def was_lost(self) -> bool:
        """Whether it is not as :meth:`ensure` last saw it; cheap."""

    def remove(self) -> bool:
        """Undo what :meth:`ensure` did; False when there was nothing."""


class NoGuard:
    """A plain bridge or NIC: there is nobody else."""

    def ensure(self) -> None:
        """Nothing to agree on."""

    def was_lost(self) -> bool:
        return False

    def remove(self) -> bool:
        return False
