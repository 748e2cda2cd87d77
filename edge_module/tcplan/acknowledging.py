# SPDX-License-Identifier: Apache-2.0

"""Turns of VM ports for acknowledgements of the data they receive. Pure.

Ports have equal turns in the class of control packets. Where several flood it,
these are too short for a port at which a coflow arrives: beside sixteen, the
coflow had an eighth of its rate. What a port has to acknowledge is known by
the data that it receives from other hosts. All ports together receive no more
than the link carries, and who floods gains nothing.

A guaranteed rate would not help: a class that borrowed before has a debt at
its old rate, of up to a minute, and no guarantee meanwhile.
"""

from collections.abc import Mapping
import dataclasses
import math

from edge_module.tcplan import model
from virtco import units

#: Turn of a port that receives as much as the link carries, as a multiple of
#: the others': seven eighths of the class beside sixteen that flood it.
_MOST = 128
# Control packets drain at once unless somebody floods.
_MANY_BYTES = 4096
_WAIT_S = 10.0


@dataclasses.dataclass(slots=True)
class Acknowledging:
    """Turns of the ports' classes for control packets, from counters.

    :ivar turns: multiple of a turn, by minor of the class; empty while few
        control packets wait.
    """

    turns: dict[int, float] = dataclasses.field(default_factory=dict)
    _wait_until_s: float = -math.inf
    _before: Mapping[int, model.Counts] = dataclasses.field(
        default_factory=dict)
    _before_s: float = -math.inf

    def do_wait(self, backlog_bytes: int, now_s: float) -> bool:
        """Return whether many control packets wait, or did lately.

        A socket that floods waits with them, and none is lost.

        :param backlog_bytes: in all of their queues.
        """
        if backlog_bytes >= _MANY_BYTES:
            self._wait_until_s = now_s + _WAIT_S
        return now_s < self._wait_until_s

    def update(self, received: Mapping[int, model.Counts], link_bps: float,
               now_s: float) -> None:
        """Update the turns.

        :param received: cumulative counters of the data from other hosts, by
            minor of the class that acknowledges them; none where few packets
            wait.
        """
        took_s = now_s - self._before_s
        shares = {minor: units.bytes_per_s_to_bps(
            now.sent_bytes - self._before[minor].sent_bytes)
            / took_s / link_bps
            for minor, now in received.items() if minor in self._before}
        self._before, self._before_s = received, now_s
        # Powers of two, so that few classes are changed.
        self.turns = {
            minor: 2.0 ** int(math.log2(_MOST * min(1.0, share)))
            for minor, share in shares.items() if share >= 2 / _MOST}
