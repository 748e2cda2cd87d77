# SPDX-License-Identifier: Apache-2.0

"""Numbers the policy documents, and tells who has a new one."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
import threading

from virtco.table import host_policy
from virtco.wire import edge_policy

LEASE = 1000


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

    Generations are drawn from a lease that is written down ahead of its use
    (see :class:`virtco.db.models.Host`), so publishing never waits for the
    database.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._numbered: dict[str, _Numbered] = {}
        self._leases: dict[str, int] = {}
        self._next: dict[str, int] = {}
        self._first = 1
        self._unstored: dict[str, None] = {}
        #: Are called with the hosts that have a new policy.
        self.on_publish: list[Callable[[Collection[str]], None]] = []

    def lead(self, epoch: int) -> None:
        """Number above what a leader before gave hosts of which it could not
        write down anything.
        """
        with self._lock:
            self._first = (epoch - 1) * LEASE + 1
            self._raise({})

    def load_leases(self, leases: Mapping[str, int]) -> None:
        with self._lock:
            self._leases.update(leases)
            self._raise(leases)

    def _raise(self, leases: Mapping[str, int]) -> None:
        """A number that was given once is never given again."""
        for host in leases.keys() | self._next.keys():
            # A host that reported and had no policy yet is stored with 0.
            self._next[host] = max(self._next.get(host, 0), self._first,
                                   leases.get(host, 0) + 1)

    def leases_to_renew(self) -> dict[str, int]:
        """Hosts whose lease is used up to a half, and their next lease."""
        with self._lock:
            return {host: number + LEASE
                    for host, number in self._next.items()
                    if self._leases.get(host, 0) - number < LEASE // 2}

    def renewed(self, leases: Mapping[str, int]) -> None:
        with self._lock:
            self._leases.update(leases)

    def publish(self, policies: Mapping[str, host_policy.HostPolicy]) -> int:
        """Take over those that are other objects; how many."""
        numbered = self._numbered
        changed = [host for host, policy in policies.items()
                   if host not in numbered
                   or numbered[host].unnumbered is not policy]
        if changed:
            with self._lock:
                for host in changed:
                    self._put(host, policies[host])
            self._tell(changed)
        return len(changed)

    def _tell(self, hosts: Collection[str]) -> None:
        for tell in self.on_publish:
            tell(hosts)

    def _put(self, host: str, policy: host_policy.HostPolicy) -> None:
        generation = self._next.get(host, self._first)
        self._next[host] = generation + 1
        self._numbered[host] = _Numbered(policy, generation)
        self._unstored[host] = None

    def overtake(self, host: str, generation: int) -> None:
        """Number above what an edge says it has; only a lost database, or an
        edge of another controller, makes this necessary.
        """
        with self._lock:
            one = self._numbered.get(host)
            if one is None:
                # Its first policy is to be another than the one it has.
                self._next[host] = max(self._next.get(host, self._first),
                                       generation + 1)
            elif generation > one.generation:
                self._next[host] = generation + 1
                self._put(host, one.unnumbered)
                self._tell([host])

    def get(self, host: str) -> edge_policy.EdgePolicy | None:
        with self._lock:
            one = self._numbered.get(host)
        return one.policy() if one is not None else None

    def take_unstored(self, most: int) -> list[edge_policy.EdgePolicy]:
        """Policies that changed since they were last taken; as many at most.
        """
        with self._lock:
            hosts = list(self._unstored)[:most]
            numbered = [self._numbered[host] for host in hosts]
            for host in hosts:
                del self._unstored[host]
        return [one.policy() for one in numbered]

    def not_stored(self, hosts: Collection[str]) -> None:
        """The database did not take them; again with the next."""
        with self._lock:
            self._unstored.update(dict.fromkeys(hosts))

    def generations(self) -> dict[str, int]:
        with self._lock:
            return {host: one.generation
                    for host, one in self._numbered.items()}
