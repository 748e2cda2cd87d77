# SPDX-License-Identifier: Apache-2.0

"""Wrong and late hints, unknown sizes and liars, with real TCP.

The coflows are :mod:`virtco_lab.emulation.misled`'s. Each measured time is
shown with the simulator's, which runs the controller's own code for the same
hosts and the same hints at the same time. The controller chooses the hosts in
the setting with exact hints; all other settings of a seed keep them: the
controller is asked to place VMs that run already, each on its own host only.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import math
import statistics

from virtco import units
from virtco_lab.emulation import cases
from virtco_lab.emulation import extent
from virtco_lab.emulation import measure
from virtco_lab.emulation import misled
from virtco_lab.emulation import reproduce
from virtco_lab.emulation import untold
from virtco_lab.sim import controlled
from virtco_lab.sim.figures import outcome

#: Overrun of a claim that the controller tolerates by default.
_TOLERANCE = 0.5
_TIMING = controlled.Timing()


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """Result of one workload with one kind of hints.

    :ivar rate_bps: rate of each uplink.
    :ivar ccts_s: measured CCT of each coflow.
    :ivar expected_s: simulated CCT of each coflow.
    :ivar told_s: time at which the controller knew of each; None: never.
    """

    setting: str
    seed: int
    n_hosts: int
    rate_bps: float
    hosts: untold.Hosts
    ccts_s: tuple[float, ...]
    expected_s: tuple[float, ...]
    told_s: tuple[float | None, ...]
    waited: float
    busy: float
    tries: int = 1

    @property
    def name(self) -> str:
        return f'{self.setting}, seed {self.seed}'

    @property
    def identity(self) -> measure.Identity:
        """Key in a book: setting, seed, number of hosts, uplink rate."""
        return self.setting, self.seed, self.n_hosts, self.rate_bps

    @property
    def off(self) -> float:
        """Relative difference of the measured mean CCT from the simulated."""
        return statistics.fmean(self.ccts_s) / statistics.fmean(
            self.expected_s) - 1


def run(settings: Sequence[str], options: extent.Options
        ) -> dict[tuple[str, int], Run]:
    """Run the cells that are not in the directory yet.

    "exact" comes first: the others need its hosts. Measured runs of before are
    simulated again.
    """
    scale = options.scale
    book = measure.Book(options.directory / 'hinted.jsonl', Run)
    book.update({key: dataclasses.replace(one, expected_s=_expected(
        one.setting, one.seed, one.hosts, one.told_s,
        cases.Scale(one.n_hosts, one.rate_bps))) for key, one in book.items()})
    settings = sorted(settings, key=lambda setting: setting != 'exact')
    todo = [(seed, setting) for seed in options.seeds for setting in settings
            if (setting, seed, *scale.identity) not in book]
    if todo:
        logs = options.directory / 'logs' / 'hinted'
        with untold.Bed(cases.bed(scale, logs), options.say) as bed:
            bed.wait_measured()
            for seed, setting in todo:
                exact = book.get(('exact', seed, *scale.identity))
                made = measure.repeat(functools.partial(
                    _once, bed, setting, seed, scale,
                    exact.hosts if exact is not None else None))
                book.add(made)
                options.say(
                    f'seed {seed}, {setting}: mean CCT '
                    f'{statistics.fmean(made.ccts_s):.2f} s, simulated '
                    f'{statistics.fmean(made.expected_s):.2f} s '
                    f'({made.off:+.1%}, waited {made.waited:.1%}, try '
                    f'{made.tries})')
    return {(setting, seed): book[setting, seed, *scale.identity]
            for setting in settings for seed in options.seeds}


def _expected(setting: str, seed: int, hosts: untold.Hosts,
              told_s: Sequence[float | None], scale: cases.Scale
              ) -> tuple[float, ...]:
    coflows = misled.workload(seed, scale)
    return misled.expect(
        coflows, misled.of_setting(setting, seed, coflows), hosts,
        [math.inf if at_s is None else at_s for at_s in told_s], scale)


def _once(bed: untold.Bed, setting: str, seed: int, scale: cases.Scale,
          hosts: untold.Hosts | None) -> Run:
    coflows = misled.workload(seed, scale)
    sent = bed.send(coflows, misled.of_setting(setting, seed, coflows), hosts)
    told_s = tuple(at_s if at_s < math.inf else None for at_s in sent.told_s)
    return Run(
        setting, seed, *scale.identity, sent.hosts, sent.ccts_s,
        _expected(setting, seed, sent.hosts, told_s, scale), told_s,
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
                options: extent.Options) -> outcome.Outcome:
    """Measure the mean CCT of all coflows over that with exact hints."""
    if options.short:
        settings = settings[:2]
    found = run(settings, options)
    bars = {setting: _ratios(found, setting, options.seeds)
            for setting in settings}
    its = {setting: [found[setting, seed] for seed in options.seeds]
           for setting in settings}
    return _shown(f'emulated-{name}', title, (
        'hints', 'simulated', 'measured', 'off %', 'worst off %'), [
            (setting, *map(outcome.shown, bars[setting]),
             round(100 * reproduce.mean_off(its[setting]), 1),
             round(100 * reproduce.worst_off(its[setting]), 1))
            for setting in settings], bars, options, list(found.values()))


def liars(options: extent.Options) -> outcome.Outcome:
    """Measure CCTs when one tenant lies, over those without the lie."""
    settings = {f'{factor:g}': 'exact' if factor == 1 else f'lie {factor:g}'
                for factor in misled.FACTORS}
    found = run(list(settings.values()), options)
    who = {seed: misled.liar(misled.workload(seed, options.scale))
           for seed in options.seeds}
    bars, others = ({factor: _ratios(
        found, setting, options.seeds,
        lambda seed, i, is_his=is_his: (  # type: ignore[misc]
            (i == who[seed]) == is_his))
        for factor, setting in settings.items()} for is_his in (True, False))
    rows = [(factor, *map(outcome.shown, bars[factor] + others[factor]))
            for factor in settings]
    return _shown('emulated-liars', 'CCT when one tenant lies, over that when '
                  'he does not, on the emulated testbed',
                  ('claim / truth', 'his, simulated', 'his, measured',
                   'others, simulated', 'others, measured'), rows, bars,
                  options, list(found.values()))


_OVER = 'over that with exact ones, on the emulated testbed'
FIGURES: dict[str, extent.Figure] = {
    'liars': liars, **{
        name: functools.partial(_by_setting, name, f'{title} {_OVER}',
                                settings)
        for name, title, settings in (
            ('wrong-hints', 'Mean CCT with wrong hints', misled.SPOILS),
            ('late-hints', 'Mean CCT with late hints', misled.LATE),
            ('unknown-sizes', 'Mean CCT of coflows whose sizes nobody says',
             misled.UNSIZED))}}


def _shown(name: str, title: str, columns: tuple[str, ...],
           rows: Sequence[tuple[outcome.Cell, ...]],
           bars: Mapping[str, list[list[float]]], options: extent.Options,
           runs: Sequence[Run]) -> outcome.Outcome:
    """Return a figure of ratios.

    :param bars: simulated and measured ratio of each seed, by setting.
    """
    return outcome.Outcome(
        name, title, columns, tuple(rows), (outcome.Panel(
            'bars', 'CCT over that with exact hints', columns[0], 'ratio',
            tuple(map(outcome.averaged, ('simulated', 'measured'),
                      [tuple(bars)] * 2, zip(*bars.values())))),),
        (*_title(len(options.seeds), options.scale),
         f'All {len(runs)} runs: {reproduce.agreement(runs)}'),
        (*reproduce.worst_unmet(runs), *reproduce.mean_unmet(runs)), {
            'run columns': ['expected_s', 'measured_s', 'told_s', 'load'],
            'runs': {f'{one.setting} / {one.seed}': [
                [round(value, 4) for value in values] for values in (
                    one.expected_s, one.ccts_s,
                    [at_s for at_s in one.told_s if at_s is not None],
                    (one.waited, one.busy, one.tries))] for one in runs}})


def _ratios(found: Mapping[tuple[str, int], Run], setting: str,
            seeds: Sequence[int],
            counts: Callable[[int, int], bool] = lambda seed, i: True
            ) -> list[list[float]]:
    """Return simulated and measured mean CCT over that with exact hints.

    :param counts: whether a coflow counts, by seed and index.
    :returns: two lists with a ratio for each seed.
    """
    def mean_s(name: str, seed: int, field: str) -> float:
        return statistics.fmean(
            cct_s for i, cct_s in enumerate(getattr(found[name, seed], field))
            if counts(seed, i))
    return [[mean_s(setting, seed, field) / mean_s('exact', seed, field)
             for seed in seeds] for field in ('expected_s', 'ccts_s')]
