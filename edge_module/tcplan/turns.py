# SPDX-License-Identifier: Apache-2.0

"""Length of the turns of VM ports for their unmanaged traffic. Pure.

The kernel gives every port a turn of equal bytes. Two things make that unfair
to a port that sends TCP. Frames are longer on the wire than the kernel counts
in a turn, most of all short frames of other ports. And the queue of a port
that floods never runs empty, while that of a port that slows down for losses
does. A port that fills its queue loses much, or receives nothing: TCP waits
for acknowledgements.

The kernel counts the wire's bytes once per super-packet, although the device
sends it as many frames: with segments of 88 bytes a class had 1.16 times its
rate. So super-packets of classes with short frames are cut, those of coflows'
classes too. The kernel counts no frame at all of a super-packet from a VM's
tap: where the device sends many more frames than the classes count, and short
ones, super-packets of all of them are cut until it is known whose they are.
"""

from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import operator
import types

from edge_module.tcplan import model

#: Length of a flooding port's turns, as part of the others'.
FLOOD_TURN = 1 / 16
#: A port that loses a larger part than this does not slow down for losses.
_FLOOD_LOSS = 0.25
# A sender that starts may lose as much for a moment.
_LEAST_PACKETS = 200
_FLOOD_S = 10.0
# Bytes that TCP sends per packet that it receives, at most: receivers
# acknowledge two super-packets together.
_BYTES_PER_ANSWER = 128 * 1024
# Turns change in these steps, so that few classes are changed.
_STEPS = 16
# Longest frames, on average, for which the link's margin is too small where
# the classes do not count them.
_SHORT_BYTES = 1000


@dataclasses.dataclass(slots=True)
class PortTurns:
    """Lengths of the turns of the ports' classes, from their counters.

    A coflow's class has the length ``FLOOD_TURN`` if its frames are short.

    :param overhead_bytes: bytes that the wire adds to each frame.
    :param frame_min_bytes: size of the shortest frame on the wire.
    :ivar turns: part of a whole turn, by minor; 1 for minors not in it.
    """

    overhead_bytes: int
    frame_min_bytes: int
    turns: dict[int, float] = dataclasses.field(default_factory=dict)
    _before: dict[int, model.Counts] = dataclasses.field(default_factory=dict)
    _floods_until_s: dict[int, float] = dataclasses.field(
        default_factory=dict)
    # Bytes sent and packets received by those who filled their queues.
    _answers: dict[int, tuple[int, int]] = dataclasses.field(
        default_factory=dict)
    # Bytes of all classes, and frames that they did not count.
    _whole: tuple[int, int] = (0, 0)

    def are_hidden(self, whole: model.Counts, frames: int) -> bool:
        """Return whether the device sent short frames since the last call
        that no class counted.

        :param whole: cumulative counters of all classes together.
        :param frames: frames that the device ever sent.
        """
        before = self._whole
        self._whole = whole.sent_bytes, frames - whole.sent_packets
        sent_bytes, hidden = map(operator.sub, self._whole, before)
        return before != (0, 0) and hidden * _SHORT_BYTES > sent_bytes > 0

    def update(self, counted: Mapping[int, model.Counts], now_s: float,
               are_hidden: bool = False,
               received: Mapping[int, int] = types.MappingProxyType({})
               ) -> bool:
        """Update the turns from the classes' counters.

        :param counted: cumulative counters, by minor.
        :param now_s: any monotonic clock.
        :param are_hidden: see :meth:`are_hidden`.
        :param received: packets that the port of each class ever received;
            only of classes whose queue is not empty.
        :returns: whether a turn changed.
        """
        turns, before = {}, {}
        silent = self._unanswered(counted, received)
        for minor, now in counted.items():
            base = self._before.get(minor, model.Counts())
            if base.sent_packets > now.sent_packets:  # another class
                base = model.Counts()
            turn = self.turns.get(minor, 1.0)
            if minor in silent:
                self._floods_until_s[minor] = now_s + _FLOOD_S
            if minor in silent or now.sent_packets + now.drops >= (
                    base.sent_packets + base.drops + _LEAST_PACKETS):
                turn = self._turn(minor, now.since(base), now_s)
                base = now
            if are_hidden and turn == 1 and now.sent_bytes > base.sent_bytes:
                # Cut, its frames are counted; until then it has its turn.
                base, turn = now, 1 - 1 / _STEPS
            before[minor] = base
            if turn < 1:
                turns[minor] = turn
        self._floods_until_s = {
            minor: until_s for minor, until_s in self._floods_until_s.items()
            if minor in before and until_s > now_s}
        changed = turns != self.turns
        self.turns, self._before = turns, before
        return changed

    def _unanswered(self, counted: Mapping[int, model.Counts],
                    received: Mapping[int, int]) -> Collection[int]:
        """Return the classes that filled their queues since the last call and
        whose ports received less than acknowledgements of what they sent.
        """
        before, self._answers = self._answers, {
            minor: (counted[minor].sent_bytes, packets)
            for minor, packets in received.items()}
        # Counters of a device that is created again go back.
        return {minor for minor, (sent_bytes, packets) in self._answers.items()
                if minor in before and packets >= before[minor][1]
                and sent_bytes - before[minor][0]
                > _BYTES_PER_ANSWER * (1 + packets - before[minor][1])}

    def _turn(self, minor: int, since: model.Counts, now_s: float) -> float:
        """Return a class's part of a turn, by its frame size and losses."""
        frame_bytes = since.sent_bytes / max(1.0, since.sent_packets)
        on_wire = max(frame_bytes + self.overhead_bytes, self.frame_min_bytes,
                      1.0)
        part = frame_bytes / on_wire
        if model.is_data(minor):
            return FLOOD_TURN if round(_STEPS * part) < _STEPS else 1.0
        if since.drops > _FLOOD_LOSS * (since.sent_packets + since.drops):
            self._floods_until_s[minor] = now_s + _FLOOD_S
        if self._floods_until_s.get(minor, now_s) > now_s:
            part *= FLOOD_TURN
        return max(1, round(_STEPS * part)) / _STEPS
