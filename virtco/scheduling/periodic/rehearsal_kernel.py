# SPDX-License-Identifier: Apache-2.0

"""The event loop of a rehearsal of periodic jobs, compiled.

See :mod:`virtco.scheduling.periodic.rehearsal`.
"""

import cython
from cython.cimports.libc import math

#: Events closer together than this part of the clock are one.
SAME_TIME = cython.declare(cython.double, 1e-12)
#: A pace below this part of a job's own is none.
NO_PACE = cython.declare(cython.double, 1e-9)
INF = cython.declare(cython.double, float('inf'))


@cython.ccall
@cython.nogil
@cython.exceptval(check=False)
def opens_s(ready_s: cython.double, period_s: cython.double,
            offset_s: cython.double, most_late: cython.double
            ) -> cython.double:
    """When a job that has computed until ``ready_s`` may send.

    :param period_s: of its gate; 0: it has none.
    :param most_late: share of the period by which it may miss its turn.
    """
    if period_s <= 0.0:
        return ready_s
    turn: cython.double = math.floor((ready_s - offset_s) / period_s + 1e-9)
    if ready_s - offset_s - turn * period_s <= most_late * period_s:
        return ready_s
    return max(ready_s, offset_s + (turn + 1.0) * period_s)


@cython.ccall
@cython.nogil
@cython.exceptval(check=False)
def run(order: cython.longlong[::1], ptr: cython.longlong[::1],
        link: cython.longlong[::1], busy_s: cython.double[::1],
        send_s: cython.double[::1], compute_s: cython.double[::1],
        gate_s: cython.double[::1], offset_s: cython.double[::1],
        begins_s: cython.double[::1], most_late: cython.double,
        fair: cython.bint, horizon_s: cython.double,
        warm_up_s: cython.double, free: cython.double[::1],
        starts_s: cython.double[::1], left: cython.double[::1],
        pace: cython.double[::1], done: cython.double[::1]) -> cython.void:
    """Let jobs run from 0 to ``horizon_s``.

    :param order: jobs, first the one that is served first, shape (J,).
    :param ptr: job j uses link[ptr[j]:ptr[j + 1]], for busy_s each of an
        iteration, shape (J + 1,).
    :param gate_s: periods of the gates, 0 for none, shape (J,).
    :param begins_s: when jobs begin to compute, shape (J,).
    :param fair: jobs that send share links equally; what one leaves of its
        share on a link because another link holds it back stays idle.
    :param free: scratch of the links; those of the jobs follow.
    :param done: out: iterations of each job after ``warm_up_s``, with those
        that are under way as the share of their period that has passed.
    """
    n = order.shape[0]
    now_s: cython.double = 0.0
    for j in range(n):
        left[j] = pace[j] = 0.0
        done[j] = computed_s(begins_s[j], compute_s[j], warm_up_s,
                             horizon_s) / (send_s[j] + compute_s[j])
        starts_s[j] = opens_s(begins_s[j] + compute_s[j], gate_s[j],
                              offset_s[j], most_late)
    while now_s < horizon_s:
        next_s: cython.double = horizon_s
        for k in range(free.shape[0]):
            free[k] = 1.0
        if fair:
            count_users(ptr, link, left, free)
        for i in range(n):
            j = order[i]
            pace[j] = 0.0
            next_s = min(next_s, starts_s[j])
            if left[j] <= 0.0:
                continue
            most: cython.double = 1.0 / send_s[j]
            least: cython.double = most * NO_PACE
            for k in range(ptr[j], ptr[j + 1]):
                most = min(most, free[link[k]] / busy_s[k])
            if most <= least:
                continue
            pace[j] = most
            for k in range(0 if fair else ptr[j],
                           0 if fair else ptr[j + 1]):
                free[link[k]] = max(0.0, free[link[k]] - most * busy_s[k])
            next_s = min(next_s, now_s + left[j] / most)
        step_s: cython.double = max(0.0, next_s - now_s)
        counted_s: cython.double = max(
            0.0, next_s - max(now_s, warm_up_s))
        slack_s: cython.double = step_s + next_s * SAME_TIME
        now_s = next_s
        for j in range(n):
            if left[j] > 0.0:
                done[j] += (pace[j] * counted_s * send_s[j]
                            / (send_s[j] + compute_s[j]))
                if pace[j] > 0.0 and left[j] / pace[j] <= slack_s:
                    left[j] = 0.0
                    done[j] += computed_s(now_s, compute_s[j], warm_up_s,
                                          horizon_s) / (
                        send_s[j] + compute_s[j])
                    starts_s[j] = opens_s(now_s + compute_s[j], gate_s[j],
                                          offset_s[j], most_late)
                else:
                    left[j] -= pace[j] * step_s
            elif starts_s[j] <= now_s * (1.0 + SAME_TIME):
                if send_s[j] > 0.0:
                    left[j] = 1.0
                    starts_s[j] = INF
                else:
                    done[j] += computed_s(now_s, compute_s[j], warm_up_s,
                                          horizon_s) / compute_s[j]
                    starts_s[j] = now_s + compute_s[j]


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def count_users(ptr: cython.longlong[::1], link: cython.longlong[::1],
                left: cython.double[::1], free: cython.double[::1]
                ) -> cython.void:
    """Write what each of the jobs that send gets of each link."""
    for j in range(left.shape[0]):
        if left[j] > 0.0:
            for k in range(ptr[j], ptr[j + 1]):
                free[link[k]] += 1.0
    for k in range(free.shape[0]):
        free[k] = 1.0 / max(1.0, free[k] - 1.0)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.inline
def computed_s(now_s: cython.double, compute_s: cython.double,
               warm_up_s: cython.double, horizon_s: cython.double
               ) -> cython.double:
    """What of a computation that begins now is in the time that counts."""
    return max(0.0, min(now_s + compute_s, horizon_s)
               - max(now_s, warm_up_s))
