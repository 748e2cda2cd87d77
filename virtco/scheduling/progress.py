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

"""Start, end and repetition of a coflow's activity, from byte counts.

A small state machine per coflow. Counts are cumulative; a smaller one than
before is a counter that began anew. Recurring coflows (the iterations of an
algorithm, each with the claimed bytes) re-arm: bytes after an end start the
next iteration.
"""

import dataclasses
import enum
import math

from virtco import exception


class Phase(enum.StrEnum):
    """Where a coflow stands.

    ARMED: nothing sent yet in this iteration. ACTIVE: sending. ENDED: all
    sent, or quiet after most of it. DECLARED: its owner said it is over; no
    byte revives it.
    """

    ARMED = 'armed'
    ACTIVE = 'active'
    ENDED = 'ended'
    DECLARED = 'declared'


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """When activity begins and ends.

    :ivar start_bytes: fewer bytes than this are noise (ARP, keep-alives).
    :ivar quiet_s: no byte for this long, and …
    :ivar done_fraction: … at least this share of the claim sent: ended.
    :ivar idle_s: no byte for this long: ended, however little was sent.
    """

    start_bytes: float = 10_000.0
    quiet_s: float = 1.0
    done_fraction: float = 0.9
    idle_s: float = 300.0


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """What is known of one coflow.

    :ivar claimed_bytes: per iteration; 0 = unknown.
    :ivar sent_bytes: in the present iteration.
    :ivar counter_bytes: last cumulative count.
    :ivar iteration: from 1; how often it became active.
    :ivar started_s: of the present iteration, NaN before it.
    :ivar served_s: last time that bytes were seen.
    :ivar ended_s: NaN unless ended; of the last byte, not of its discovery.
    :ivar iteration_bytes: sizes of the iterations that have ended.
    """

    claimed_bytes: float
    phase: Phase = Phase.ARMED
    sent_bytes: float = 0.0
    counter_bytes: float = 0.0
    iteration: int = 0
    started_s: float = math.nan
    served_s: float = math.nan
    ended_s: float = math.nan
    iteration_bytes: tuple[float, ...] = ()

    @property
    def remaining_bytes(self) -> float:
        """Left of the claim in this iteration; 0 once ended."""
        if self.phase in (Phase.ENDED, Phase.DECLARED):
            return 0.0
        return max(0.0, self.claimed_bytes - self.sent_bytes)


def observe(progress: Progress, counter_bytes: float, now_s: float,
            rules: Rules = Rules()) -> Progress:
    """Take a cumulative count in.

    :raises virtco.exception.Invalid: for a negative or non-finite count.
    """
    if not (math.isfinite(counter_bytes) and counter_bytes >= 0):
        raise exception.Invalid(field='counter_bytes', value=counter_bytes,
                                limit='a finite number, at least 0')
    new = counter_bytes - progress.counter_bytes
    if new < 0:
        new = counter_bytes
    seen = dataclasses.replace(progress, counter_bytes=counter_bytes)
    if progress.phase == Phase.DECLARED:
        return seen
    if progress.phase == Phase.ACTIVE:
        return _while_active(seen, new, now_s, rules)
    # Before a start, or after an end: noise adds up until it is a start.
    pending = new + (progress.sent_bytes if progress.phase == Phase.ARMED
                     else 0.0)
    if pending >= rules.start_bytes or (
            pending > 0 and 0 < progress.claimed_bytes <= pending):
        return _ended_if_complete(dataclasses.replace(
            seen, phase=Phase.ACTIVE, sent_bytes=pending,
            iteration=progress.iteration + 1, started_s=now_s,
            served_s=now_s, ended_s=math.nan))
    if new > 0 and progress.phase == Phase.ENDED:
        return dataclasses.replace(seen, phase=Phase.ARMED,
                                   sent_bytes=pending)
    if progress.phase == Phase.ARMED:
        return dataclasses.replace(seen, sent_bytes=pending)
    return seen


def declare_end(progress: Progress, now_s: float) -> Progress:
    """The owner says that it is over."""
    if progress.phase == Phase.DECLARED:
        return progress
    ended = _end(progress, now_s) if progress.phase == Phase.ACTIVE else (
        progress)
    return dataclasses.replace(
        ended, phase=Phase.DECLARED,
        ended_s=now_s if math.isnan(ended.ended_s) else ended.ended_s)


def expected_bytes(progress: Progress) -> float:
    """Size to expect of the next iteration.

    The mean of the last three that ended, where there are any (recurring jobs
    repeat themselves), else the claim.
    """
    last = progress.iteration_bytes[-3:]
    return sum(last) / len(last) if last else progress.claimed_bytes


def _while_active(progress: Progress, new: float, now_s: float,
                  rules: Rules) -> Progress:
    if new > 0:
        return _ended_if_complete(dataclasses.replace(
            progress, sent_bytes=progress.sent_bytes + new, served_s=now_s))
    quiet_s = now_s - progress.served_s
    nearly = (progress.sent_bytes
              >= rules.done_fraction * progress.claimed_bytes)
    if quiet_s >= rules.idle_s or (quiet_s >= rules.quiet_s and nearly):
        return _end(progress, progress.served_s)
    return progress


def _ended_if_complete(progress: Progress) -> Progress:
    """All that was claimed has been sent, exactly: no need to wait."""
    if progress.sent_bytes == progress.claimed_bytes > 0:
        return _end(progress, progress.served_s)
    return progress


def _end(progress: Progress, ended_s: float) -> Progress:
    return dataclasses.replace(
        progress, phase=Phase.ENDED, ended_s=ended_s,
        iteration_bytes=(*progress.iteration_bytes, progress.sent_bytes))
