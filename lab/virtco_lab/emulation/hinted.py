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
import itertools
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
from virtco_lab.sim.figures import samples

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


_BOTH = ('simulated', 'measured')


def _table(first: str, series: Sequence[str], exact: str,
           *columns: tuple[str, samples.Cell]) -> samples.Table:
    """Build the table of CCTs over those with exact hints.

    :param series: series of the columns; the first two are drawn.
    :param exact: setting with exact hints.
    :param columns: further columns.
    """
    over = {name: samples.ratio(name, name, exact) for name in series}
    return samples.by_setting(
        first, [*((name, samples.shown(its)) for name, its in over.items()),
                *columns],
        samples.averages('bars', 'CCT over that with exact hints', first,
                         'ratio', dict(zip(_BOTH, over.values()))))


_BY_HINTS = _table(
    'hints', _BOTH, 'exact',
    ('off %', lambda found, setting: round(100 * statistics.fmean(
        map(abs, found.of(setting, 'off'))), 1)),
    ('worst off %', lambda found, setting: round(100 * max(
        found.of(setting, 'off'), key=abs), 1)))
_BY_CLAIM = _table('claim / truth', [
    f'{whose}, {how}' for whose in ('his', 'others') for how in _BOTH], '1')


def _figure(name: str, title: str, settings: Mapping[str, str],
            table: samples.Table, options: extent.Options) -> outcome.Outcome:
    """Measure CCTs with hints of several kinds.

    :param settings: settings by their headings.
    """
    if options.short:
        settings = dict(itertools.islice(settings.items(), 2))
    runs = run(list(settings.values()), options)
    found = samples.Samples(options.seeds)
    for heading, setting in settings.items():
        for seed in options.seeds:
            found.add(heading, _numbers(runs[setting, seed], misled.liar(
                misled.workload(seed, options.scale))), 0.0)
    columns, rows, panels = table(found)
    every, scale = list(runs.values()), options.scale
    return outcome.Outcome(
        f'emulated-{name}', f'{title}, on the emulated testbed',
        tuple(columns), tuple(map(tuple, rows)), tuple(panels), (
            f'{scale.n_hosts} hypervisors at '
            f'{units.format_rate(scale.rate_bps)}, {misled.N_COFLOWS} '
            f'coflows, {len(options.seeds)} seed(s), mean ± standard '
            f'deviation. Policing forgives {_TOLERANCE:.0%}. Each number is '
            'over that of the same seed with exact hints. "off" is the mean '
            'over the seeds of the absolute distance of a run\'s measured '
            'mean CCT from the simulated one.',
            'The simulator has the controller\'s own code, a report of each '
            f'host every {_TIMING.report_s:g} s like the testbed, and rates '
            f'that are in force {_TIMING.delay_s:g} s after they are '
            'computed. A run is repeated by the rule of the test cases.',
            f'All {len(every)} runs: {reproduce.agreement(every)}'),
        (*reproduce.worst_unmet(every), *reproduce.mean_unmet(every)), {
            'run columns': ['expected_s', 'measured_s', 'told_s', 'load'],
            'runs': {f'{one.setting} / {one.seed}': [
                [round(value, 4) for value in values] for values in (
                    one.expected_s, one.ccts_s,
                    [at_s for at_s in one.told_s if at_s is not None],
                    (one.waited, one.busy, one.tries))] for one in every}})


def _numbers(one: Run, liar: int) -> dict[str, float]:
    """Return mean CCTs of a run, simulated and measured.

    :param liar: index of the coflow whose tenant may lie.
    """
    numbers = {'off': one.off}
    for name, ccts_s in zip(_BOTH, (one.expected_s, one.ccts_s)):
        others_s = [*ccts_s[:liar], *ccts_s[liar + 1:]]
        numbers |= {name: statistics.fmean(ccts_s),
                    f'his, {name}': ccts_s[liar],
                    f'others, {name}': statistics.fmean(others_s)}
    return numbers


_OVER = 'over that with exact ones'
FIGURES: dict[str, extent.Figure] = {
    name: functools.partial(_figure, name, title, settings, table)
    for name, title, settings, table in (
        ('liars', 'CCT when one tenant lies, over that when he does not', {
            f'{factor:g}': 'exact' if factor == 1 else f'lie {factor:g}'
            for factor in misled.FACTORS}, _BY_CLAIM),
        *((name, f'{title} {_OVER}', dict(zip(its, its)), _BY_HINTS)
          for name, title, its in (
              ('wrong-hints', 'Mean CCT with wrong hints', misled.SPOILS),
              ('late-hints', 'Mean CCT with late hints', misled.LATE),
              ('unknown-sizes', 'Mean CCT of coflows whose sizes nobody '
               'says', misled.UNSIZED))))}
