# SPDX-License-Identifier: Apache-2.0

"""Bytes that VMs sent each other before a hint named them. Pure."""

from collections.abc import Iterable
from collections.abc import Set
import dataclasses
import heapq
import math

from virtco.state import addresses
from virtco.state import byte_counters

#: Pairs of VMs; those that send least are forgotten first.
MOST = 4000
# VM, address, bytes of payload.
Row = tuple[str, str, float]
# Sender, receiver.
Pair = tuple[str, str]


@dataclasses.dataclass(slots=True)
class Sent:
    """Bytes of a pair since its last silence.

    :ivar since_s: no byte of it moved before.
    """

    since_s: float
    last_s: float
    sent_bytes: float = 0.0


class Unhinted:
    """Bytes by pair of VMs at different hosts.

    A pair begins anew after :data:`.byte_counters.FLOW_RESTS_S` of silence:
    what it sent before is not of the coflow that a hint will tell of.
    """

    def __init__(self, places: addresses.Addresses):
        self._addresses = places
        self._sent: dict[Pair, Sent] = {}
        self._now_s = -math.inf

    def take(self, host: str, rows: Iterable[Row], since_s: float,
             now_s: float) -> None:
        """Count the bytes of a host's report that belong to no class.

        :param since_s: time of its report before.
        """
        self._now_s = now_s
        for vm, dst_ip, new_bytes in rows:
            dst = self._addresses.vm_at(dst_ip)
            if dst is None or self._addresses.of_vm[dst][0] == host:
                continue
            sent = self._sent.get((vm, dst))
            if sent is None or not self._goes_on(sent):
                sent = self._sent[vm, dst] = Sent(since_s, now_s)
            sent.last_s = now_s
            sent.sent_bytes += new_bytes
        if len(self._sent) > MOST:
            self._sent = dict(heapq.nlargest(
                MOST // 2, ((pair, sent) for pair, sent in self._sent.items()
                            if self._goes_on(sent)),
                key=lambda one: one[1].sent_bytes))

    def _goes_on(self, sent: Sent) -> bool:
        return self._now_s - sent.last_s < byte_counters.FLOW_RESTS_S

    def pop(self, vms: Set[str]) -> dict[Pair, Sent]:
        """Remove and return the bytes that these VMs sent each other."""
        found = {pair: sent for pair, sent in self._sent.items()
                 if pair[0] in vms and pair[1] in vms}
        for pair in found:
            del self._sent[pair]
        return {pair: sent for pair, sent in found.items()
                if self._goes_on(sent)}
