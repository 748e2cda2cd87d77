# SPDX-License-Identifier: Apache-2.0

"""Errors in the printed papers, each with a counterexample that runs.

An instance is small enough to try every placement. Its programs are written
here as the paper prints them, independent of the planner's.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import itertools
import math
from typing import NamedTuple

import numpy as np
import scipy.optimize

from virtco import units
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import planner
from virtco_lab.sim import workloads

_UNBOUNDED = 3  # status of scipy's linprog
#: Servers of VirtCO's section 5.1.
_SERVERS = 18
_NEAR = 1e-6
#: Headings of the fields of an erratum but for the last.
COLUMNS = ('where', 'printed', 'counterexample', 'a run finds')


class Erratum(NamedTuple):
    """A statement of a paper and its counterexample.

    :ivar where: place in the paper.
    :ivar printed: the statement.
    :ivar example: the counterexample.
    :ivar found: result of a run of it.
    :ivar holds: whether the result refutes the statement.
    """

    where: str
    printed: str
    example: str
    found: str
    holds: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _Small:
    """VMs of one slot each on hosts of 1 byte/s each way.

    :ivar pinned: VM -> host.
    """

    slots: tuple[int, ...]
    n_vms: int
    flows: tuple[tuple[int, int, float], ...]
    pinned: dict[int, int] = dataclasses.field(default_factory=dict)

    def placements(self) -> Iterator[tuple[int, ...]]:
        """Yield all placements that fit."""
        for places in itertools.product(range(len(self.slots)),
                                        repeat=self.n_vms):
            if (all(places.count(m) <= n for m, n in enumerate(self.slots))
                    and all(places[j] == m for j, m in self.pinned.items())):
                yield places

    def cct_s(self, places: tuple[int, ...]) -> float:
        """Compute the CCT by VirtCO Eqs. (1) to (4)."""
        loads = np.zeros((2, len(self.slots)))
        for j, k, size in self.flows:
            if places[j] != places[k]:
                loads[0, places[j]] += size
                loads[1, places[k]] += size
        return float(loads.max())

    def least_s(self) -> float:
        return min(map(self.cct_s, self.placements()))


_Solve = Callable[[_Small], tuple[float, tuple[int, ...]]]

#: C1 of VirtCO's Fig. 1.
FIG_1_C1 = _Small((2, 2, 2), 3, ((0, 1, 5.0), (1, 2, 1.0), (2, 0, 2.0)))
#: Rounding the linked relaxation ends at 12.
LINKED = _Small((2, 3), 4, ((0, 3, 3.0), (1, 3, 3.0), (2, 1, 5.0),
                            (2, 3, 9.0)), {0: 1, 1: 0})
#: Rounding the relaxation with products of the slot rows ends at 17.
PRODUCTS = _Small((1, 2, 1), 3, ((0, 1, 8.0), (2, 1, 9.0)), {0: 0})
#: Has a placement without any traffic; finding it means to solve bin packing.
TWO_PAIRS = _Small((2, 2), 4, ((0, 1, 1.0), (2, 3, 1.0)))


#: Kind of a variable, and its indices.
_Name = tuple[object, ...]
_T: _Name = ('t',)


#: Coefficients of a linear program's row, and its bound.
_Row = tuple[dict[_Name, float], float]


def _minimise(cost: dict[_Name, float], at_most: list[_Row],
              equal: Sequence[_Row] = ()) -> scipy.optimize.OptimizeResult:
    """Minimise a sum of variables of at least 0; x is at most 1."""
    names = list(dict.fromkeys(
        name for row, _ in (*equal, *at_most) for name in row))
    dense = [[row.get(name, 0.0) for name in names]
             for row, _ in (*equal, *at_most, (cost, 0.0))]
    bounds = [bound for _, bound in (*equal, *at_most)]
    n = len(equal)
    return scipy.optimize.linprog(
        dense[-1], dense[n:-1], bounds[n:], dense[:n] or None,
        bounds[:n] or None, [(0, 1 if name[0] == 'x' else None)
                             for name in names], method='highs-ds')


def printed_status(small: _Small) -> int:
    """Solve problem (5) as printed; return the status of HiGHS."""
    hosts, flows = range(len(small.slots)), list(enumerate(small.flows))
    rows: list[_Row] = []
    for name in 'VW':
        # (5a), (5b)
        rows += [({(name, f, m): flow[2] for f, flow in flows}, 1.0)
                 for m in hosts]
        # (5c), (5d)
        rows += [({**{(name, f, m): 1.0 for m in hosts}, ('alpha',): -1.0},
                  0.0) for f, _ in flows]
    return int(_minimise({('alpha',): -1.0}, rows).status)


def _placed(small: _Small, rows: list[_Row]) -> tuple[float, tuple[int, ...]]:
    """Solve rows with (3c) and (3d), where every VM takes one slot.

    :returns: the optimum and each VM's host of the largest share, which is
        the rounding of Algorithm 2.
    """
    vms, hosts = range(small.n_vms), range(len(small.slots))
    equal: list[_Row] = [({('x', j, m): 1.0 for m in hosts}, 1.0)
                         for j in vms]
    equal += [({('x', *pair): 1.0}, 1.0) for pair in small.pinned.items()]
    fitting: list[_Row] = [({('x', j, m): 1.0 for j in vms}, float(slots))
                           for m, slots in enumerate(small.slots)]
    result = _minimise({_T: 1.0}, fitting + rows, equal)
    # The shares come first, VM by VM.
    share = result.x[:len(vms) * len(hosts)].reshape(len(vms), -1)
    return float(result.fun), tuple(map(int, share.argmax(axis=1)))


def linked(small: _Small) -> tuple[float, tuple[int, ...]]:
    """Solve (5) with (3c), (3d), V >= x_j - x_k and W >= x_k - x_j."""
    rows: list[_Row] = []
    for m, (name, way) in itertools.product(
            range(len(small.slots)), (('V', 1.0), ('W', -1.0))):
        rows.append(({_T: -1.0, **{(name, f, m): flow[2] for f, flow
                                   in enumerate(small.flows)}}, 0.0))
        rows += [({('x', j, m): way, ('x', k, m): -way, (name, f, m): -1.0},
                  0.0) for f, (j, k, _) in enumerate(small.flows)]
    return _placed(small, rows)


def with_products(small: _Small) -> tuple[float, tuple[int, ...]]:
    """Solve the relaxation with z = x_j x_k and products of the slot rows."""
    rows: list[_Row] = []
    vms = range(small.n_vms)
    for m, slots in enumerate(small.slots):
        for way in (0, 1):
            row = collections.defaultdict[_Name, float](float, {_T: -1.0})
            for flow in small.flows:
                row['x', flow[way], m] += flow[2]
                row['z', *sorted(flow[:2]), m] -= flow[2]
            rows.append((row, 0.0))
        # For at most two slots this has z <= x in it.
        rows += [({**{('z', *sorted((j, k)), m): 1.0 for j in vms if j != k},
                   ('x', k, m): 1.0 - slots}, 0.0) for k in vms]
    return _placed(small, rows)


def fig_1(together: bool) -> float:
    """Compute Fig. 1's mean CCT: both coflows at once, or C1 first.

    C1 goes first in Algorithm 2.
    """
    both = (coflow.Coflow.from_flows('C1', 3, FIG_1_C1.flows),
            coflow.Coflow.from_flows('C2', 3, [(1, 2, 1), (2, 1, 2)]))
    rate_bps = float(units.BITS_PER_BYTE)
    problem = snapshot.PlacementProblem(
        hosts=tuple(cluster.Host(f'h{m}', (2.0,), rate_bps, rate_bps)
                    for m in range(3)),
        vms=tuple(cluster.Vm(f'vm{j}', (1.0,)) for j in range(3)),
        coflows=both)
    objective = snapshot.Objective.JOINT
    if not together:
        first = planner.plan(dataclasses.replace(problem, coflows=both[:1]),
                             objective=snapshot.Objective.ISOLATED)
        problem = dataclasses.replace(problem, vms=tuple(
            dataclasses.replace(vm, pinned=host)
            for vm, host in zip(problem.vms, first.hosts, strict=True)))
    return sum(planner.plan(problem, objective=objective).coflow_cct_s) / 2


def most_skew_gb(row: workloads.Application) -> float:
    """Compute the largest deviation that size and length admit, in GB.

    Flows of full length and empty ones; with at least ``width`` flows and
    ``width >= 2 size / length`` more flows only make it smaller.
    """
    size, length = (value / workloads.BYTES_PER_GB
                    for value in (row.size_bytes, row.length_bytes))
    count = max(row.width, 2 * size / length)
    return math.sqrt(size * length / count - (size / count) ** 2)


def _unbounded() -> Erratum:
    status = printed_status(FIG_1_C1)
    return Erratum(
        'VirtCO, problem (5)', 'LP (5) gives the least CCT of a coflow',
        'C1 of Fig. 1: V = W = 0 meets (5a) to (5d) for any alpha',
        'HiGHS: unbounded' if status == _UNBOUNDED
        else f'HiGHS: status {status}', status == _UNBOUNDED)


def _uniform() -> Erratum:
    least_s, best_s = linked(FIG_1_C1)[0], FIG_1_C1.least_s()
    return Erratum(
        'VirtCO, problem (5), with (3c), (3d) and V >= y_j - y_k added',
        'its optimum says how good a placement can be',
        'C1 of Fig. 1: the same share of every VM on each host cuts nothing',
        f'relaxation {least_s:.3g} s, best placement {best_s:g} s',
        least_s < _NEAR < best_s)


def _ratio(small: _Small, solve: _Solve, where: str, example: str) -> Erratum:
    _, places = solve(small)
    rounded_s, best_s = small.cct_s(places), small.least_s()
    return Erratum(
        where, 'Algorithm 2 ends at t <= 2 t_min', example,
        f'rounding {rounded_s:g} s, best placement {best_s:g} s: '
        f'{rounded_s / best_s:.4g} times', rounded_s > 2 * best_s)


def _no_ratio() -> Erratum:
    worst_s = max(map(TWO_PAIRS.cct_s, TWO_PAIRS.placements()))
    return Erratum(
        'VirtCO, Theorem 1', 'Algorithm 2 ends at t <= 2 t_min',
        'two pairs of VMs on two hosts of 2 slots: t_min = 0, and to find it '
        'is bin packing, so no polynomial method has any ratio unless P = NP',
        f'best placement {TWO_PAIRS.least_s():g} s, the worst {worst_s:g} s',
        TWO_PAIRS.least_s() == 0.0 < worst_s)


def _fig_1() -> Erratum:
    apart_s, joint_s = fig_1(False), fig_1(True)
    return Erratum(
        'VirtCO, Fig. 1d and Algorithm 1',
        'VirtCO reaches a mean CCT of 2.5 s in the example',
        'Algorithm 1 calls Algorithm 2 for C1 alone; C2 finds its VMs placed',
        f'as printed {apart_s:g} s, both coflows together {joint_s:g} s',
        np.allclose((apart_s, joint_s), (3.0, 2.5)))


def _skew() -> Erratum:
    impossible = [(row.name, row.skew_bytes / workloads.BYTES_PER_GB,
                   most_skew_gb(row)) for row in workloads.TABLE2
                  if row.skew_bytes / workloads.BYTES_PER_GB
                  > most_skew_gb(row)]
    return Erratum(
        'VirtCO, Table 2', 'skew is the standard deviation of the flows '
        '(Varys)', 'the largest deviation of flows with that sum and that '
        'largest flow, at least one flow per VM',
        '; '.join(f'{name}: {printed:g} GB printed, {most:.3g} GB at most'
                  for name, printed, most in impossible), len(impossible) == 3)


def _co_residence() -> Erratum:
    widest = max(row.width for row in workloads.TABLE2)
    return Erratum(
        'VirtCO, section 5.1', 'under Baseline no VMs are co-resident',
        f'{widest} VMs of one application on {_SERVERS} servers',
        f'{math.ceil(widest / _SERVERS)} VMs on some server',
        widest > _SERVERS)


def _background() -> Erratum:
    sent_bps = 60 * (5 + 20) / 2 * (1 + 400) / 2 * 1e6
    fabric_bps = _SERVERS * 1e9
    return Erratum(
        'VirtCO, section 5.1', 'background: 60 VMs, each to 5 to 20 others, 1 '
        'to 400 Mbit/s a pair', 'the means of both, times 60',
        f'{units.format_rate(sent_bps)} in a fabric of '
        f'{units.format_rate(fabric_bps)}', sent_bps > fabric_bps)


def _percent() -> Erratum:
    ours, theirs = 100 - 58.3, 100 - 41.6
    saved = 100 * (theirs - ours) / theirs
    return Erratum(
        'VirtCO, test case 1', 'SEBF-TA loses 16.7 % = 58.3 % - 41.6 %',
        'by the paper\'s own definition the speed-up is relative to the '
        'opponent\'s time: (58.4 - 41.7) / 58.4 of Baseline\'s',
        f'{saved:.1f} %', saved > theirs - ours)


def _skew_text() -> Erratum:
    return Erratum(
        'VirtCO, test case 6', '23.5 % below Baseline and 30.6 % below '
        'SEBF-TA at the least skew, where SEBF-TA loses 7.1 %',
        '30.6 - 23.5 = 7.1: who saves more against SEBF-TA than against '
        'Baseline finds SEBF-TA slower than Baseline',
        f'SEBF-TA would take {(100 - 23.5) / (100 - 30.6):.2f} of '
        'Baseline\'s time', (100 - 23.5) / (100 - 30.6) > 1)


def check() -> list[Erratum]:
    """Run every counterexample."""
    return [
        _unbounded(), _uniform(),
        _ratio(LINKED, linked, 'VirtCO, Theorem 1',
               'two hosts of 2 and 3 slots, four VMs, two of them placed; the '
               'linked relaxation rounded (cex-linkedLP-ratio2.4)'),
        _ratio(PRODUCTS, with_products, 'VirtCO, Theorem 1, with the '
               'relaxation mended', 'three hosts of 1, 2 and 1 slots, flows '
               'of 8 and 9 (cex-rlt-ratio2.125)'),
        _no_ratio(), _fig_1(), _skew(), _co_residence(), _background(),
        _percent(), _skew_text()]
