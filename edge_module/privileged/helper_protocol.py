# SPDX-License-Identifier: Apache-2.0

"""Interface of the edge module to the kernel."""

from collections.abc import Sequence
from typing import Protocol

from edge_module.privileged import operations


class Kernel(Protocol):
    """Calls offered by ``kernel_calls`` (in process) and ``guarded``."""

    def tc_change(self, changes: Sequence[operations.TcOperation]
                  ) -> list[int]:
        """Make changes of queues; return the errno of each that failed."""

    def tc_dump(self, message: tuple[int, int, bytes]) -> list[bytes]:
        """Send a dump request; return the bodies of the answers."""

    def nft_change(self, hook: operations.HookName,
                   changes: Sequence[operations.ClassifyOperation]
                   ) -> str | None:
        """Make changes as one transaction; return nft's errors or None."""

    def nft_read(self, listings: Sequence[operations.Listing]
                 ) -> list[str | None]:
        """Read parts of virtco's table as JSON; None where there is none."""

    def bpf_missing(self) -> str | None:
        """Return why BPF cannot classify here; None where it can."""

    def bpf_change(self, hook: operations.HookName,
                   changes: Sequence[operations.ClassifyOperation]
                   ) -> str | None:
        """Make changes in order; return why one was refused, or None."""

    def bpf_read(self, listings: Sequence[operations.MapListing]
                 ) -> list[bytes | None]:
        """Read maps; None for one that is not there."""

    def alive(self) -> bool:
        """Return whether calls can still be made."""

    def cpu_s(self) -> float:
        """Return CPU seconds that the calls took in another process."""
