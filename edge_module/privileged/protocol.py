# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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

    def ofctl_run(self, arguments: list[str], text: str
                  ) -> tuple[int, str, str]:
        """Run ovs-ofctl: exit code, output, errors."""

    def alive(self) -> bool:
        """Whether calls can still be made."""

    def cpu_s(self) -> float:
        """Processor time that the calls took in another process."""
