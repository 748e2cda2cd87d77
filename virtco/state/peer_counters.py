# SPDX-License-Identifier: Apache-2.0

"""What VMs send beside their coflows' classes: to VMs of their groups. Pure.

Counted at the sender's port, so what stays within a host is seen, too.
"""

from collections.abc import Iterator

from virtco.wire import reports

#: IP and TCP headers with time stamps, of a packet.
HEADER_BYTES = 52


class PeerCounters:
    """The last counters of the ports of one host."""

    def __init__(self) -> None:
        self._epoch: str | None = None
        self._rows: tuple[reports.PeerCounter, ...] = ()
        self._last: dict[tuple[str, str], float] = {}

    def take(self, report: reports.Report) -> Iterator[tuple[
            str, str, float]]:
        """VM, address and bytes of payload since the last report.

        Of a first report nothing is new: what it counts was told to whoever
        led before. Counters that went back began anew.
        """
        if report.peers == self._rows and report.epoch == self._epoch:
            return
        vms = {port.dev: port.vm for port in report.ports}
        last, self._last = self._last, {}
        is_first, self._epoch = self._epoch != report.epoch, report.epoch
        self._rows = report.peers
        for row in report.peers:
            value = float(max(0, row.sent_bytes
                              - HEADER_BYTES * row.sent_packets))
            key = row.dev, row.dst_ip
            self._last[key] = value
            before = last.get(key, 0.0)
            new_bytes = value - before if value >= before else value
            if not is_first and new_bytes > 0 and row.dev in vms:
                yield vms[row.dev], row.dst_ip, new_bytes
