# SPDX-License-Identifier: Apache-2.0

"""What Open MPI is asked to run, and what is shown of its times."""

import collections
import contextlib
import json
import os
import types

import numpy as np
import pytest

from tests.unit.lab.emulation import drawing
from virtco.advise import trees
from virtco_lab.emulation import extent
from virtco_lab.emulation import mesh
from virtco_lab.emulation import mpi


class _Mesh:
    """Sends a little slower than the rates say, at once."""

    def __init__(self, n_hosts, rate_bps):
        self.names = [f'h{i}' for i in range(n_hosts)]
        self.fastest_bps = []

    @contextlib.contextmanager
    def built(self):
        yield self

    def set_rates(self, rates_bps):
        self.rates_bps = rates_bps
        self.fastest_bps.append(rates_bps.max())

    def measure(self, sizes):
        return {pair: self.rates_bps[pair] * 0.95 * (1 - 1e-6 * size)
                for pair, size in sizes.items()}


Job = collections.namedtuple('Job', 'operation argument hosts options')


@pytest.fixture
def jobs(monkeypatch):
    """Runs of Open MPI that take a second, advised ones a half."""
    made = []

    def run(mesh, *of):
        *of, n_runs = of
        job = Job(*of)
        made.append(job)
        in_order = list(job.hosts) == mesh.names
        return mpi.Ran(tuple(job.hosts), (1.0 if in_order else 0.5,) * n_runs)

    monkeypatch.setattr(mesh, 'Mesh', _Mesh)
    monkeypatch.setattr(mpi, 'check', lambda: None)
    monkeypatch.setattr(mpi, '_version', lambda: '4.1')
    monkeypatch.setattr(mpi, 'run', run)
    return made


def test_the_figure_is_drawn_as_ever(jobs, monkeypatch):
    """Each run takes as long as its options and its order say."""
    rates_bps = []

    def run(mesh, *of):
        *of, n_runs = of
        job = Job(*of)
        jobs.append(job)
        rates_bps.append(np.sort(mesh.rates_bps[~np.eye(
            len(mesh.names), dtype=bool)])[[0, -1]].tolist())
        assert 10e6 < min(mesh.fastest_bps) <= max(mesh.fastest_bps) < 22e6
        order = [mesh.names.index(host) for host in job.hosts]
        took_s = 1.0 / (1 + len(job.options) % 3 + (order[0] - order[-1]) % 5)
        if job.operation == 'exchange':
            took_s *= job.argument.sum() / 1e6
        return mpi.Ran(tuple(job.hosts), tuple(
            took_s * (1 + number) for number in range(n_runs)))

    monkeypatch.setattr(mpi, 'run', run)
    display = drawing.Display()
    found = mpi.FIGURES['rpca-mpi'](
        extent.Options(20e6, (0, 3), display=display))
    drawing.check('rpca-mpi', found, [*display.said, *(
        f'{job.operation} of '
        f'{getattr(job.argument, "sum", lambda: job.argument)():.0f}: '
        f'{" ".join(job.hosts)} {job.options}' for job in jobs)])
    # The last rates that were set are the cloud's, of links as asked for.
    assert len(set(map(tuple, rates_bps))) == 2
    for slowest_bps, fastest_bps in rates_bps:
        assert 1e6 < slowest_bps < fastest_bps < 20.1e6


def test_what_is_allowed_is_no_claim_unmet():
    for ratio, n_unmet in ((0.95, 0), (0.96, 2)):
        found = mpi.samples.Samples((0,))
        for operation, names in mpi.PLANS.items():
            for name in names:
                found.add(mpi.key(operation, name), {
                    's': ratio if name == 'advised' else 1.0}, 0.0)
        assert len(mpi._unmet(found)) == n_unmet


@pytest.mark.parametrize(('has_mpirun', 'status', 'is_fine'), [
    (True, 0, True), (True, 1, False), (False, 0, False)])
def test_open_mpi_and_its_python_are_needed(has_mpirun, status, is_fine,
                                            monkeypatch):
    monkeypatch.setattr(mpi.shutil, 'which', lambda name: (
        '/usr/bin/mpirun' if name == 'mpirun' and has_mpirun else None))
    monkeypatch.setattr(mpi.subprocess, 'run', lambda argv, capture_output: (
        types.SimpleNamespace(returncode=status if (
            argv[1:] == ['-c', 'import mpi4py'] and capture_output) else 9)))
    if is_fine:
        mpi.check()
    else:
        with pytest.raises(mpi.NoMpi, match='openmpi-bin'):
            _reproduce()


@pytest.fixture
def mpirun(monkeypatch, tmp_path):
    """One that says what the test says."""
    made = types.SimpleNamespace(
        ran=[], status=0, there=tmp_path, mesh=types.SimpleNamespace(
            run='abc123', names=['h0', 'h1'],
            addresses=['10.0.0.1', '10.0.0.2']))

    def run(argv, **options):
        made.ran.append((argv, options))
        return types.SimpleNamespace(
            returncode=made.status, stderr=' no slots \n',
            stdout='{"hosts": ["h1", "h0"], "took_s": [1.5, 2]}')

    monkeypatch.setattr(mpi.namespaces, 'scratch_dir', lambda run: (
        tmp_path if run == 'abc123' else None))
    monkeypatch.setattr(mpi.subprocess, 'run', run)
    return made


def test_open_mpi_is_started_in_the_hosts_namespaces(mpirun):
    found = mpi.run(mpirun.mesh, 'broadcast', 1234, ['h1', 'h0'],
                    '--mca a b', 3)
    assert found == mpi.Ran(('h1', 'h0'), (1.5, 2))
    (argv, options), = mpirun.ran
    assert argv[:7] == [
        'nsenter', '--net=/run/netns/virtco-emu-abc123-control', 'mpirun',
        '--timeout', '120', '--host', 'h0,h1']
    assert argv[argv.index('-np') + 1] == '2'
    told = {name: value for word, name, value in zip(
        argv, argv[1:], argv[2:]) if word == '--mca'}
    assert told['a'] == 'b' and told['btl'] == 'tcp,self'
    assert told['plm_rsh_agent'] == f'sh {mpirun.there}/agent'
    assert argv[-5:] == ['/usr/bin/python3', str(mpi._RANKS), 'broadcast',
                         '1234', '3']
    assert options['env']['OMPI_ALLOW_RUN_AS_ROOT'] == '1'
    assert options['timeout'] == 150
    assert options['capture_output'] and options['text']
    agent = (mpirun.there / 'agent').read_text()
    assert 'h0|10.0.0.1) host=h0;;\nh1|10.0.0.2) host=h1;;\n' in agent
    assert 'nsenter --net=/run/netns/virtco-emu-abc123-$host' in agent
    ranks = (mpirun.there / 'rankfile').read_text().splitlines()
    assert ranks[0].startswith('rank 0=h1') and 'rank 1=h0' in ranks[1]
    # Any processor will do.
    assert ranks[0].endswith(f'slot=0-{os.cpu_count() - 1}')
    assert not (mpirun.there / 'volumes').exists()


def test_volumes_of_an_exchange_are_whole_bytes(mpirun):
    mpi.run(mpirun.mesh, 'exchange', np.array([[0.0, 2.6], [1.2, 0]]),
            ['h0', 'h1'])
    (argv, _options), = mpirun.ran
    assert argv[-2:] == [str(mpirun.there / 'volumes'), '5']
    assert json.loads((mpirun.there / 'volumes').read_text()) == [
        [0, 3], [1, 0]]


def test_what_mpirun_says_of_its_end_is_told(mpirun):
    mpirun.status = 1
    with pytest.raises(RuntimeError, match='mpirun ended with 1: no slots$'):
        mpi.run(mpirun.mesh, 'broadcast', 8, ['h0', 'h1'])


def test_the_version_is_the_last_word_of_its_first_line(monkeypatch):
    monkeypatch.setattr(mpi.subprocess, 'run', lambda argv, **options: (
        types.SimpleNamespace(stdout='mpirun (Open MPI) 4.1.4\n\nReport to'
                              if options == dict.fromkeys((
                                  'capture_output', 'check', 'text'), True)
                              else 0)))
    assert mpi._version() == '4.1.4'


def _reproduce():
    return mpi.figure(extent.Options(
        20e6, (0, 1), True, display=drawing.Display()))


def test_the_table_is_whole(jobs):
    found = _reproduce()
    assert [row[:2] for row in found.rows] == [
        (operation, name) for operation, names in mpi.PLANS.items()
        for name in names]
    assert {len(row) for row in found.rows} == {len(found.columns)}
    over = {row[:2]: float(row[4].split()[0]) for row in found.rows}
    assert over['broadcast', 'by row'] == 1.0
    assert over['broadcast', 'advised'] == 0.5
    assert over['reduce', 'advised tree, by row'] == 1.0
    assert found.unmet == ()


def test_a_reduce_and_a_broadcast_choose_their_own_trees(jobs):
    _reproduce()
    for operation, option in (('broadcast', '_bcast_'),
                              ('reduce', '_reduce_')):
        told = [job.options for job in jobs if job.operation == operation]
        # Without advice, and with its order alone, Open MPI chooses.
        assert told.count('') == len(told) / 2
        assert all(option in one for one in told if one)


def test_a_rank_elsewhere_and_no_gain_are_named(jobs, monkeypatch):
    monkeypatch.setattr(mpi, 'run', lambda mesh, *of: mpi.Ran(
        tuple(reversed(of[2])), (1.0,)))
    unmet = _reproduce().unmet
    assert 'seed 0, broadcast, ' in unmet[0] and 'not on h' in unmet[0]
    assert unmet[-1].startswith('reduce: what is advised takes 1.00')


def test_the_model_is_that_of_the_order_on_the_true_rates():
    rng = np.random.default_rng(3)
    told, truth = rng.uniform(1e6, 2e7, (2, 8, 8))
    for operation in ('broadcast', 'reduce'):
        plans = mpi.plans(operation, 100_000, told, truth)
        assert plans['by row'].expected_s is None
        advised = plans['advised']
        best = mpi.plans(operation, 100_000, truth, truth)['advised']
        assert best.expected_s <= advised.expected_s
        assert sorted(advised.order) == list(range(8))


def test_a_reduce_is_predicted_over_the_way_that_its_bytes_go():
    """Towards the root the pairs are fast, away from it slow."""
    n, size = 4, 100_000
    rates_bps = np.where(np.tri(n, k=-1, dtype=bool), 2e7, 1e5)
    cost_s = trees.message_s(size, rates_bps, np.zeros((n, n)))
    found = mpi.plans('reduce', size, rates_bps, rates_bps)['advised']
    assert found.expected_s <= 1.1 * (n - 1) * cost_s[1, 0]
