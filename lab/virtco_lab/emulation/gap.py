# SPDX-License-Identifier: Apache-2.0

"""Distance of schemes from the optimum with real TCP, and its parts.

A few coflows on a few hosts start together. The least mean CCT of any
placement and any schedule is proven (:mod:`virtco_lab.sim.joint_optimum`).
What a scheme takes over that is a product of three factors:

* *placement*: the best schedule where it placed the VMs, over the optimum;
* *order*: the fluid model of its rates there, over that best schedule;
* *enforcement*: the measured time, over that model.
"""

from collections.abc import Collection
from collections.abc import Sequence
import concurrent.futures
import dataclasses
import math

import numpy as np

from virtco import exception
from virtco import units
from virtco_lab.emulation import cases
from virtco_lab.emulation import extent
from virtco_lab.emulation import measure
from virtco_lab.emulation import prediction
from virtco_lab.emulation import scenario
from virtco_lab.sim import joint_optimum
from virtco_lab.sim import schemes
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import record

_SLOTS = 4
#: With more hosts there are too many assignments of a coflow to list.
_MOST_HOSTS = 8
_PARTS = ('placement', 'order', 'enforcement')
_RATIOS = (*_PARTS, 'measured / optimum')


class Scale(cases.Scale):
    """A testbed whose hosts have fewer slots."""

    __slots__ = ()

    @property
    def slots(self) -> int:
        return _SLOTS


@dataclasses.dataclass(frozen=True, slots=True)
class Seed:
    """Workload of one seed with its optimum.

    :ivar goodput_bps: payload rate of each host's cable.
    """

    groups: Sequence[scenario.Group]
    goodput_bps: dict[str, float]
    problem: joint_optimum.Problem
    optimum: joint_optimum.Optimum

    def best_mean_s(self, hosts: Sequence[Sequence[str]]) -> float:
        """Compute the mean CCT of the best schedule of a placement.

        :param hosts: host of each VM, by group.
        """
        index = {name: number for number, name in enumerate(self.goodput_bps)}
        return joint_optimum.best_mean_s(self.problem, [
            np.array([index[name] for name in names]) for names in hosts])


def gap(options: extent.Options) -> outcome.Outcome:
    """Measure the schemes, prove the optima, and take the ratios apart."""
    if options.n_hosts > _MOST_HOSTS:
        raise exception.Invalid(
            field='--hosts', value=options.n_hosts,
            limit=f'at most {_MOST_HOSTS}, for an optimum to be proven')
    scale = Scale(options.n_hosts, options.rate_bps)
    cell, = options.cells(cases.GAP)
    for seed in options.seeds:
        cases.check_room(cell, scale, seed)
    with concurrent.futures.ProcessPoolExecutor() as pool:
        solved = {seed: one for seed, one in zip(options.seeds, pool.map(
            solve, [scale] * len(options.seeds), options.seeds), strict=True)
            if one.optimum.mean_s > 0}
    if not solved:
        raise exception.Invalid(
            field='--seeds', value=record.shown_seeds(options.seeds),
            limit='a seed in which not all groups fit into hosts')
    runs = measure.run([cell], dataclasses.replace(
        options, seeds=tuple(solved)), scale)
    with concurrent.futures.ProcessPoolExecutor() as pool:
        parts = {name: list(pool.map(_parts, its, solved.values()))
                 for (_, name), its in runs.items()}
    ratios = {name: np.array([(*its, math.prod(its)) for its in every]).T
              for name, every in parts.items()}
    labels = tuple(schemes.get(name).label for name in ratios)
    return outcome.Outcome(
        'emulated-virtco-gap', 'Measured mean CCT over the proven optimum of '
        'placement and schedule', ('scheme', *_RATIOS, 'worst seed'), tuple(
            (label, *map(_shown, its), round(float(its[-1].max()), 2))
            for label, its in zip(labels, ratios.values(), strict=True)),
        (outcome.Panel(
            'bars', 'Parts of measured / optimum', 'scheme', 'ratio', tuple(
                outcome.Series(title, labels, tuple(
                    _mean(its[at]) for its in ratios.values()))
                for at, title in enumerate(_RATIOS)), log_y=True),),
        _notes(options, solved.values()), runs={
            'run columns': ['optimum_s', 'bound_s', *_PARTS],
            'runs': {f'{name} / {seed}': [
                round(value, 4) for value in (
                    solved[seed].optimum.mean_s, solved[seed].optimum.bound_s,
                    *its)]
                for name, every in parts.items()
                for seed, its in zip(solved, every, strict=True)}})


def solve(scale: cases.Scale, seed: int) -> Seed:
    """Draw the workload of a seed, and prove its optimum."""
    cell, = cases.cells(cases.GAP, (), scale)
    free, its_groups = cases.prepare(cell, scale, seed)
    goodput_bps = {host.name: scenario.goodput_bps(host.egress_bps)
                   for host in free}
    rates_bps = np.array(list(goodput_bps.values()))
    problem = joint_optimum.Problem(
        [joint_optimum.bytes_between(group.coflows[0])
         for group in its_groups], rates_bps, rates_bps,
        np.array([round(host.free[0]) for host in free]))
    return Seed(its_groups, goodput_bps, problem,
                 joint_optimum.solve(problem))


def _parts(run: measure.Run, of: Seed) -> tuple[float, float, float]:
    """Return the factors of placement, order and enforcement."""
    placed_s = of.best_mean_s(run.hosts)
    expected_s = float(np.mean(prediction.simulate_as_taken(
        [prediction.Placed(group.coflows[0], hosts)
         for group, hosts in zip(of.groups, run.hosts, strict=True)],
        of.goodput_bps, schemes.get(run.scheme).order,
        [measured_s for *_, measured_s in run.coflows])))
    return (placed_s / of.optimum.mean_s, expected_s / placed_s,
            run.measured_s / expected_s)


def _mean(ratios: np.ndarray) -> float:
    """Return the geometric mean: the parts' multiply to the whole's."""
    return math.exp(float(np.log(ratios).mean()))


def _shown(ratios: np.ndarray) -> str:
    """Format the geometric mean with its 95 % interval."""
    half = outcome.half_interval(np.log(ratios).tolist())
    mean = _mean(ratios)
    if not math.isfinite(half):
        return f'{mean:.3f}'
    return (f'{mean:.3f} [{mean * math.exp(-half):.3f}, '
            f'{mean * math.exp(half):.3f}]')


def _notes(options: extent.Options, solved: Collection[Seed]
           ) -> tuple[str, ...]:
    gaps = [one.optimum.mean_s / one.optimum.bound_s - 1 for one in solved]
    proven = sum(gap <= joint_optimum.TOLERANCE + 1e-9 for gap in gaps)
    return (
        f'{options.n_hosts} hypervisors of {_SLOTS} slots at '
        f'{units.format_rate(options.rate_bps)}; background takes a part of '
        'the slots and 10 to 70 % of each cable. Three to five coflows of '
        f'five to three VMs start together; {len(solved)} seed(s) in which '
        'not all of them fit into hosts, geometric means with 95 % intervals.',
        'The optimum is over all placements and all fluid schedules at the '
        f'cables\' payload rates, proven within {joint_optimum.TOLERANCE:.1%} '
        f'for {proven} of {len(gaps)} seeds'
        + ('.' if proven == len(gaps) else
           f'; the widest interval is {max(gaps):.1%}.'),
        'A batch is placed in one go by the same planner outside of the '
        'controller. '
        'Order is the fluid model of the scheme\'s rates where its VMs are, '
        'over the best schedule there; enforcement has the 2 % that the '
        'controller leaves to other traffic, TCP, and what the controller '
        'hears late. TCP\'s shares are another model: max-min by flow.')


FIGURES: dict[str, extent.Figure] = {cases.GAP: gap}
