# SPDX-License-Identifier: Apache-2.0

"""Mappings of processes to VMs: topology mapping (RPCA section II-C).

Tasks send each other ``volumes[i, j]`` bytes, and themselves none; task i runs
on member ``mapping[i]``. A machine sends one message at a time and receives
one at a time, so the time of an exchange is the time of its busiest port. The
heuristic is the paper's, the search improves it by swaps, and a lower bound
limits the possible gain.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import itertools

import numpy as np
from numpy import typing as npt
import scipy

from virtco import exception
from virtco import units
from virtco.advise import kernels

Matrix = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: Every mapping of so few tasks is tried: 5,040.
MOST_ENUMERATED = 7
# The bound holds after any number of them.
_MOST_MATCHINGS = 6
_FEW_COLUMNS = 64
#: Messages and ports that a search looks at; 50 ms.
WORK = 40_000_000


@dataclasses.dataclass(frozen=True)
class Paths:
    """Rates and latencies of the paths between members.

    :ivar rates_bps: float array of shape (n, n), positive, infinite inside a
        machine.
    :ivar latency_s: likewise; 0 inside a machine.
    :ivar machines: number of each member's machine, shape (n,).
    """

    rates_bps: Matrix
    latency_s: Matrix
    machines: Indices

    @functools.cached_property
    def slowness(self) -> Matrix:
        """Seconds of a byte; 0 inside a machine."""
        return units.BITS_PER_BYTE / self.rates_bps

    def finite_bps(self) -> Matrix:
        """Limit the rates inside a machine to 10 times the largest other rate.
        """
        finite = self.rates_bps[np.isfinite(self.rates_bps)]
        return np.minimum(self.rates_bps, 10 * float(finite.max(initial=1.0)))


@dataclasses.dataclass(frozen=True, slots=True)
class Mapping:
    """Assignment of tasks to members with its predicted time.

    :ivar order: member of each task.
    :ivar bound_s: no mapping is faster.
    """

    name: str
    order: tuple[int, ...]
    predicted_s: float
    bound_s: float

    @property
    def gap(self) -> float:
        """Relative excess of the prediction over the bound, 0 or more."""
        if self.predicted_s <= self.bound_s:
            return 0.0
        return (self.predicted_s / self.bound_s - 1 if self.bound_s > 0
                else np.inf)


def greedy(volumes: Matrix, rates_bps: Matrix) -> Indices:
    """Map the heaviest task to the best connected machine, and so on.

    Heaviest neighbours then go to the best neighbours (RPCA section II-C).
    Return the member of each task, shape (n_tasks,).
    """
    n = len(volumes)
    volume, rate = volumes + volumes.T, rates_bps + rates_bps.T
    machine = np.zeros(n, np.int64)
    task = int(np.argmax(volume.sum(axis=0)))
    place = int(np.argmax(rate.sum(axis=0)))
    open_task, open_place = np.ones(n, bool), np.ones(n, bool)
    to_tasks, to_places = np.zeros(n), np.zeros(n)
    for _ in range(n):
        machine[task] = place
        open_task[task] = open_place[place] = False
        # Weight of each open vertex towards those that are mapped.
        to_tasks += volume[task]
        to_places += rate[place]
        task = int(np.argmax(np.where(open_task, to_tasks, -np.inf)))
        place = int(np.argmax(np.where(open_place, to_places, -np.inf)))
    return machine


def each_s(volumes: Matrix, order: Indices, rates_bps: Matrix,
           latency_s: Matrix) -> Matrix:
    """Compute the time of every message, in s, shape (n_tasks, n_tasks)."""
    both = np.ix_(order, order)
    with np.errstate(divide='ignore', invalid='ignore'):
        found: Matrix = np.where(
            volumes > 0, latency_s[both] + units.BITS_PER_BYTE * volumes
            / rates_bps[both], 0.0)
    return found


def mapped_s(volumes: Matrix, order: Indices, paths: Paths) -> float:
    """Return the time of an exchange: that of its busiest port, in s."""
    return float(ports_s(volumes, np.asarray(order), paths).max())


def slowest_s(exchanges: Sequence[Matrix], order: Indices, paths: Paths
              ) -> float:
    """Return the time of the longest of several exchanges, in seconds."""
    return max(mapped_s(volumes, order, paths) for volumes in exchanges)


def ports_s(volumes: Matrix, order: Indices, paths: Paths) -> Matrix:
    """Compute the busy seconds of all machines, out and then in."""
    tasks, peers = np.nonzero(volumes)
    ends = order[tasks], order[peers]
    took_s = paths.latency_s[ends] + paths.slowness[ends] * volumes[tasks,
                                                                    peers]
    n_machines = int(paths.machines.max()) + 1
    return np.concatenate([np.bincount(
        paths.machines[end], took_s, n_machines) for end in ends]).astype(
            np.float64)


def sent_s(volumes: Matrix, order: Indices, rates_bps: Matrix,
           latency_s: Matrix) -> float:
    """Compute when the slowest task has sent all of its messages, in s."""
    return float(each_s(volumes, order, rates_bps, latency_s)
                 .sum(axis=1).max())


def _ports(volumes: Matrix, orders: Indices, paths: Paths) -> Matrix:
    """Compute :func:`ports_s` for several orders.

    :param orders: shape (n_orders, n_tasks); the result has a row for each.
    """
    ends = orders[:, :, None], orders[:, None, :]
    times = (paths.slowness[ends] * volumes
             + paths.latency_s[ends] * (volumes > 0))
    return _busy(times.sum(axis=2), times.sum(axis=1),
                 paths.machines[orders])


def _busy(out_s: Matrix, in_s: Matrix, at: Indices) -> Matrix:
    """Add up tasks' seconds by their machines, for several orders."""
    n_machines = int(at.max()) + 1
    bins = (at + np.arange(len(at))[:, None] * n_machines).ravel()
    return np.concatenate([
        np.bincount(bins, times.ravel(), len(at) * n_machines).reshape(
            len(at), n_machines) for times in (out_s, in_s)], axis=1)


def search(volumes: Matrix, paths: Paths, start: Indices, n_fixed: int = 0,
           work: int = WORK) -> Indices:
    """Swap tasks to relieve the busiest port, until no swap does.

    Mappings are compared by their busiest port, and by the others where that
    is the same: of several equal bottlenecks each is worth relieving.

    :param n_fixed: so many first tasks stay where they are.
    :param work: messages and ports that are looked at, at most.
    """
    order = np.array(start)
    peers = _peers(volumes)
    ports = ports_s(volumes, order, paths)
    queue, queued = np.zeros((2, len(order)), np.int64)
    kernels.relieve(
        order, n_fixed, *peers, paths.machines,
        np.ascontiguousarray(paths.slowness),
        np.ascontiguousarray(paths.latency_s), ports, np.zeros_like(ports),
        queue, queued, work)
    return order


def _peers(volumes: Matrix) -> tuple[Indices, Indices, Matrix, Matrix]:
    """Return where each task's peers begin, the peers, bytes to and from them.
    """
    tasks, peers = map(np.ascontiguousarray, np.nonzero(
        (volumes > 0) | (volumes.T > 0)))
    return (np.searchsorted(tasks, np.arange(len(volumes) + 1)), peers,
            volumes[tasks, peers], volumes[peers, tasks])


def enumerate_all(exchanges: Sequence[Matrix], paths: Paths) -> Indices:
    """Find the best of all mappings for the slowest of several exchanges.

    There are at most :data:`MOST_ENUMERATED` tasks.
    """
    orders = np.array(list(itertools.permutations(range(
        len(paths.machines)))))
    took_s = [_ports(volumes, orders, paths).max(axis=1)
              for volumes in exchanges]
    best: Indices = orders[int(np.argmin(np.max(took_s, axis=0)))]
    return best


def lower_bound_s(volumes: Matrix, paths: Paths) -> float:
    """Return a lower bound on the time of any mapping, in seconds.

    A task on a member sends its largest messages over the member's fastest
    paths at best, and likewise receives; a machine is busy at least as long as
    each of its tasks. Which tasks may stand where below a time is a matching;
    the least time with a perfect one is the bound.
    """
    n = len(volumes)
    if n < 2:
        return 0.0
    least = np.maximum(
        _at_least(volumes, paths.slowness, paths.latency_s),
        _at_least(volumes.T, paths.slowness.T, paths.latency_s.T))
    # Each task stands somewhere, and on each member stands one.
    low_s = max(float(least.min(axis=1).max()), float(least.min(axis=0).max()))
    high_s = float(least.max())
    for trial_s in itertools.chain([low_s], (
            (low_s + high_s) / 2 for _ in range(_MOST_MATCHINGS))):
        matched = scipy.sparse.csgraph.maximum_bipartite_matching(
            scipy.sparse.csr_matrix(least <= trial_s), perm_type='column')
        if (matched < 0).any():
            low_s = max(low_s, float(least[least > trial_s].min()))
        elif trial_s == low_s:
            break
        else:
            high_s = float(least[least <= trial_s].max())
    return low_s


def _at_least(volumes: Matrix, slowness: Matrix,
              latency_s: Matrix) -> Matrix:
    """Bound a task's port time on a member, shape (n_tasks, n_members)."""
    n = len(volumes)
    others = ~np.eye(n, dtype=bool)
    largest = -np.sort(-np.where(others, volumes, 0.0), axis=1)[:, :n - 1]
    # Sparse volumes leave few columns.
    largest = largest[:, :max(1, int((largest > 0).sum(axis=1).max()))]
    width = largest.shape[1]
    fastest, near_s = (_least_of(one[others].reshape(n, n - 1), width)
                       for one in (slowness, latency_s))
    waits = np.concatenate([np.zeros((n, 1)), near_s.cumsum(axis=1)], axis=1)
    found: Matrix = (_product(largest, fastest)
                     + waits[:, (largest > 0).sum(axis=1)].T)
    return found


def _product(left: Matrix, right: Matrix) -> Matrix:
    """Compute ``left @ right.T``, without BLAS where the columns are few.

    Threads of BLAS wait for more work at the cost of others on this machine.
    """
    found: Matrix = (np.einsum('ik,jk->ij', left, right)
                     if left.shape[1] <= _FEW_COLUMNS else left @ right.T)
    return found


def _least_of(rows: Matrix, width: int) -> Matrix:
    """Return the ``width`` smallest values of each row, ascending."""
    if width < rows.shape[1]:
        rows = np.partition(rows, width, axis=1)[:, :width]
    found: Matrix = np.sort(rows, axis=1)
    return found


def advise(volumes: Matrix, paths: Paths, work: int = WORK
           ) -> tuple[Mapping, ...]:
    """Compute mappings with their times, best first.

    ``rank`` is each task on the member of its number, ``greedy`` the paper's,
    ``search`` the better of both after swaps, ``optimum`` the best of all
    where these are few.

    :param work: work of the search, as there.
    :raises virtco.exception.Invalid: where tasks and members differ.
    """
    n = len(paths.machines)
    if volumes.shape != (n, n):
        raise exception.Invalid(
            field='tm', value=f'{len(volumes)} rows',
            limit=f'{n} rows, one for each member')
    orders = {'rank': np.arange(n),
              'greedy': greedy(volumes, paths.finite_bps())}
    begin = min(orders.values(), key=lambda order: mapped_s(
        volumes, order, paths))
    bound_s = lower_bound_s(volumes, paths)
    if n <= MOST_ENUMERATED:
        orders['optimum'] = enumerate_all([volumes], paths)
        bound_s = mapped_s(volumes, orders['optimum'], paths)
    else:
        orders['search'] = search(volumes, paths, begin, work=work)
    return ranked(orders, lambda order: mapped_s(volumes, order, paths),
                  bound_s)


def ranked(orders: dict[str, Indices], took_s: Callable[[Indices], float],
           bound_s: float) -> tuple[Mapping, ...]:
    """Rank mappings by their predicted time, best first."""
    found = [Mapping(name, tuple(order.tolist()), took_s(order), bound_s)
             for name, order in orders.items()]
    return tuple(sorted(found, key=lambda one: one.predicted_s))
