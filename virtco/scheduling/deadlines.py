# SPDX-License-Identifier: Apache-2.0

"""Admission of coflows with deadlines, and the rates that keep them.

A promise is a reservation of port time. A *plan* says which fraction of each
promised coflow is sent by which time, all flows of a coflow in proportion
(MADD). Within a plan no port is busy for longer than time passes, so the
rates that follow from it can be guaranteed together. A coflow is admitted
only if a plan exists that holds all promises so far and its own.

Varys reserves one constant rate, bytes over time to the deadline (Chowdhury
et al., SIGCOMM 2014, section 5.3). Here the rate may change at each deadline:
a coflow that has time steps aside for one that has none.

Sizes are port seconds: the time that a port takes at its full rate for what a
coflow has left there.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np

#: Fraction of a coflow, or of an interval, that rounding may take.
ROUNDING = 1e-9
#: Doublings and halvings in the search for the earliest deadline.
_STEPS = 24


#: Arguments of :meth:`Claims.joined`.
Row = tuple[str, np.ndarray, float, float]


@dataclasses.dataclass(frozen=True, slots=True)
class Claims:
    """Coflows with deadlines as they are now.

    :ivar ids: ids of the coflows, each once.
    :ivar port_s: port seconds that they have left, shape (n, n_ports).
    :ivar left_s: time to each deadline, shape (n,).
    :ivar caps_s: time that each takes for the caps of its VMs, shape (n,).
    """

    ids: tuple[str, ...]
    port_s: np.ndarray
    left_s: np.ndarray
    caps_s: np.ndarray

    def joined(self, coflow_id: str, port_s: np.ndarray, left_s: float,
               caps_s: float = 0.0) -> 'Claims':
        """Add a claim."""
        return Claims((*self.ids, coflow_id),
                      np.vstack((self.port_s, port_s[None])),
                      np.append(self.left_s, left_s),
                      np.append(self.caps_s, caps_s))


def claims_of(n_ports: int, rows: Sequence[Row] = ()) -> Claims:
    """Return claims, to which others can be joined.

    :param rows: a row per coflow; to join hundreds one by one takes long.
    """
    ids, port_s, *times_s = zip(*rows) if rows else ((),) * 4
    return Claims(ids, np.reshape(port_s, (len(rows), n_ports)),
                  *(np.array(some, np.float64) for some in times_s))


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Fractions of each coflow to send by each time.

    :ivar ids: ids of the coflows.
    :ivar times_s: times from that of the plan, which is first, to the last
        deadline, shape (k+1,).
    :ivar done: fraction of what each coflow had left at first that is sent
        by each of these times, shape (n, k+1).
    :ivar is_whole: whether each coflow is sent by its deadline.
    """

    ids: tuple[str, ...]
    times_s: np.ndarray
    done: np.ndarray
    is_whole: bool

    def floors(self) -> dict[str, float]:
        """Compute each coflow's guaranteed pace until the next time.

        The unit is the fraction of its bytes left now, per second.
        """
        if len(self.times_s) < 2:
            return {}
        paces = self.done[:, 1] / (self.times_s[1] - self.times_s[0])
        return {coflow_id: pace for coflow_id, pace in zip(
            self.ids, paces.tolist()) if pace > 0}

    def holds(self, other: 'Plan') -> bool:
        """Tell whether no coflow of another plan, whose coflows are its first
        ones, sends less by its deadline than there.
        """
        return bool((self.done[:len(other.ids), -1]
                     >= other.done[:, -1] - 2 * ROUNDING).all())

    @property
    def next_s(self) -> float:
        """Time at which the rates change; inf without coflows."""
        return (float(self.times_s[1]) if len(self.times_s) > 1
                else math.inf)


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a deadline can be promised.

    :ivar bound_s: time that the coflow takes under every schedule that keeps
        the promises so far: a lower bound.
    :ivar earliest_s: least time to a deadline that can be promised; inf for
        a coflow that uses a port without a rate.
    """

    is_promised: bool
    bound_s: float
    earliest_s: float


def renew(claims: Claims, now_s: float, before: Plan | None = None) -> Plan:
    """Plan all claims from now on.

    The greedy plan is not monotone: less to send may, rarely, make it fail.
    What is left of the plan before stays valid for coflows that keep up with
    it, so it is taken up where it holds more of any, and new coflows get what
    it leaves.

    :param now_s: on any clock.
    :param before: the last plan, on the same clock.
    """
    plan = _fill(claims, now_s)
    if plan.is_whole or before is None:
        return plan
    kept = _fill(claims, now_s, before)
    return plan if plan.holds(kept) else kept


def judge(promised: Claims, size_s: np.ndarray, left_s: float,
          caps_s: float = 0.0) -> Verdict:
    """Decide on one more claim in addition to the promised ones.

    :param size_s: its port seconds, shape (n_ports,).
    :param left_s: time to its deadline.
    :param caps_s: time that it takes for the caps of its VMs.
    """
    bound_s = least_s(promised, size_s, caps_s)
    is_promised = left_s >= bound_s * (1 - ROUNDING) and fits(
        promised, size_s, left_s, caps_s)
    return Verdict(is_promised, bound_s, earliest_s(
        promised, size_s, bound_s, caps_s))


def least_s(promised: Claims, size_s: np.ndarray, caps_s: float = 0.0
            ) -> float:
    """Compute a lower bound of a coflow's time under the promises.

    By each deadline every port must have served all that is due by then; in
    the interval in which the coflow ends, it is due itself.
    """
    order = np.argsort(promised.left_s, kind='stable')
    ends_s = promised.left_s[order]
    due_s = np.cumsum(promised.port_s[order], axis=0)
    used = size_s > 0
    if not used.any():
        return 0.0
    too_much = (due_s + size_s)[:, used] > ends_s[:, None] * (1 + ROUNDING)
    late = np.flatnonzero(too_much.any(axis=1))
    first = int(late[-1]) + 1 if len(late) else 0
    bound_s = caps_s
    for i in range(first, len(ends_s) + 1):
        before_s = due_s[i - 1] if i else np.zeros(len(size_s))
        bound_s = max(bound_s, float((before_s + size_s)[used].max()))
        if i == len(ends_s) or bound_s <= ends_s[i]:
            break
    return bound_s


def earliest_s(promised: Claims, size_s: np.ndarray, bound_s: float,
               caps_s: float = 0.0) -> float:
    """Find the least time to a deadline that :func:`judge` promises.

    Between the bound and twice the sum of all claims one always fits; it is
    found by bisection, to within a millionth of that span.
    """
    if not math.isfinite(bound_s) or fits(
            promised, size_s, bound_s, caps_s):
        return bound_s
    low_s = bound_s
    high_s = max(bound_s, float(promised.left_s.max(initial=0.0))
                 ) + float(size_s.max(initial=caps_s))
    for _ in range(_STEPS):
        middle_s = (low_s + high_s) / 2
        if fits(promised, size_s, middle_s, caps_s):
            high_s = middle_s
        else:
            low_s = middle_s
    return high_s


def fits(promised: Claims, size_s: np.ndarray, left_s: float,
         caps_s: float = 0.0) -> bool:
    """Tell whether a plan holds the promised claims and one more.

    Those that no plan holds, as of coflows that did not begin, only keep what
    they would have without it.
    """
    plan = _fill(promised.joined('', size_s, left_s, caps_s), 0.0)
    is_sent = not size_s.any() or plan.done[-1, -1] >= 1 - 2 * ROUNDING
    return plan.is_whole or bool(is_sent) and plan.holds(
        _fill(promised, 0.0))


def _fill(claims: Claims, now_s: float, before: Plan | None = None) -> Plan:
    """Give the claims port time, the earliest deadline first.

    Each coflow is sent as evenly as the room that earlier ones leave allows.
    A claim that does not fit gets what there is.

    :param before: plan whose values for a claim are taken over.
    """
    left_s = np.maximum(claims.left_s, 0.0)
    ends_s = left_s if before is None else np.append(
        left_s, before.times_s - now_s)
    ends_s = np.unique(ends_s[ends_s > 0])
    lengths_s = np.diff(ends_s, prepend=0.0)
    room_s = np.repeat(lengths_s[:, None], claims.port_s.shape[1], 1)
    shares = np.zeros((len(claims.ids), len(ends_s)))
    # A port without a rate holds nothing, and 0 times inf is no number.
    size_s = np.where(np.isfinite(claims.port_s), claims.port_s, 0.0)
    is_whole = True
    if before is not None:
        shares = _kept(claims, before, np.append(0.0, ends_s) + now_s)
        room_s -= shares.T @ size_s
        is_whole = bool((room_s >= -ROUNDING * ends_s[-1:]).all())
        room_s = np.maximum(0.0, room_s)
    for c in np.argsort(left_s, kind='stable').tolist():
        used = np.flatnonzero(claims.port_s[c])
        last = int(np.searchsorted(ends_s, left_s[c], 'right'))
        missing = 1.0 - shares[c].sum()
        if missing <= ROUNDING or not len(used):
            continue
        room = room_s[:last, used]
        most = (room / claims.port_s[c, used]).min(axis=1)
        if claims.caps_s[c]:
            most = np.minimum(most, lengths_s[:last] / claims.caps_s[c])
        added = _evenly(most, lengths_s[:last], missing)
        is_whole &= bool(added.sum() >= missing - ROUNDING)
        shares[c, :last] += added
        room_s[:last, used] = np.maximum(
            0.0, room - added[:, None] * size_s[c, used])
    done = np.zeros((len(claims.ids), len(ends_s) + 1))
    np.cumsum(shares, axis=1, out=done[:, 1:])
    return Plan(claims.ids, np.append(0.0, ends_s) + now_s, done, is_whole)


def _kept(claims: Claims, before: Plan, times_s: np.ndarray) -> np.ndarray:
    """Compute the shares a plan holds for the claims between times.

    :returns: fraction of what is left now, shape (n, len(times_s) - 1).
    """
    shares = np.zeros((len(claims.ids), len(times_s) - 1))
    row = {coflow_id: i for i, coflow_id in enumerate(before.ids)}
    for c, coflow_id in enumerate(claims.ids):
        if coflow_id in row:
            done = np.interp(times_s, before.times_s,
                             before.done[row[coflow_id]])
            # A coflow without progress has nothing left in the plan.
            shares[c] = np.diff(done) / max(ROUNDING, 1.0 - done[0])
    return shares


def _evenly(most: np.ndarray, lengths_s: np.ndarray, wanted: float
            ) -> np.ndarray:
    """Spread a fraction over intervals at one pace, shape (k,).

    :param most: most that each interval can take, shape (k,). An interval that
        takes no more than that leaves the rest to the others.
    """
    found = most.copy()
    left, time_s = wanted, float(lengths_s.sum())
    for i in np.argsort(most / lengths_s).tolist():
        if most[i] / lengths_s[i] * time_s >= left:
            is_level = most / lengths_s >= most[i] / lengths_s[i]
            found[is_level] = left / time_s * lengths_s[is_level]
            break
        left -= most[i]
        time_s -= lengths_s[i]
    return found


class Withheld:
    """Size above which no tight deadline is promised for now.

    When some claims find no room, it costs the fewest promises if these are
    the largest ones, not whoever asks last. So the largest part of the latest
    claims waits, three times as large a part as found no room. Nothing is
    withheld while all find room, and nothing that takes its slowest port a
    quarter of the time until its deadline or less. A coflow that waits is
    served as any other, and judged again when less of it is left.

    :param most: claims that are remembered.
    """

    #: Withheld for each that finds no room; see benchmarks.deadlines.
    PER_REFUSED = 3.0
    #: Time to a deadline that is never withheld, in times alone.
    LOOSE = 4.0

    def __init__(self, most: int = 100):
        self._most = most
        self._asked: list[tuple[float, bool]] = []

    def note(self, alone_s: float, found_room: bool) -> None:
        """Remember a new claim.

        :param alone_s: its time alone on the fabric.
        :param found_room: also of a claim that is withheld.
        """
        self._asked = [*self._asked, (alone_s, found_room)][-self._most:]

    @property
    def limit_s(self) -> float:
        """Time alone above which a coflow is withheld."""
        sizes_s = sorted(alone_s for alone_s, _ in self._asked)
        n_refused = sum(not found_room for _, found_room in self._asked)
        if not n_refused:
            return math.inf
        n_open = len(sizes_s) - math.floor(self.PER_REFUSED * n_refused)
        return sizes_s[max(1, n_open) - 1]

    def holds(self, alone_s: float, left_s: float) -> bool:
        """Tell whether a claim waits.

        :param left_s: time to its deadline.
        """
        return alone_s > self.limit_s and left_s < self.LOOSE * alone_s
