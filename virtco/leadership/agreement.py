# SPDX-License-Identifier: Apache-2.0

"""What a leader that cannot reach its database asks its peers. Pure."""

import dataclasses


@dataclasses.dataclass
class _Peer:
    said_s: float
    has_database: bool


class Agreement:
    """
    :param lease_s: what a peer said holds for this time.
    """

    def __init__(self, lease_s: float):
        self._lease_s = lease_s
        self._here: dict[str, _Peer] = {}
        self._expected: frozenset[str] = frozenset()

    def arrived(self, names: set[str], now_s: float) -> None:
        """These peers are here, and no others."""
        before = self._here
        self._here = {name: before.get(name) or _Peer(now_s, True)
                      for name in names}
        self._expected |= names

    def said(self, name: str, has_database: bool, now_s: float) -> None:
        self._here[name] = _Peer(now_s, has_database)

    def written(self) -> None:
        """The database is there, so that those who leave now are not missed.
        """
        self._expected = frozenset(self._here)

    def have_no_database(self, now_s: float) -> bool:
        """Whether every peer says so: those that are here, and those that
        were here since this process could last write. One that is gone may be
        the next leader.
        """
        fresh_s = now_s - self._lease_s
        return all(
            (found := self._here.get(name)) is not None
            and not found.has_database and found.said_s >= fresh_s
            for name in self._expected)
