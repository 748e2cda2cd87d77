# SPDX-License-Identifier: Apache-2.0

"""What Open MPI is asked to run, and what is shown of its times."""

import contextlib

import numpy as np
import pytest

from virtco.advise import trees
from virtco_lab.emulation import broadcast
from virtco_lab.emulation import mesh
from virtco_lab.emulation import mpi


class _Mesh:
    """Sends as the rates say, at once."""

    def __init__(self, n_hosts, rate_bps):
        self.names = [f'h{i}' for i in range(n_hosts)]

    @contextlib.contextmanager
    def built(self):
        yield self

    def set_rates(self, rates_bps):
        self.rates_bps = rates_bps

    def measure(self, pairs):
        return {pair: self.rates_bps[pair] * 0.95 for pair in pairs}


class _Display:
    def say(self, text):
        pass


@pytest.fixture
def jobs(monkeypatch):
    """Runs of Open MPI that take a second, advised ones a half."""
    made = []

    def run(mesh, job, n_runs):
        made.append(job)
        in_order = list(job.hosts) == mesh.names
        return mpi.Ran(tuple(job.hosts), (1.0 if in_order else 0.5,) * n_runs)

    monkeypatch.setattr(mesh, 'Mesh', _Mesh)
    monkeypatch.setattr(mpi, 'check', lambda: None)
    monkeypatch.setattr(mpi, '_version', lambda: '4.1')
    monkeypatch.setattr(mpi, 'run', run)
    return made


def _reproduce():
    return mpi.figure(broadcast.Options(20e6, (0, 1), True), _Display())


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
    monkeypatch.setattr(mpi, 'run', lambda mesh, job, n_runs: mpi.Ran(
        tuple(reversed(job.hosts)), (1.0,)))
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
