# SPDX-License-Identifier: Apache-2.0

"""Ends of coflows, and beginnings of the next iteration of recurring ones.

Both follow from counted bytes, which are never exact: headers are estimated,
and bytes in flight at an end are counted after it.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """When an iteration ends and the next begins.

    :ivar negligible_fraction: fraction of the size; when no more is left, all
        is sent.
    :ivar quiet_s: no byte for this long, and …
    :ivar done_fraction: … at least this share sent: ended.
    :ivar start_bytes: fewer are noise (ARP, keep-alives).
    :ivar tail_s: no byte for this long after all were counted: ended. Bytes
        may go on for three times as long, at most.
    :ivar give_up_s: in this time no more than connections without data send:
        ended, whatever is left.
    :ivar idle_bytes: such connections of very many VMs send fewer.
    :ivar exceeding_fraction: sent beyond the size by more than that: more may
        come.
    """

    negligible_fraction: float = 1e-3
    quiet_s: float = 1.0
    done_fraction: float = 0.9
    start_bytes: float = 10_000.0
    exceeding_fraction: float = 0.01
    tail_s: float = 1.0
    give_up_s: float = 3600.0
    idle_bytes: float = 1e8

    @property
    def pause_s(self) -> float:
        """Silence in seconds after which earlier bytes were no beginning."""
        return 1.5 * self.quiet_s

    @property
    def longest_tail_s(self) -> float:
        """Longest time in seconds that a tail may go on."""
        return 3 * self.tail_s

    @property
    def settle_s(self) -> float:
        """Seconds after an end in which its last bytes may be counted."""
        return 3 * self.quiet_s


def is_all_sent(size_bytes: float, left_bytes: float, rules: Rules) -> bool:
    """Tell whether the rest is no more than counters get wrong."""
    return left_bytes <= rules.negligible_fraction * size_bytes


def has_tail(silent_s: float | None, counted_s: float, rules: Rules) -> bool:
    """Tell whether bytes may follow although all were counted.

    Counters are wrong by more than a TCP window of one flow. Without its
    class, the rest of a flow would wait behind all coflows. Keep-alives never
    end, so it has a limit.

    :param silent_s: time since the last byte, None = there was none.
    :param counted_s: time since all bytes were counted.
    """
    return (silent_s is not None and silent_s < rules.tail_s
            and counted_s < rules.longest_tail_s)


def is_exceeded(size_bytes: float, sent_bytes: float, rules: Rules) -> bool:
    """Tell whether more was sent than counters get wrong."""
    return sent_bytes > (1 + rules.exceeding_fraction) * size_bytes


def is_overrun(size_bytes: float, sent_bytes: float, rules: Rules) -> bool:
    """Tell whether the bytes sent show that the size was wrong.

    Never without a size, as of a coflow whose VMs are all on one host.
    """
    return 0 < (2 - rules.done_fraction) * size_bytes < sent_bytes


def has_ended(size_bytes: float, left_bytes: float, silent_s: float | None,
              rules: Rules) -> bool:
    """Tell whether all was sent, or most and then nothing.

    :param silent_s: time since the last byte, None = there was none yet.
    """
    if is_all_sent(size_bytes, left_bytes, rules):
        return True
    return (silent_s is not None and silent_s >= rules.quiet_s
            and left_bytes <= (1 - rules.done_fraction) * size_bytes)


def is_noise(size_bytes: float, sent_bytes: float, rules: Rules) -> bool:
    """Tell whether bytes before a silence are noise, no beginning.

    ARP and keep-alives send a few.
    """
    return sent_bytes < min(rules.start_bytes,
                            (1 - rules.done_fraction) * size_bytes)


def gets_on(size_bytes: float, new_bytes: float, rules: Rules) -> bool:
    """Tell whether a coflow gets on by these bytes.

    Keep-alives never end.
    """
    return new_bytes > min(rules.idle_bytes,
                           rules.negligible_fraction * size_bytes)


def begins_anew(size_bytes: float, new_bytes: float, rested_s: float,
                rules: Rules) -> bool:
    """Tell whether the bytes after an end are the next iteration's.

    At first only as many as the last one can hardly have left over, so that
    two iterations without a pause between them are told apart and the end of
    one is not the start of another; later whatever is more than noise.

    :param size_bytes: bytes of one iteration.
    :param new_bytes: counted since the end; the caller drops them when
        ``rules.pause_s`` passes without another.
    :param rested_s: time since the end.
    """
    leftover_bytes = (1 - rules.done_fraction) * size_bytes
    least_bytes = (leftover_bytes if rested_s < rules.settle_s
                   else min(rules.start_bytes, leftover_bytes))
    return new_bytes > 0 and new_bytes >= least_bytes
