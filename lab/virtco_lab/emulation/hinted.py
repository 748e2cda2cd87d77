# SPDX-License-Identifier: Apache-2.0

"""Wrong and late hints, unknown sizes and liars, with real TCP.

The coflows are :mod:`virtco_lab.emulation.misled`'s. Each measured time is
shown with the simulator's, which runs the controller's own code for the same
hosts and the same hints at the same time. The controller chooses the hosts in
the setting with exact hints; all other settings of a seed keep them: the
controller is asked to place VMs that run already, each on its own host only.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import json
import math
import pathlib
import statistics

from virtco import units
from virtco_lab.emulation import cases
from virtco_lab.emulation import measure
from virtco_lab.emulation import misled
from virtco_lab.emulation import reproduce
from virtco_lab.emulation import untold
from virtco_lab.emulation.display import Display
from virtco_lab.sim import controlled
from virtco_lab.sim.figures import outcome

#: Overrun of a claim that the controller tolerates by default.
_TOLERANCE = 0.5
_TIMING = controlled.Timing()


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """Result of one workload with one kind of hints.

    :ivar ccts_s: measured CCT of each coflow.
    :ivar expected_s: simulated CCT of each coflow.
    :ivar told_s: time at which the controller knew of each; None: never.
    """

    setting: str
    seed: int
    hosts: untold.Hosts
    ccts_s: tuple[float, ...]
    expected_s: tuple[float, ...]
    told_s: tuple[float | None, ...]
    waited: float
    busy: float
    tries: int = 1

    @property
    def off(self) -> float:
        """Relative difference of the measured mean CCT from the simulated."""
        return statistics.fmean(self.ccts_s) / statistics.fmean(
            self.expected_s) - 1


def run(settings: Sequence[str], options: reproduce.Options,
        display: Display) -> dict[tuple[str, int], Run]:
    """Run what is not in the directory yet.

    "exact" comes first: the others need its hosts.
    """
    path = options.directory / 'hinted.jsonl'
    found = {(one.setting, one.seed): one
             for one in _read(path, options.scale)}
    settings = sorted(settings, key=lambda setting: setting != 'exact')
    todo = [(seed, setting) for seed in options.seeds for setting in settings
            if (setting, seed) not in found]
    if todo:
        logs = options.directory / 'logs' / 'hinted'
        with untold.Bed(cases.hosts(options.scale, 0, False), options.scale,
                        logs, display) as bed:
            for seed, setting in todo:
                exact = found.get(('exact', seed))
                made = measure.repeat(functools.partial(
                    _once, bed, setting, seed, options.scale,
                    exact.hosts if exact is not None else None))
                found[setting, seed] = made
                with path.open('a') as file:
                    file.write(json.dumps(dataclasses.asdict(made)) + '\n')
                display.say(
                    f'seed {seed}, {setting}: mean CCT '
                    f'{statistics.fmean(made.ccts_s):.2f} s, simulated '
                    f'{statistics.fmean(made.expected_s):.2f} s '
                    f'({made.off:+.1%}, waited {made.waited:.1%}, try '
                    f'{made.tries})')
    return {(setting, seed): found[setting, seed] for setting in settings
            for seed in options.seeds}


def _read(path: pathlib.Path, scale: cases.Scale) -> list[Run]:
    """Read the measured runs of a file, and simulate each again."""
    if not path.exists():
        return []
    rows = map(json.loads, path.read_text().splitlines())
    return [Run(**row | {
        'ccts_s': tuple(row['ccts_s']), 'told_s': tuple(row['told_s']),
        'expected_s': _expected(
            row['setting'], row['seed'], row['hosts'],
            [math.inf if at_s is None else at_s for at_s in row['told_s']],
            scale),
        'hosts': {name: tuple(its) for name, its in row['hosts'].items()}})
        for row in rows]


def _expected(setting: str, seed: int, hosts: Mapping[str, Sequence[str]],
              told_s: Sequence[float], scale: cases.Scale
              ) -> tuple[float, ...]:
    coflows = misled.workload(seed, scale)
    return misled.expect(coflows, misled.of_setting(setting, seed, coflows),
                         hosts, told_s, scale)


def _once(bed: untold.Bed, setting: str, seed: int, scale: cases.Scale,
          hosts: untold.Hosts | None) -> Run:
    coflows = misled.workload(seed, scale)
    sent = bed.send(coflows, misled.of_setting(setting, seed, coflows), hosts)
    return Run(setting, seed, sent.hosts, sent.ccts_s, _expected(
        setting, seed, sent.hosts, sent.told_s, scale), tuple(
            at_s if at_s < math.inf else None for at_s in sent.told_s),
        sent.usage.waited, sum(sent.usage.ran.values()))


def _title(n_seeds: int, scale: cases.Scale) -> tuple[str, ...]:
    return (
        f'{scale.n_hosts} hypervisors at '
        f'{units.format_rate(scale.rate_bps)}, {misled.N_COFLOWS} coflows, '
        f'{n_seeds} seed(s), mean ± standard deviation. Policing forgives '
        f'{_TOLERANCE:.0%}. Each number is over that of the same seed with '
        'exact hints. "off" is the mean over the seeds of the absolute '
        'distance of a run\'s measured mean CCT from the simulated one.',
        'The simulator has the controller\'s own code, a report of each host '
        f'every {_TIMING.report_s:g} s like the testbed, and rates that are '
        f'in force {_TIMING.delay_s:g} s after they are computed. A run is '
        'repeated by the rule of the test cases.')


def _by_setting(name: str, title: str, settings: Sequence[str],
                options: reproduce.Options, display: Display
                ) -> reproduce.Found:
    """Measure the mean CCT of all coflows over that with exact hints."""
    if options.short:
        settings = settings[:2]
    found = run(settings, options, display)
    rows, series = [], _Series()
    for setting in settings:
        its = [found[setting, seed] for seed in options.seeds]
        exact = [found['exact', seed] for seed in options.seeds]
        simulated = _ratios([one.expected_s for one in its],
                            [one.expected_s for one in exact])
        measured = _ratios([one.ccts_s for one in its],
                           [one.ccts_s for one in exact])
        series.add(setting, simulated, measured)
        rows.append((setting, outcome.shown(simulated),
                     outcome.shown(measured), round(100 * reproduce.mean_off(
                         its), 1), round(100 * reproduce.worst_off(its), 1)))
    return _found(f'emulated-{name}', title, (
        'hints', 'simulated', 'measured', 'off %', 'worst off %'), rows,
        series.panel('hints'), options, found)


def liars(options: reproduce.Options, display: Display) -> reproduce.Found:
    """Measure CCTs when one tenant lies, over those without the lie."""
    settings = {factor: 'exact' if factor == 1 else f'lie {factor:g}'
                for factor in misled.FACTORS}
    found = run(list(settings.values()), options, display)
    who = {seed: misled.liar(misled.workload(seed, options.scale))
           for seed in options.seeds}
    rows, series = [], _Series()
    for factor, setting in settings.items():
        cells: list[outcome.Cell] = []
        for is_his in (True, False):
            both = []
            for field in ('expected_s', 'ccts_s'):
                ours, honest = ([_part(getattr(found[name, seed], field),
                                       who[seed], is_his)
                                 for seed in options.seeds]
                                for name in (setting, 'exact'))
                both.append(_ratios(ours, honest))
            cells += map(outcome.shown, both)
            if is_his:
                series.add(f'{factor:g}', *both)
        rows.append((f'{factor:g}', *cells))
    return _found('emulated-liars', 'CCT when one tenant lies, over that when '
                  'he does not, on the emulated testbed',
                  ('claim / truth', 'his, simulated', 'his, measured',
                   'others, simulated', 'others, measured'), rows,
                  series.panel('claim / truth'), options, found)


_OVER = 'over that with exact ones, on the emulated testbed'
FIGURES: dict[str, reproduce.Figure] = {
    'wrong-hints': functools.partial(
        _by_setting, 'wrong-hints', f'Mean CCT with wrong hints {_OVER}',
        misled.SPOILS),
    'late-hints': functools.partial(
        _by_setting, 'late-hints', f'Mean CCT with late hints {_OVER}',
        misled.LATE),
    'unknown-sizes': functools.partial(
        _by_setting, 'unknown-sizes', 'Mean CCT of coflows whose sizes nobody '
        f'says {_OVER}', misled.UNSIZED),
    'liars': liars}


class _Series:
    """Bars of simulated and measured values, by name."""

    def __init__(self) -> None:
        self._bars: dict[str, tuple[list[float], list[float]]] = {}

    def add(self, name: str, simulated: list[float], measured: list[float]
            ) -> None:
        self._bars[name] = simulated, measured

    def panel(self, x_label: str) -> outcome.Panel:
        return outcome.Panel('bars', 'CCT over that with exact hints',
                             x_label, 'ratio', tuple(map(
                                 outcome.averaged, ('simulated', 'measured'),
                                 [tuple(self._bars)] * 2,
                                 zip(*self._bars.values()))))


def _found(name: str, title: str, columns: tuple[str, ...],
           rows: Sequence[tuple[outcome.Cell, ...]], panel: outcome.Panel,
           options: reproduce.Options, found: dict[tuple[str, int], Run]
           ) -> reproduce.Found:
    its = list(found.values())
    return reproduce.Found(outcome.Outcome(
        name, title, columns, tuple(rows), (panel,),
        (*_title(len(options.seeds), options.scale),
         f'All {len(its)} runs: {reproduce.mean_off(its):.1%} off in the '
         f'mean ({reproduce.MEAN_TOLERANCE:.0%} allowed), '
         f'{abs(reproduce.worst_off(its)):.1%} at most '
         f'({reproduce.WORST_TOLERANCE:.0%} allowed).'),
        tuple(_unmet(its))), (), {
            'runs': {f'{one.setting} / {one.seed}': _row(one)
                     for one in its}})


def _row(one: Run) -> list[list[float]]:
    """Round the values of a run for a record."""
    return [[round(value, 4) for value in values] for values in (
        one.expected_s, one.ccts_s,
        [at_s for at_s in one.told_s if at_s is not None],
        (one.waited, one.busy, one.tries))]


def _ratios(ours: Sequence[Sequence[float]],
            others: Sequence[Sequence[float]]) -> list[float]:
    """Return the ratio of the means for each seed."""
    return [statistics.fmean(one) / statistics.fmean(other)
            for one, other in zip(ours, others)]


def _part(values: Sequence[float], who: int, is_his: bool) -> list[float]:
    return [value for i, value in enumerate(values) if (i == who) == is_his]


def _unmet(runs: Sequence[Run]) -> list[str]:
    found = [f'{one.setting}, seed {one.seed}: {one.off:+.1%} off the '
             f'simulator, {reproduce.WORST_TOLERANCE:.0%} allowed'
             for one in runs if abs(one.off) > reproduce.WORST_TOLERANCE]
    off = reproduce.mean_off(runs)
    if off > reproduce.MEAN_TOLERANCE:
        found.append(f'{off:.1%} off in the mean, '
                     f'{reproduce.MEAN_TOLERANCE:.0%} allowed')
    return found
