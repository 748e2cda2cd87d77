# SPDX-License-Identifier: Apache-2.0

"""No coflow waits longer than theta without progress (VirtCO Alg. 1)."""

from collections.abc import Iterable
import math

from virtco import exception
from virtco.model import live


def check_theta(theta_s: float) -> float:
    """Return theta_s.

    :raises virtco.exception.Invalid: unless it is above 0 (inf: never lift).
    """
    if math.isnan(theta_s) or theta_s <= 0:
        raise exception.Invalid(field='theta_s', value=theta_s,
                                limit='seconds above 0')
    return theta_s


def is_starving(coflow: live.LiveCoflow, now_s: float, theta_s: float
                ) -> bool:
    """Whether the coflow has gone theta_s without progress."""
    return now_s >= _limit_s(coflow, theta_s)


def next_check_s(coflows: Iterable[live.LiveCoflow], now_s: float,
                 theta_s: float) -> float:
    """When to schedule again at the latest so that theta holds.

    The earliest time after ``now_s`` at which a coflow that makes no progress
    from its ``served_s`` on starves; inf when there is none.
    """
    return min((limit_s for coflow in coflows
                if (limit_s := _limit_s(coflow, theta_s)) > now_s),
               default=math.inf)


def _limit_s(coflow: live.LiveCoflow, theta_s: float) -> float:
    """When it starves. One sum for both questions: a check that is due at
    this very time must find the coflow starving in spite of rounding.
    """
    return max(coflow.served_s, coflow.arrival_s) + theta_s
