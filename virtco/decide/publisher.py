# SPDX-License-Identifier: Apache-2.0

"""Numbers the policy documents, and tells who has a new one."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Set
import threading

from virtco.table import host_policy
from virtco.wire import edge_policy

#: Generations that each epoch has for the policies of a host: three years of
#: ten a second. In a double, as JSON's readers have it, there is room for
#: nine million epochs.
PER_EPOCH = 10 ** 9


def lag(published: int | None, applied: int | None) -> int:
    """Policies of the leader's epoch that a host did not apply yet.

    :param published: generation of the newest policy, None without one.
    :param applied: generation of the one that the host applied.
    """
    if published is None:
        return 0
    return min(published - (applied or 0), published % PER_EPOCH)


class _Numbered:
    """A policy and its number; written out when somebody asks for it."""

    def __init__(self, policy: host_policy.HostPolicy, generation: int):
        self.unnumbered = policy
        self.generation = generation
        self._policy: edge_policy.EdgePolicy | None = None

    def policy(self) -> edge_policy.EdgePolicy:
        # Two that ask at once write it twice; nobody waits for a lock.
        if self._policy is None:
            self._policy = self.unnumbered.policy(self.generation)
        return self._policy


class Publisher:
    """The newest policy of every host.

    The generation of a policy says in which epoch it was made. So no two
    policies of a host have the same one, and none has to be written down.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbered: dict[str, _Numbered] = {}
        self._epoch = 0
        #: Generation of hosts that come: what was forgotten and comes back
        #: has a policy up to it.
        self._newest = 0
        #: Are called with the hosts that have a new policy.
        self.on_publish: list[Callable[[Collection[str]], None]] = []

    def lead(self, epoch: int) -> None:
        """Number in this epoch from here on."""
        self._epoch = epoch
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
        changed = [host for host, policy in policies.items()
                   if host not in numbered
                   or numbered[host].unnumbered is not policy]
        if changed:
            with self._lock:
                for host in changed:
                    before = numbered.get(host)
                    numbered[host] = _Numbered(
                        policies[host], 1 + (
                            before.generation if before is not None
                            else self._newest))
            for tell in self.on_publish:
                tell(changed)
        return len(changed)

    def get(self, host: str) -> edge_policy.EdgePolicy | None:
        with self._lock:
            one = self._numbered.get(host)
        return one.policy() if one is not None else None

    def generations(self) -> dict[str, int]:
        """Return the generation of each host's policy."""
        with self._lock:
            return {host: one.generation
                    for host, one in self._numbered.items()}
