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

"""Numbers the policy documents and hands them to those who wait for them."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import threading
import time

from virtco.table import coflow_table
from virtco.table import edge_policy

LEASE = 1000
POLL_S = 1.0


class Publisher:
    """The newest policy of every host.

    Generations are drawn from a lease that is written down ahead of its use
    (see :class:`virtco.db.models.Host`), so publishing never waits for the
    database.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._policies: dict[str, edge_policy.EdgePolicy] = {}
        self._leases: dict[str, int] = {}
        self._next: dict[str, int] = {}
        self._closed = False

    def close(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def load_leases(self, leases: Mapping[str, int]) -> None:
        with self._changed:
            self._leases.update(leases)
            self._next.update(
                {host: lease + 1 for host, lease in leases.items()})

    def leases_to_renew(self) -> dict[str, int]:
        """Hosts whose lease is used up to a half, and their next lease."""
        with self._changed:
            return {host: number + LEASE
                    for host, number in self._next.items()
                    if self._leases.get(host, 0) - number < LEASE // 2}

    def renewed(self, leases: Mapping[str, int]) -> None:
        with self._changed:
            self._leases.update(leases)

    def publish(self, policies: Mapping[str, edge_policy.EdgePolicy],
                tolerance: float) -> list[str]:
        """Take over what differs from the last; hosts that changed."""
        changed = []
        with self._changed:
            for host, policy in policies.items():
                old = self._policies.get(host)
                if old is not None and coflow_table.is_close(
                        old, policy, tolerance):
                    continue
                self._put(host, policy)
                changed.append(host)
            if changed:
                self._changed.notify_all()
        return changed

    def _put(self, host: str, policy: edge_policy.EdgePolicy) -> None:
        generation = self._next.get(host, 1)
        self._next[host] = generation + 1
        self._policies[host] = dataclasses.replace(
            policy, generation=generation)

    def overtake(self, host: str, generation: int) -> None:
        """Number above what an edge says it has; only a lost database, or an
        edge of another controller, makes this necessary.
        """
        with self._changed:
            policy = self._policies.get(host)
            if policy is not None and generation > policy.generation:
                self._next[host] = generation + 1
                self._put(host, policy)
                self._changed.notify_all()

    def get(self, host: str) -> edge_policy.EdgePolicy | None:
        with self._changed:
            return self._policies.get(host)

    def hosts(self) -> list[str]:
        with self._changed:
            return list(self._policies)

    def wait(self, host: str, generation: int | None, timeout_s: float,
             is_gone: Callable[[], bool] = lambda: False
             ) -> edge_policy.EdgePolicy | None:
        """The host's policy as soon as it is another than ``generation``.

        :param is_gone: whether the one who waits has left.
        :returns: the newest policy, None when the host has none in time.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                policy = self._policies.get(host)
                if policy is not None and policy.generation != generation:
                    return policy
                left = deadline - time.monotonic()
                if left <= 0 or self._closed or is_gone():
                    return policy
                self._changed.wait(min(left, POLL_S))
