# SPDX-License-Identifier: Apache-2.0

"""Limits on probing traffic: bytes per hour, by link and in total."""

import collections

from virtco import units

HOUR_S = 3600.0
_SLOT_S = 60.0


class LastHour:
    """Bytes of the last 60 to 61 minutes, counted by the minute."""

    def __init__(self) -> None:
        # Bytes by number of the minute, the newest last.
        self._minutes: dict[int, int] = {}

    def add(self, size_bytes: int, now_s: float) -> None:
        minute = int(now_s // _SLOT_S)
        newest = max(self._minutes, default=minute)
        # Bytes that are given back belong to the minute in which they were
        # taken.
        if size_bytes < 0 or newest > minute:
            minute = newest
        self._minutes[minute] = self._minutes.get(minute, 0) + size_bytes

    def total_bytes(self, now_s: float) -> int:
        """Sum the bytes of the last hour."""
        oldest = int((now_s - HOUR_S) // _SLOT_S)
        while self._minutes and (first := next(iter(self._minutes))) < oldest:
            del self._minutes[first]
        return sum(self._minutes.values())


class Budget:
    """Limits of probing per hour, for each direction of each link.

    :param link_share: share of the bytes that a link carries in an hour, 0 to
        1.
    :param bytes_per_hour: bytes of all links together; None without a limit.
    """

    def __init__(self, link_share: float, bytes_per_hour: int | None):
        self._link_share = link_share
        self._bytes_per_hour = bytes_per_hour
        self._all = LastHour()
        self._sent: dict[str, LastHour] = collections.defaultdict(LastHour)
        self._received: dict[str, LastHour] = collections.defaultdict(
            LastHour)

    def allows(self, src: str, dst: str, size_bytes: int, link_bps: float,
               now_s: float) -> bool:
        """Tell whether one host may send the other more bytes.

        :param link_bps: rate of the slower of the two links.
        """
        most_bytes = (units.bps_to_bytes_per_s(link_bps) * HOUR_S
                      * self._link_share)
        return (max(self._sent[src].total_bytes(now_s),
                    self._received[dst].total_bytes(now_s)) + size_bytes
                <= most_bytes) and not self.is_spent(size_bytes, now_s)

    def is_spent(self, size_bytes: int, now_s: float) -> bool:
        """Tell whether the cap of all links leaves no room."""
        return (self._bytes_per_hour is not None
                and self._all.total_bytes(now_s) + size_bytes
                > self._bytes_per_hour)

    def spend(self, src: str, dst: str, size_bytes: int,
              now_s: float) -> None:
        """Charge a transfer to the budgets of all, of its sender and receiver.

        :param size_bytes: below 0 to give back what was not sent.
        """
        for account in (self._all, self._sent[src], self._received[dst]):
            account.add(size_bytes, now_s)

    def spent_bytes(self, now_s: float) -> int:
        """Return the bytes of all links within the last hour."""
        return self._all.total_bytes(now_s)
