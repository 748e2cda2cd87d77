# SPDX-License-Identifier: Apache-2.0

"""What the edge module asks of the kernel; see ``kernel`` for the meaning."""

from collections.abc import Sequence
from typing import Protocol

from edge_module.privileged import operations


class Kernel(Protocol):
    """Offered by the modules ``kernel`` (in process) and ``guarded``."""

    def tc_change(self, changes: Sequence[operations.TcOperation]
                  ) -> list[tuple[int, int]]:
        """Make changes of queues; (index, errno) of those that failed."""

    def tc_dump(self, message: tuple[int, int, bytes]) -> list[bytes]:
        """Bodies of the answers to a dump request."""

    def nft_change(self, hook: operations.HookName,
                   changes: Sequence[operations.NftOperation]) -> str | None:
        """Make changes as one transaction; errors of nft, or None."""

    def nft_read(self, listings: Sequence[operations.Listing]
                 ) -> list[str | None]:
        """Read parts of virtco's table as JSON; None where there is none."""

    def alive(self) -> bool:
        """Whether calls can still be made."""

    def cpu_s(self) -> float:
        """Processor time that the calls took in another process."""
