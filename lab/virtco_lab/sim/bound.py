# SPDX-License-Identifier: Apache-2.0

"""A lower bound on the mean CCT of any schedule at fixed placements.

A fluid schedule gives a coflow at each of its ports some rate at each moment;
the rates of a port never exceed its capacity. With p the time that coflow j
keeps a port busy alone, r its release and M the mean of the moments at which
its bits cross that port, two things hold for any such schedule:

* C_j >= M_j + p_j / 2, since even alone the bits take p_j;
* sum_S p_j M_j >= p(S) (min_S r + p(S) / 2) for any set S of the port's
  coflows, since none of their bits crosses before the first release.

(Goemans, Queyranne, Schulz, Skutella and Wang: Single machine scheduling
with release dates, SIAM J. Discrete Math. 15, 2002.) Without M they are linear
in the completion times C alone:

    sum_S p_j C_j >= p(S) (min_S r + p(S) / 2) + sum_S p_j^2 / 2.

The bound is the least mean of C_j - r_j under these cuts of all ports and
C_j - r_j >= max p_j. Cuts are added where the last answer violates them. For
one least release the worst set at a port is a prefix of its coflows by M, so
that the search for violated cuts is exact.
"""

from collections.abc import Iterator

import numpy as np
import scipy

from virtco import exception
from virtco.scheduling import fabric as fabric_model

#: Cuts that are violated by less, in parts of the mean time alone, are not
#: worth another round; leaving them out weakens the bound, never breaks it.
TOLERANCE = 1e-6
#: The Facebook trace takes 4.
MAX_ROUNDS = 50


def least_mean_cct_s(fabric: fabric_model.Fabric, release_s: np.ndarray,
                     max_rounds: int = MAX_ROUNDS) -> float:
    """Bound the mean CCT of any schedule of these coflows from below, in s.

    :param fabric: fabric with all flows whole, as it was laid out.
    :param release_s: time at which each coflow's flows may start, shape (C,).
    :param max_rounds: largest number of rounds of cuts; fewer give a weaker
        bound.
    :raises virtco.exception.Invalid: for a coflow at a port without capacity.
    """
    n_coflows = len(release_s)
    if n_coflows == 0:
        return 0.0
    owner = np.repeat(np.arange(n_coflows), np.diff(fabric.entry_ptr))
    cap = fabric.cap[fabric.port]
    if (cap <= 0).any():
        raise exception.Invalid(field='fabric', value='a port of 0 bit/s',
                                limit='a rate above 0 on every port in use')
    busy_s = fabric.load / cap
    alone_s = np.zeros(n_coflows)
    np.maximum.at(alone_s, owner, busy_s)
    by_port = np.argsort(fabric.port, kind='stable')
    ports = np.split(by_port, np.flatnonzero(
        np.diff(fabric.port[by_port])) + 1)
    cuts: list[_Cut] = []
    cct_s, bound_s = alone_s, float(alone_s.mean())
    least_s = TOLERANCE * bound_s
    for _ in range(max_rounds):
        found = [
            cut for entries in ports for cut in _violated(
                owner[entries], busy_s[entries], release_s[owner[entries]],
                cct_s, least_s)]
        if not found:
            break
        cuts += found
        cct_s, proven_s = _solved(alone_s, cuts)
        bound_s = max(bound_s, proven_s)
    return bound_s


#: Coflows, their coefficients, and the least value of the sum.
_Cut = tuple[np.ndarray, np.ndarray, float]


def _violated(owner: np.ndarray, busy_s: np.ndarray, release_s: np.ndarray,
              cct_s: np.ndarray, least_s: float) -> Iterator[_Cut]:
    """Yield the most violated cuts of one port, on disjoint coflow sets."""
    mean_busy_s = release_s + cct_s[owner] - busy_s / 2
    order = np.argsort(mean_busy_s, kind='stable')
    worst = []
    for first_s in np.unique(release_s):
        late = order[release_s[order] >= first_s]
        total_s = np.cumsum(busy_s[late])
        short_s = (first_s + total_s / 2
                   - np.cumsum(busy_s[late] * mean_busy_s[late]) / total_s)
        end = int(short_s.argmax())
        if short_s[end] > least_s:
            worst.append((short_s[end], first_s, late[:end + 1]))
    worst.sort(key=lambda found: found[0], reverse=True)
    taken = np.zeros(len(owner), bool)
    for _, first_s, chosen in worst:
        if taken[chosen].any():
            continue
        taken[chosen] = True
        share = busy_s[chosen] / busy_s[chosen].sum()
        yield owner[chosen], share, float(
            first_s + busy_s[chosen].sum() / 2
            + share @ (busy_s[chosen] / 2 - release_s[chosen]))


def _solved(alone_s: np.ndarray, cuts: list[_Cut]) -> tuple[np.ndarray, float]:
    """Solve the linear program over the CCTs, with the cuts found so far.

    :returns: the CCTs, shape (C,), and the bound that its dual proves.
    """
    owner, share, least_s = zip(*cuts)
    lengths = [len(coflows) for coflows in owner]
    n_coflows = len(alone_s)
    matrix = scipy.sparse.csr_array(
        (np.concatenate(share), (np.repeat(np.arange(len(lengths)), lengths),
                                 np.concatenate(owner))),
        (len(lengths), n_coflows))
    result = scipy.optimize.linprog(
        np.full(n_coflows, 1 / n_coflows), A_ub=-matrix,
        b_ub=-np.array(least_s), bounds=np.column_stack((
            alone_s, np.full(n_coflows, np.inf))), method='highs')
    if result.x is None:  # HiGHS gave up; the bound so far holds
        return alone_s, 0.0
    return result.x, _proven_s(matrix, np.array(least_s), alone_s,
                               -result.ineqlin.marginals)


def _proven_s(matrix: 'scipy.sparse.csr_array', least_s: np.ndarray,
              alone_s: np.ndarray, prices: np.ndarray) -> float:
    """Compute the bound on the mean CCT that prices of the cuts prove.

    :param matrix: share of each coflow in each cut, shape (n_cuts, C).
    :param prices: any, shape (n_cuts,); they are lowered until none is below
        0 and no coflow is charged more than its part of the mean.
    """
    prices = np.maximum(prices, 0)
    charged = matrix.T @ prices
    gained_s = prices @ least_s - charged @ alone_s
    return float(alone_s.mean() + gained_s / max(
        1.0, len(alone_s) * charged.max()))
