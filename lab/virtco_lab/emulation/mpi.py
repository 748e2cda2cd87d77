# SPDX-License-Identifier: Apache-2.0

"""Open MPI with the ranks and trees that are advised, over real TCP.

Hosts whose pairs have unequal rates are measured, and Open MPI runs there with
the rankfile and the options that ``virtco group advise`` prints: broadcasts
and reduces along the trees that it builds of the ranks, and an exchange by a
matrix. Its daemons run in the hosts' namespaces and use the management
network; messages of the ranks use the shaped network.
"""

from collections.abc import Sequence
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess

import numpy as np

from virtco import exception
from virtco import units
from virtco.advise import mappings
from virtco.advise import orders
from virtco.advise import trees
from virtco.osc import launchers
from virtco_lab.emulation import broadcast
from virtco_lab.emulation import extent
from virtco_lab.emulation import fabric
from virtco_lab.emulation import mesh as mesh_module
from virtco_lab.emulation import namespaces
from virtco_lab.sim import clouds
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import samples

Matrix = clouds.Matrix

N_HOSTS = broadcast.N_HOSTS
RUNS = 5
DYNAMICS = clouds.Dynamics(disturbed=0.2, cut=(0.1, 0.5))
#: Mean number of partners of each rank in the exchange.
PARTNERS = 3
#: Largest accepted time with advised trees, relative to the rows' order.
MOST_OVER = 0.95
_READING_S, _MESSAGE_S = 0.05, 0.25
_SEGMENT_S, _MOST_SEGMENTS = 0.002, 16
_TIMEOUT_S = 120
# Bytes of a number that a reduce adds.
_WORD = 8
#: Debian's Python, which has Debian's mpi4py.
_PYTHON = '/usr/bin/python3'
_RANKS = pathlib.Path(__file__).with_name('ranks.py')
# Every rank may run on every processor: the hosts are on one machine.
_ANY_SLOT = f'0-{(os.cpu_count() or 1) - 1}'
# Ranks that wait for a message let others run.
_OPTIONS = {'plm': 'rsh', 'plm_rsh_no_tree_spawn': '1', 'pml': 'ob1',
            'btl': 'tcp,self', 'btl_tcp_if_include': fabric.VM_BRIDGE,
            'oob_tcp_if_include': fabric.MGMT_DEV,
            'mpi_yield_when_idle': '1'}
_AGENT = '''\
case $1 in
{cases}
esac
shift
exec nsenter --net={namespace}$host unshare --uts \\
    sh -c "hostname $host; $*"
'''


class NoMpi(exception.VirtcoException):
    """Open MPI's mpirun or its Python package mpi4py is not installed."""

    msg_fmt = ('Debian\'s openmpi-bin and python3-mpi4py are not installed; '
               'tools/setup mpi does it.')


def check() -> None:
    """Check that mpirun and mpi4py are installed.

    :raises NoMpi: when one of them is missing.
    """
    if shutil.which('mpirun') is None or subprocess.run(
            [_PYTHON, '-c', 'import mpi4py'], capture_output=True).returncode:
        raise NoMpi()


@dataclasses.dataclass(frozen=True, slots=True)
class Ran:
    """Result of a run of Open MPI.

    :ivar hosts: the processor of each rank, as Open MPI names it.
    """

    hosts: tuple[str, ...]
    took_s: tuple[float, ...]


def run(mesh: mesh_module.Mesh, operation: str, argument: int | Matrix,
        hosts: Sequence[str], options: str = '', n_runs: int = RUNS) -> Ran:
    """Run an operation of Open MPI on the hosts of a mesh.

    :param argument: bytes of the message, or a matrix of bytes by rank.
    :param hosts: name of each rank's host in the rankfile.
    :param options: options that ``virtco group advise`` prints.
    :raises RuntimeError: with the words of mpirun, where it fails.
    """
    there = namespaces.scratch_dir(mesh.run)
    agent, ranks, volumes = (there / name for name in (
        'agent', 'rankfile', 'volumes'))
    agent.write_text(_AGENT.format(
        namespace=namespaces.path(namespaces.name(mesh.run, '')),
        cases='\n'.join(f'{name}|{address}) host={name};;' for name, address
                        in zip(mesh.names, mesh.addresses))))
    ranks.write_text(launchers.rankfile(hosts, _ANY_SLOT))
    if not isinstance(argument, int):
        volumes.write_text(json.dumps(np.rint(argument).astype(int).tolist()))
    usual = _OPTIONS | {'plm_rsh_agent': f'sh {agent}',
                        'orte_tmpdir_base': str(there)}
    found = subprocess.run(
        [*namespaces.within(namespaces.name(mesh.run, 'control')),
         'mpirun', '--timeout', str(_TIMEOUT_S),
         '--host', ','.join(sorted(hosts)),
         '--rankfile', str(ranks), '-np', str(len(hosts)),
         *(part for name, value in usual.items()
           for part in ('--mca', name, value)), *options.split(),
         _PYTHON, str(_RANKS), operation,
         str(argument if isinstance(argument, int) else volumes),
         str(n_runs)],
        env=os.environ | {'OMPI_ALLOW_RUN_AS_ROOT': '1',
                          'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'},
        capture_output=True, text=True, timeout=_TIMEOUT_S + 30)
    if found.returncode:
        raise RuntimeError(f'mpirun ended with {found.returncode}: '
                           f'{found.stderr.strip()}')
    told = json.loads(found.stdout)
    return Ran(tuple(told['hosts']), tuple(told['took_s']))


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Advised hosts of ranks, with the expected time.

    :ivar order: host of each rank.
    :ivar expected_s: time by the model on the true rates; None where Open MPI
        chooses its tree.
    """

    order: Sequence[int]
    options: str = ''
    expected_s: float | None = None


#: Plans that are compared; a user without advice has the first.
_ORDERS_AND_TREES = ('by row', 'advised order', 'advised tree, by row',
                     'advised')
PLANS: dict[str, tuple[str, ...]] = {
    'broadcast': _ORDERS_AND_TREES, 'reduce': _ORDERS_AND_TREES,
    'exchange': ('by row', 'greedy', 'advised')}


def plans(operation: str, argument: int | Matrix, rates_bps: Matrix,
          truth_bps: Matrix) -> dict[str, Plan]:
    """Plan an operation without advice and as advised by measured rates.

    :param rates_bps: measured rates, on which the advice is based.
    """
    if not isinstance(argument, int):
        return _mappings(argument, rates_bps, truth_bps)
    sent, truth = (_message(argument, one) for one in (rates_bps, truth_bps))
    is_reduce = operation == 'reduce'
    first = orders.advise(sent, 0, is_reduce).orders[0]
    options = launchers.mca(operation, first.shape, argument,
                            first.n_segments)

    def expected_s(order: Sequence[int]) -> float:
        really = truth.turned() if is_reduce else truth
        return really.took_s(orders.shaped(first.shape, order, is_reduce),
                             first.n_segments)

    rows = range(len(rates_bps))
    return dict(zip(PLANS[operation], (
        Plan(rows), Plan(first.order),
        Plan(rows, options, expected_s(rows)),
        Plan(first.order, options, expected_s(first.order)))))


def _message(size_bytes: int, rates_bps: Matrix) -> trees.Message:
    latency_s = np.full(rates_bps.shape, _SEGMENT_S)
    return trees.message(trees.message_s(size_bytes, rates_bps, latency_s),
                         None, latency_s, _MOST_SEGMENTS)


def _mappings(volumes: Matrix, rates_bps: Matrix, truth_bps: Matrix
              ) -> dict[str, Plan]:
    """Build the plans of an exchange, with their times by true rates."""
    def paths(one: Matrix) -> mappings.Paths:
        return mappings.Paths(one, np.full(one.shape, _SEGMENT_S),
                              np.arange(len(one)))

    advised = mappings.advise(volumes, paths(rates_bps))
    by_name = {one.name: one.order for one in advised}
    found = (by_name['rank'], by_name['greedy'], advised[0].order)
    return {name: Plan(order, '', mappings.mapped_s(
        volumes, np.array(order), paths(truth_bps)))
        for name, order in zip(PLANS['exchange'], found)}


def key(operation: str, name: str) -> str:
    """Return the setting of a plan in the samples."""
    return f'{operation}, {name}'


def figure(options: extent.Options) -> outcome.Outcome:
    """Measure Open MPI's collectives by order of ranks and by tree."""
    check()
    mesh = mesh_module.Mesh(N_HOSTS, options.rate_bps)
    found = samples.Samples(options.seeds)
    misplaced: list[str] = []
    with mesh.built():
        for seed in options.seeds:
            misplaced += _seed(mesh, seed, options, found)
    return _shown(found, misplaced, options)


FIGURES: dict[str, extent.Figure] = {'rpca-mpi': figure}


def _seed(mesh: mesh_module.Mesh, seed: int, options: extent.Options,
          found: samples.Samples) -> list[str]:
    """Draw a cloud, and run all plans of all operations in it.

    :param found: gets median seconds and, where there is one, the model's.
    :returns: descriptions of ranks that ran on another host.
    """
    rng = np.random.default_rng([seed, 50, 17])
    cloud = clouds.Cloud(N_HOSTS, DYNAMICS, rng)
    by_name = broadcast.calibrated(mesh, cloud, options, _READING_S)
    mesh.set_rates(cloud.rates_bps * (options.rate_bps / clouds.LINK_BPS))
    size = broadcast.size_bytes(options) // _WORD * _WORD
    volumes = np.where(rng.random((N_HOSTS, N_HOSTS))
                       < PARTNERS / (N_HOSTS - 1),
                       rng.uniform(0.5, 1.0, (N_HOSTS, N_HOSTS)) * size, 0.0)
    np.fill_diagonal(volumes, 0.0)
    misplaced = []
    for operation in PLANS:
        argument = volumes if operation == 'exchange' else size
        made = plans(operation, argument, by_name['consensus'],
                     by_name['truth'])
        for name in rng.permutation(list(made)).tolist():
            plan, setting = made[name], key(operation, name)
            hosts = [mesh.names[host] for host in plan.order]
            ran = run(mesh, operation, argument, hosts, plan.options,
                      broadcast.n_runs(options))
            found.add(setting, {
                's': float(np.median(ran.took_s)), 'model':
                [] if plan.expected_s is None else plan.expected_s}, 0.0)
            if list(ran.hosts) != hosts:
                misplaced.append(
                    f'seed {seed}, {setting}: ranks are on '
                    f'{", ".join(ran.hosts)}, not on {", ".join(hosts)}')
        options.say(f'seed {seed}: {operation}: ' + ', '.join(
            f'{name} {found.of(key(operation, name), "s")[-1]:.2f} s'
            for name in made))
    return misplaced


def _ratios(found: samples.Samples, operation: str, name: str) -> np.ndarray:
    return found.ratios(key(operation, name), 's',
                        key(operation, PLANS[operation][0]), 's')


def _unmet(found: samples.Samples) -> list[str]:
    """List unmet expectations of the advised trees.

    A mapping saves less than its spread over few seeds.
    """
    unmet = []
    for operation in ('broadcast', 'reduce'):
        ratio = float(np.mean(_ratios(found, operation, 'advised')))
        if ratio > MOST_OVER:
            unmet.append(f'{operation}: what is advised takes {ratio:.2f} of '
                         f'the time by row, not at most {MOST_OVER:g}')
    return unmet


def _shown(found: samples.Samples, misplaced: Sequence[str],
           options: extent.Options) -> outcome.Outcome:
    rows: list[tuple[outcome.Cell, ...]] = []
    for operation, names in PLANS.items():
        base_s = found.of(key(operation, names[0]), 's')
        for name in names:
            measured_s, expected_s = (
                found.of(key(operation, name), series)
                for series in ('s', 'model'))
            ratios = _ratios(found, operation, name)
            rows.append((
                operation, name, outcome.shown(measured_s),
                outcome.shown(expected_s) if expected_s else None,
                outcome.shown(ratios),
                *((None, None) if name == names[0] else (
                    f'{sum(one < 1 for one in ratios)} of {len(ratios)}',
                    str(outcome.saving(measured_s, base_s))))))
    panels = [outcome.Panel(
        'bars', operation, 'ranks', 'time over that by row', (
            outcome.averaged(operation, names, [
                _ratios(found, operation, name) for name in names]),))
        for operation, names in PLANS.items()]
    return outcome.Outcome(
        'emulated-rpca-mpi', 'Open MPI with advised ranks and trees',
        ('operation', 'ranks', 'measured s', 'model s', 'over by row',
         'faster in', 'saved % [95 %]'), tuple(rows),
        tuple(panels),
        (f'Open MPI {_version()} on {N_HOSTS} hosts at '
         f'{units.format_rate(options.rate_bps)}, {len(found.seeds)} seeds, '
         f'each with its own rates of all pairs and the median of '
         f'{broadcast.n_runs(options)} runs. Rates are those of the '
         'broadcasts above, constant while Open MPI runs; advised is by the '
         f'consensus of {broadcast.n_snapshots(options)} snapshots, a fifth '
         'of whose readings is cut to 10 to 50 %.',
         f'A message takes {_MESSAGE_S:g} s at the full rate. In the exchange '
         f'each rank sends half of that to all of it to {PARTNERS} others on '
         'average, one after the other. "By row" and "advised order" leave '
         'the tree to Open MPI. The model sends one message at a time.'),
        (*misplaced, *_unmet(found)), found.to_dict())


def _version() -> str:
    told = subprocess.run(['mpirun', '--version'], capture_output=True,
                          text=True, check=True).stdout
    return told.split('\n')[0].rpartition(' ')[2]
