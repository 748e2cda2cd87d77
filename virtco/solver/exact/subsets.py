# SPDX-License-Identifier: Apache-2.0

"""Kernel of the exact subset dynamic programme, for at most 12 nodes.

A host's own time depends on the set of nodes on it alone, so with f_m(S)
the best bottleneck of placing exactly S on the first m hosts,

    f_m(S) = min over T in S of max(f_{m-1}(S - T), time_m(T)).

3^n steps per host; sets are bit masks.
"""

import cython


def solve(n: cython.int, n_hosts: cython.int, time: cython.double[::1],
          value: cython.double[::1], choice: cython.Py_ssize_t[::1],
          before: cython.double[::1]) -> float:
    """Fill value[S] and choice[m * 2 ** n + S]; the best bottleneck.

    :param time: time_m(T) at m * 2 ** n + T, inf where T does not fit.
    :param before: scratch of 2 ** n.
    """
    with cython.nogil:
        best = fill(n, n_hosts, time, value, choice, before)
    return best


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fill(n: cython.int, n_hosts: cython.int, time: cython.double[::1],
         value: cython.double[::1], choice: cython.Py_ssize_t[::1],
         before: cython.double[::1]) -> cython.double:
    full: cython.Py_ssize_t = 1
    full <<= n
    for s in range(full):
        value[s] = time[s]
        choice[s] = s
    for m in range(1, n_hosts):
        for s in range(full):
            before[s] = value[s]
        for s in range(full):
            best = max(before[s], time[m * full])
            chosen = 0
            t = s
            while t > 0:
                mine = time[m * full + t]
                if mine < best:
                    rest = before[s ^ t]
                    if rest < best:
                        best = max(mine, rest)
                        chosen = t
                t = (t - 1) & s
            value[s] = best
            choice[m * full + s] = chosen
    return value[full - 1]
