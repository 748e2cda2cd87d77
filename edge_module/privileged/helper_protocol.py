# SPDX-License-Identifier: Apache-2.0

"""What the edge module asks of the kernel; see ``kernel`` for the meaning."""

from typing import Protocol


class Kernel(Protocol):
    """Offered by the modules ``kernel`` (in process) and ``guarded``."""

    def tc_send(self, messages: list[tuple[int, int, bytes]]
                ) -> list[tuple[int, int]]:
        """Send rtnetlink messages; (index, errno) of those that failed."""

    def tc_dump(self, message: tuple[int, int, bytes]) -> list[bytes]:
        """Bodies of the answers to a dump request."""

    def nft_run(self, commands: str) -> tuple[int, str, str]:
        """Run nft commands: exit code, JSON output, errors."""

    def alive(self) -> bool:
        """Whether calls can still be made."""

    def cpu_s(self) -> float:
        """Processor time that the calls took in another process."""
