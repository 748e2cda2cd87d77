# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Wrong hints, unknown sizes and liars, with real TCP.

Coflows of 1 to 3 senders and as many receivers start on the hypervisors, one
a second on average, with log-normal sizes (sigma 1); all of them need half of
what the links can carry. The VMs are there before; each coflow is a project of
its own. Beside each measured time stands the simulator's, for the same hosts
and claims. Late hints are not here: a hint comes with the VM's placement, and
the edge modules' ports confirm it even when Nova's notifications do not come.
"""

from collections.abc import Sequence
import dataclasses
import functools
import itertools
import json
import pathlib
import statistics
import typing
import uuid

import numpy as np

from virtco import hints
from virtco.lab.emulation import cases
from virtco.lab.emulation.display import Display
from virtco.lab.emulation import measure
from virtco.lab.emulation import nova_client
from virtco.lab.emulation import planned_cloud
from virtco.lab.emulation import prediction
from virtco.lab.emulation import reproduce
from virtco.lab.emulation import runner
from virtco.lab.emulation import scenario
from virtco.lab.emulation import starvation
from virtco.lab.emulation import testbed as testbed_module
from virtco.lab.emulation import traffic
from virtco.lab.emulation import transfers
from virtco.lab.sim import claims
from virtco.lab.sim.figures import outcome
from virtco.model import coflow as coflow_model
from virtco.model import live
from virtco import units

N_COFLOWS = 6
GAP_S = 1.0
LOAD = 0.5
#: Overrun that the controller forgives, its default.
TOLERANCE = 0.5
#: What the liar claims, over the truth.
FACTORS = (0.3, 1.0, 3.0)
#: He has the largest coflow but so many.
_LARGER = 1
_SCHEME = scenario.Scheme('hinted', 'hinted', 'spread', 'mrtf')
_PORT = 5001
_SIGMA = 1.0
_UNKNOWN = 'unknown sizes'
SPOILS = ('exact', '50 % wrong', 'half of the truth', 'twice the truth',
          _UNKNOWN)


@dataclasses.dataclass(frozen=True, slots=True)
class Coflow:
    """A coflow and when it starts; bytes for the rate of the testbed."""

    coflow: coflow_model.Coflow
    start_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """One workload with one sort of hints.

    :ivar ccts_s: of each coflow, measured …
    :ivar expected_s: … and simulated, nothing for unknown sizes.
    """

    setting: str
    seed: int
    hosts: dict[str, tuple[str, ...]]
    ccts_s: tuple[float, ...]
    expected_s: tuple[float, ...]
    waited: float
    busy: float
    tries: int = 1


def workload(seed: int, scale: cases.Scale) -> list[Coflow]:
    """Coflows in the order of their starts."""
    rng = np.random.default_rng([seed, 14])
    starts_s = np.cumsum(rng.exponential(GAP_S, N_COFLOWS))
    mean_bytes = LOAD * GAP_S * scale.n_hosts * units.bps_to_bytes_per_s(
        scenario.goodput_bps(scale.rate_bps))
    sizes = rng.lognormal(0.0, _SIGMA, N_COFLOWS)
    sizes *= mean_bytes * N_COFLOWS / sizes.sum()
    made = []
    for number, (start_s, size_bytes) in enumerate(zip(starts_s, sizes)):
        n_src, n_dst = (int(n) for n in rng.integers(1, 4, 2))
        shares = rng.dirichlet(np.ones(n_src * n_dst))
        pairs = itertools.product(range(n_src), range(n_src, n_src + n_dst))
        made.append(Coflow(coflow_model.Coflow.from_flows(
            f'c{number}', n_src + n_dst, [
                (src, dst, max(1, round(float(size_bytes * share))))
                for (src, dst), share in zip(pairs, shares)], _PORT),
            float(start_s - starts_s[0])))
    return made


def liar(coflows: Sequence[Coflow]) -> int:
    """Index of his coflow."""
    order = sorted(range(len(coflows)),
                   key=lambda i: coflows[i].coflow.size_bytes)
    return order[-1 - _LARGER]


def factors(setting: str, seed: int, coflows: Sequence[Coflow]
            ) -> list[float]:
    """Claimed bytes over the truth."""
    rng = np.random.default_rng([seed, 15])
    if setting == '50 % wrong':
        return [float(rng.uniform(0.5, 1.5)) for _ in coflows]
    if setting.startswith('lie '):
        who = liar(coflows)
        return [float(setting[4:]) if i == who else 1.0
                for i in range(len(coflows))]
    usual = {'half of the truth': 0.5, 'twice the truth': 2.0}
    return [usual.get(setting, 1.0)] * len(coflows)


def hint(one: Coflow, setting: str, factor: float) -> dict[str, str]:
    """What the tenant says to Nova."""
    name = one.coflow.name
    if setting == _UNKNOWN:
        return hints.encode(hints.Hint(name, app=hints.App(name, True)))
    return hints.encode(hints.Hint(name, (one.coflow.scaled(factor),),
                                   n_vms=one.coflow.n_vms))


def expect(coflows: Sequence[Coflow], setting: str, claimed: Sequence[float],
           hosts: dict[str, tuple[str, ...]], scale: cases.Scale
           ) -> tuple[float, ...]:
    """CCTs by the simulator."""
    if setting == _UNKNOWN:
        return ()
    usable_bps = prediction.usable_bps(
        dict.fromkeys((f'h{i}' for i in range(scale.n_hosts)),
                      scale.rate_bps), _SCHEME)
    rows = []
    for one, factor in zip(coflows, claimed):
        name = one.coflow.name
        between = prediction.Placed(one.coflow, hosts[name]).between_hosts()
        flows = tuple(live.LiveFlow(src, dst, size)
                      for (src, dst), (size, _) in between.items())
        rows.append(claims.Claim(
            name, name, one.start_s, flows,
            factor * sum(flow.remaining_bytes for flow in flows)))
    found = claims.simulate(rows, [live.Port(host, bps, bps) for host, bps
                                   in usable_bps.items()], beta=TOLERANCE)
    return tuple(found[one.coflow.name] for one in coflows)


class _Bed(measure.Datacentre):
    """A testbed where each coflow is a project."""

    def send(self, coflows: Sequence[Coflow], setting: str,
             claimed: Sequence[float]) -> tuple[
                 dict[str, tuple[str, ...]], transfers.Outcome,
                 starvation.Usage]:
        """Launch the VMs, send all bytes, take the VMs away."""
        self.change_settings(_SCHEME.settings())
        cloud = typing.cast(planned_cloud.PlannedCloud, self._cloud)
        groups: list[list[nova_client.Server]] = []
        for one, factor in zip(coflows, claimed):
            groups.append(self.inside(functools.partial(
                cloud.create_group, one.coflow.name, one.coflow.n_vms,
                hint(one, setting, factor), flavor=testbed_module.flavor(1),
                # Nobody inherits the debts of a run before.
                project=uuid.uuid4().hex)))
            for server in groups[-1]:
                self.fabric.add_vm(server.uuid, str(server.host))
        self._write_ports(set(self.config.hosts))
        flows = self._specs(coflows, groups)
        self.wait_enforced(self._pairs(groups, flows, setting))
        found = self._transfer(coflows, flows, groups)
        self.delete([server for group in groups for server in group])
        self.wait_enforced(set())
        return found

    def _transfer(self, coflows: Sequence[Coflow],
                  flows: Sequence[traffic.FlowSpec],
                  groups: Sequence[Sequence[nova_client.Server]]
                  ) -> tuple[dict[str, tuple[str, ...]], transfers.Outcome,
                             starvation.Usage]:
        ports = {port.namespace: port for port in self.fabric.vms.values()}
        self.fabric.introduce({(
            ports[flow.src_namespace], ports[flow.dst_namespace])
            for flow in flows})
        job = traffic.Job(
            tuple(one.start_s for one in coflows), tuple(flows),
            window_bytes=traffic.window_bytes(
                flows, {name: port.host for name, port in ports.items()},
                self.config.rate_bps))
        with transfers.Transfer(job, self.config.logs / 'traffic.log',
                                self.say) as transfer:
            watch = starvation.Watch(runner.children)
            done = transfer.run()
            usage = watch.read()
        return {one.coflow.name: tuple(str(server.host) for server in group)
                for one, group in zip(coflows, groups)}, done, usage

    def _specs(self, coflows: Sequence[Coflow],
               groups: Sequence[Sequence[nova_client.Server]]
               ) -> list[traffic.FlowSpec]:
        found = []
        for number, (one, group) in enumerate(zip(coflows, groups)):
            vms = [self.fabric.vms[server.uuid] for server in group]
            for flow in one.coflow.flows:
                src, dst = vms[flow.src], vms[flow.dst]
                found.append(traffic.FlowSpec(
                    number, src.namespace, dst.namespace, dst.address, _PORT,
                    max(1, round(flow.size_bytes)),
                    src.host if src.host == dst.host else None))
        return found

    def _pairs(self, groups: Sequence[Sequence[nova_client.Server]],
               flows: Sequence[traffic.FlowSpec], setting: str
               ) -> set[tuple[str, str, str]]:
        """What the edges should know."""
        ports = {port.namespace: port for port in self.fabric.vms.values()}
        pairs = [(ports[flow.src_namespace], ports[flow.dst_namespace])
                 for flow in flows]
        if setting == _UNKNOWN:
            pairs = [both for group in groups
                     for both in itertools.permutations(
                         [self.fabric.vms[s.uuid] for s in group], 2)]
        return {(src.host, src.address, dst.address) for src, dst in pairs
                if src.host != dst.host}


def run(settings: Sequence[str], options: reproduce.Options,
        display: Display) -> dict[tuple[str, int], Run]:
    """Run what is not in the directory yet."""
    path = options.directory / 'hinted.jsonl'
    found = {(one.setting, one.seed): one for one in _read(path)}
    todo = [(seed, setting) for seed in options.seeds for setting in settings
            if (setting, seed) not in found]
    if todo:
        logs = options.directory / 'logs' / 'hinted'
        with _Bed(cases.hosts(options.scale, 0, False), options.scale, logs,
                  display) as bed:
            for seed, setting in todo:
                made = _repeat(functools.partial(
                    _once, bed, setting, seed, options.scale))
                found[setting, seed] = made
                with path.open('a') as file:
                    file.write(json.dumps(dataclasses.asdict(made)) + '\n')
                display.say(
                    f'seed {seed}, {setting}: mean CCT '
                    f'{statistics.fmean(made.ccts_s):.2f} s, simulated '
                    f'{statistics.fmean(made.expected_s or (0.0,)):.2f} s '
                    f'(waited {made.waited:.1%}, try {made.tries})')
    return found


def _read(path: pathlib.Path) -> list[Run]:
    if not path.exists():
        return []
    rows = map(json.loads, path.read_text().splitlines())
    return [Run(**row | {
        'ccts_s': tuple(row['ccts_s']),
        'expected_s': tuple(row['expected_s']),
        'hosts': {name: tuple(its) for name, its in row['hosts'].items()}})
        for row in rows]


def _repeat(once: functools.partial[Run]) -> Run:
    """As :mod:`measure` does, by the same rule."""
    tried: list[Run] = []
    while not tried or (tried[-1].waited > measure.MOST_WAITED
                        and len(tried) < measure.MOST_TRIES):
        tried.append(once())
    return dataclasses.replace(min(tried, key=lambda one: one.waited),
                               tries=len(tried))


def _once(bed: _Bed, setting: str, seed: int, scale: cases.Scale) -> Run:
    coflows = workload(seed, scale)
    claimed = factors(setting, seed, coflows)
    hosts, done, usage = bed.send(coflows, setting, claimed)
    return Run(setting, seed, hosts, done.ccts_s,
               expect(coflows, setting, claimed, hosts, scale), usage.waited,
               sum(usage.ran.values()))


def _title(n_seeds: int, scale: cases.Scale) -> tuple[str, ...]:
    return (
        f'{scale.n_hosts} hypervisors at '
        f'{units.format_rate(scale.rate_bps)}, {N_COFLOWS} coflows, '
        f'{n_seeds} seed(s), mean ± standard deviation. Policing forgives '
        f'{TOLERANCE:.0%}. Each number is over that of the same seed with '
        'exact hints. "off" is the mean over the seeds of the absolute '
        'distance of a run\'s measured mean CCT from the simulated one.',
        'A run is repeated by the rule of the test cases. The simulator has a '
        'report each second, the testbed ten.')


def wrong_hints(options: reproduce.Options, display: Display
                ) -> reproduce.Found:
    """Mean CCT when all hints are wrong in the same way."""
    settings = SPOILS[:2] if options.short else SPOILS
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
        rows.append((setting, outcome.shown(simulated) if simulated else None,
                     outcome.shown(measured), _off(its)))
    return _found('emulated-wrong-hints', 'Mean CCT with wrong hints over '
                  'that with exact ones, on the emulated testbed',
                  ('hints', 'simulated', 'measured', 'off %'), rows,
                  series.panel('hints'), options, found)


def liars(options: reproduce.Options, display: Display) -> reproduce.Found:
    """CCTs when one tenant lies, over those when he does not."""
    settings = {factor: 'exact' if factor == 1 else f'lie {factor:g}'
                for factor in FACTORS}
    found = run(list(settings.values()), options, display)
    who = {seed: liar(workload(seed, options.scale))
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


FIGURES = {'wrong-hints': wrong_hints, 'liars': liars}


class _Series:
    """Bars of what was simulated and measured."""

    def __init__(self) -> None:
        self._bars: dict[str, tuple[list[float], list[float]]] = {}

    def add(self, name: str, simulated: list[float], measured: list[float]
            ) -> None:
        self._bars[name] = simulated, measured

    def panel(self, x_label: str) -> outcome.Panel:
        made = []
        for index, label in enumerate(('simulated', 'measured')):
            both = [outcome.spread(values[index]) if values[index]
                    else (None, 0.0) for values in self._bars.values()]
            made.append(outcome.Series(
                label, tuple(self._bars), tuple(mean for mean, _ in both),
                tuple(deviation for _, deviation in both)))
        return outcome.Panel('bars', 'CCT over that with exact hints',
                             x_label, 'ratio', tuple(made))


def _found(name: str, title: str, columns: tuple[str, ...],
           rows: Sequence[tuple[outcome.Cell, ...]], panel: outcome.Panel,
           options: reproduce.Options, found: dict[tuple[str, int], Run]
           ) -> reproduce.Found:
    its = [one for (_, seed), one in found.items() if seed in options.seeds]
    unmet = [f'{one.setting}, seed {one.seed}: {_distance(one):+.1%} off the '
             f'simulator, {reproduce.WORST_TOLERANCE:.0%} allowed'
             for one in its if one.setting == 'exact'
             and abs(_distance(one)) > reproduce.WORST_TOLERANCE]
    return reproduce.Found(outcome.Outcome(
        name, title, columns, tuple(rows), (panel,),
        _title(len(options.seeds), options.scale), tuple(unmet)), (), {
            'runs': {f'{one.setting} / {one.seed}': [
                [round(value, 4) for value in values]
                for values in (one.expected_s, one.ccts_s,
                               (one.waited, one.busy, one.tries))]
                for one in its}})


def _ratios(ours: Sequence[Sequence[float]],
            others: Sequence[Sequence[float]]) -> list[float]:
    """Of the means, seed by seed; empty where nothing is known."""
    return [statistics.fmean(one) / statistics.fmean(other)
            for one, other in zip(ours, others) if one]


def _part(values: Sequence[float], who: int, is_his: bool) -> list[float]:
    return [value for i, value in enumerate(values) if (i == who) == is_his]


def _distance(one: Run) -> float:
    return statistics.fmean(one.ccts_s) / statistics.fmean(
        one.expected_s) - 1


def _off(runs: Sequence[Run]) -> float | None:
    if not runs[0].expected_s:
        return None
    return round(100 * statistics.fmean(
        abs(_distance(one)) for one in runs), 1)
