# SPDX-License-Identifier: Apache-2.0

"""No coflow waits longer than theta without progress (VirtCO Alg. 1)."""

from collections.abc import Iterable
from collections.abc import Mapping
import math
import types
from typing import NamedTuple

from virtco.model import live

#: Share of theta. The bytes that a coflow, alone on its ports, sends in that
#: time are progress; bytes at the least rate of a class are none. A starving
#: coflow goes first for as long.
QUANTUM = 0.1


class Wait(NamedTuple):
    """Wait of a coflow for bandwidth.

    :ivar since_s: time at which a coflow last made progress …
    :ivar sent_bytes: … and what it had sent until then.
    """

    since_s: float
    sent_bytes: float


Waits = Mapping[str, Wait]
NOBODY: Waits = types.MappingProxyType({})


def begun(coflow: live.LiveCoflow, waits: Waits) -> Wait:
    """Return the coflow's wait; a new one begins at service or arrival."""
    return waits.get(coflow.coflow_id) or Wait(
        max(coflow.served_s, coflow.arrival_s), coflow.sent_bytes)


def waiting(coflow: live.LiveCoflow, since_s: float, now_s: float,
            theta_s: float) -> live.LiveCoflow:
    """Date the coflow's last service to its last progress.

    The same object where that does not decide whether it starves.

    :param since_s: time of its last progress.
    """
    starves = now_s >= since_s + theta_s
    if starves == is_starving(coflow, now_s, theta_s):
        return coflow
    return coflow._replace(served_s=since_s)


def renew(coflows: Iterable[live.LiveCoflow], alone_s: Mapping[str, float],
          waits: Waits, now_s: float, theta_s: float) -> Waits:
    """Update the waits after a schedule was made.

    :param coflows: coflows that have something to send now.
    :param alone_s: time that the rest takes each of them alone, by id.
    :param waits: waits before.
    """
    found = {}
    for coflow in coflows:
        wait = begun(coflow, waits)
        waited_s = now_s - wait.since_s
        is_over = waited_s >= (1 + QUANTUM) * theta_s
        if is_over or coflow.sent_bytes < wait.sent_bytes or (
                waited_s >= QUANTUM * theta_s and _served_s(
                    coflow, wait, alone_s[coflow.coflow_id])
                >= QUANTUM * theta_s):
            wait = Wait(now_s, coflow.sent_bytes)
        found[coflow.coflow_id] = wait
    return found


def _served_s(coflow: live.LiveCoflow, wait: Wait, alone_s: float) -> float:
    """Return the seconds its bytes since then would have taken alone."""
    left_bytes = float(coflow.flows.remaining_bytes.sum())
    if left_bytes <= 0:
        return math.inf
    return (coflow.sent_bytes - wait.sent_bytes) / left_bytes * alone_s


def is_starving(coflow: live.LiveCoflow, now_s: float, theta_s: float
                ) -> bool:
    """Tell whether the coflow has gone theta_s without progress."""
    # The sum of next_check_s: a check that is due finds who starves.
    return now_s >= max(coflow.served_s, coflow.arrival_s) + theta_s


def next_check_s(waits: Waits, now_s: float, theta_s: float) -> float:
    """Return the latest time to schedule again so that theta holds.

    The earliest time after ``now_s`` at which a coflow that makes no progress
    starves, or has been first for so long that others have their turn again;
    inf when there is none.
    """
    return min((at_s for wait in waits.values() for at_s in (
        wait.since_s + theta_s, wait.since_s + (1 + QUANTUM) * theta_s)
        if at_s > now_s), default=math.inf)
