# SPDX-License-Identifier: Apache-2.0

"""Numbers the policy documents, and tells who has a new one."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import functools
import threading

from virtco.table import host_policy
from virtco.wire import edge_policy

#: Generations that each epoch has for the policies of a host: three years of
#: ten a second. In a double, as JSON's readers have it, there is room for
#: nine million epochs.
PER_EPOCH = 10 ** 9


def lag(published: int | None, applied: int | None) -> int:
    """Return the number of the epoch's policies that a host did not apply yet.

    :param published: generation of the newest policy, None without one.
    :param applied: generation of the one that the host applied.
    """
    if published is None:
        return 0
    return min(published - (applied or 0), published % PER_EPOCH)


@dataclasses.dataclass(frozen=True)
class _Numbered:
    """A policy and its number; its document is made at the first request.

    Two threads that ask at once make it twice; none waits for a lock.
    """

    unnumbered: host_policy.HostPolicy
    generation: int

    @functools.cached_property
    def document(self) -> edge_policy.EdgePolicy:
        return self.unnumbered.policy(self.generation)


class Publisher:
    """The newest policy of every host.

    The generation of a policy says in which epoch it was made. So no two
    policies of a host have the same one, and none has to be written down.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbered: dict[str, _Numbered] = {}
        #: Generation that new hosts start after: at least that of each host
        #: that was forgotten and may come back with its old policy.
        self._newest = 0
        #: Functions called with the hosts that have a new policy.
        self.on_publish: list[Callable[[Collection[str]], None]] = []

    def lead(self, epoch: int) -> None:
        """Begin to number policies in this epoch."""
        self._newest = epoch * PER_EPOCH

    def forget(self, hosts: Set[str]) -> None:
        """Drop the policies of these hosts."""
        with self._lock:
            for host in hosts & self._numbered.keys():
                self._newest = max(self._newest,
                                   self._numbered.pop(host).generation)

    def publish(self, policies: Mapping[str, host_policy.HostPolicy]) -> int:
        """Take over those that are other objects; how many."""
        numbered = self._numbered
        # Another thread forgets hosts.
        with self._lock:
            changed = [host for host, policy in policies.items()
                       if host not in numbered
                       or numbered[host].unnumbered is not policy]
            for host in changed:
                before = numbered.get(host)
                numbered[host] = _Numbered(
                    policies[host], 1 + (
                        before.generation if before is not None
                        else self._newest))
        if changed:
            for tell in self.on_publish:
                tell(changed)
        return len(changed)

    def lacked(self, policies: Mapping[str, object]) -> Set[str]:
        """Return those of these hosts that have no policy here."""
        with self._lock:
            return policies.keys() - self._numbered.keys()

    def get(self, host: str) -> edge_policy.EdgePolicy | None:
        """Return the newest policy of a host; None without one."""
        with self._lock:
            one = self._numbered.get(host)
        return one.document if one is not None else None

    def generations(self) -> dict[str, int]:
        """Return the generation of each host's policy."""
        with self._lock:
            return {host: one.generation
                    for host, one in self._numbered.items()}
