# SPDX-License-Identifier: Apache-2.0

"""Training jobs of AICB's files in the simulator."""

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest

from tests import figures
from virtco import exception
from virtco_lab.sim import training_files
from virtco_lab.sim import training_jobs
from virtco_lab.sim.figures import samples

HEADER = ('comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,'
          'additional,_elapsed_time,algbw,busbw,count\n')
END = 'CommType.epoch_end,None,None,0,,None,None,,None,None,None,1\n'
REDUCE = ('CommType.all_reduce,CommGroup.dp_group,{},6000000000,step,None,'
          'None,,None,None,None,1\n')
SIMAI = ('HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 3 '
         'pp: 1 ga: 1 all_gpus: 96 pp_comm: 0\n1\n'
         'layer -1 100000000 NONE 0 1 NONE 0 1 REDUCESCATTER 9000000 1\n')


@pytest.fixture
def files(tmp_path):
    (tmp_path / 'deep').mkdir()
    (tmp_path / 'gpt.csv').write_text(HEADER + END + REDUCE.format(16) + END)
    (tmp_path / 'deep' / 'moe.txt').write_text(SIMAI)
    (tmp_path / 'deep' / 'empty.csv').mkdir()
    (tmp_path / 'notes.txt').write_text('no workload\n')
    (tmp_path / 'notes.md').write_text('no workload\n')
    return tmp_path


def test_a_directory_gives_all_of_its_workloads(files):
    said = []
    moe, gpt = training_files.load([str(files)], said.append)
    assert (moe.name, gpt.name) == ('moe', 'gpt')
    assert moe.compute_s == pytest.approx(0.1, rel=1e-6)
    # 12 GB over DP tell of 2 billion parameters, 6 operations each.
    assert gpt.compute_s == pytest.approx(12 * 2e9 * 1024 / (
        0.45 * 312e12))
    assert len(said) == 2
    assert 'gpt.csv: tells no time' in said[1] or 'gpt.csv' in said[0]
    assert any('notes.txt' in line for line in said)


def test_a_job_keeps_its_groups_where_the_cluster_is_small(files):
    kind, = training_files.load([str(files / 'deep/moe.txt')], print)
    # EP 3 times TP 8 are 3 hosts of 8; told are 12.
    assert kind.step == 3
    assert list(kind.sizes(100)) == [12]
    assert list(kind.sizes(28)) == [6]
    assert list(kind.sizes(4)) == [3]
    assert list(kind.sizes(2)) == [0]
    assert list(kind.sizes(3)) == [3]
    assert kind.fitting(8) == 6
    flows = kind.flows(6)
    # Each of 8 TP ranks sends 5/6 of its bytes to the next host.
    assert flows == {(i, (i + 1) % 6): pytest.approx(8 * 9e6 * 5 / 6)
                     for i in range(6)}


def test_a_job_has_the_hosts_of_its_file_or_usual_numbers(files):
    path = files / 'gpt.csv'
    kind, = training_files.load([str(path)], print)
    assert list(kind.sizes(100)) == list(kind.sizes(2)) == [2]
    assert list(kind.sizes(1)) == [0]
    # A group of all ranks that are not said to be of DP tells no number.
    path.write_text(HEADER + END + REDUCE.format(8) + END)
    kind, = training_files.load([f'{path}@1s'], print)
    assert list(kind.sizes(100)) == [2, 4, 8, 16]
    assert list(kind.sizes(20)) == [2, 4, 5]
    assert list(kind.sizes(3)) == [2]


def test_a_time_may_be_given(files):
    kind, = training_files.load([f'{files}/gpt.csv@250ms'], print)
    assert kind.compute_s == 0.25
    kind, = training_files.load([f'{files}/gpt.csv@86400s'], print)
    assert kind.compute_s == 86400.0
    at = files / 'gpt@250ms.csv'
    at.write_bytes((files / 'gpt.csv').read_bytes())
    kind, = training_files.load([str(at)], print)
    assert kind.compute_s != 0.25
    for bad in ('gpt.csv@x', 'gpt.csv@0s', 'gpt.csv@1e300s', 'none.csv',
                'notes.txt'):
        with pytest.raises(exception.VirtcoException):
            training_files.load([f'{files}/{bad}'], print)
    with pytest.raises(exception.Invalid, match='workloads of AICB'):
        (files / 'empty').mkdir()
        training_files.load([f'{files}/empty'], print)


def test_a_file_that_sends_nothing_between_hosts_is_refused(tmp_path):
    path = tmp_path / 'w.txt'
    path.write_text(SIMAI.replace('REDUCESCATTER', 'NONE'))
    with pytest.raises(exception.Invalid, match='sends between hosts'):
        training_files.load([str(path)], print)


def test_ranks_that_form_no_groups_are_told_of_by_their_line(tmp_path):
    path = tmp_path / 'w.txt'
    path.write_text(SIMAI.replace('96', '97'))
    with pytest.raises(exception.VirtcoException,
                       match='line 1: all_gpus: .* multiple of TP 8 .*97'):
        training_files.load([str(path)], print)


def test_times_beyond_a_day_are_refused(tmp_path):
    path = tmp_path / 'w.txt'
    layer = SIMAI.splitlines()[2].replace('100000000', '999999999999')
    path.write_text('\n'.join([SIMAI.splitlines()[0], '100',
                               *[layer] * 100]))
    with pytest.raises(exception.Invalid, match='at most 86400 s'):
        training_files.load([str(path)], print)


def test_jobs_that_hardly_compute_are_a_figure(tmp_path):
    """Most never send; their slowdown is a number all the same."""
    path = tmp_path / 'w.txt'
    path.write_text(SIMAI.replace('100000000', '5'))
    found = figures.outcome('training-cluster', samples.Context(
        seeds=(0,), short=True,
        kinds=training_files.load([str(path)], print)))
    slowdowns = [row[4] for row in found.rows if row[4] is not None]
    assert slowdowns and all(math.isfinite(float(one.split()[0]))
                             for one in slowdowns)


def test_a_cluster_of_a_file_fits_its_hosts(files):
    at = training_jobs.site(training_jobs.small())
    kinds = training_files.load([str(files)], print)
    jobs = training_jobs.mix(at, np.random.default_rng(3), kinds=kinds)
    taken = [host for job in jobs for host in np.unique(
        [job.demand.src_host, job.demand.dst_host])]
    assert len(taken) == len(set(taken)) >= 60
    none = training_files.load([str(files / 'deep/moe.txt')], print)
    two = dataclasses.replace(at, leaves=((0,), (1,)))
    with pytest.raises(exception.Invalid, match='room for one of the jobs'):
        training_jobs.mix(two, np.random.default_rng(3), kinds=none)


def test_jobs_that_fit_nowhere_are_drawn_some_times_only():
    drawn = []

    class Kind:
        def sizes(self, n_hosts):
            return (2,)

        def fitting(self, n_hosts):
            drawn.append(n_hosts)
            return 0

    with pytest.raises(exception.Invalid, match='room for one of the jobs'):
        training_jobs.mix(training_jobs.site(training_jobs.small()),
                          np.random.default_rng(0), kinds=[Kind()])
    assert drawn == [2] * training_jobs.MOST_MISSES


def test_the_command_runs_files(files, tmp_path):
    found = subprocess.run(
        [sys.executable, '-m', 'virtco_lab.cmd.sim', 'reproduce',
         'training-cluster', '--short', '--workload', str(files),
         '--output', str(tmp_path / 'out')],
        capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    assert 'notes.txt' in found.stderr
    assert (tmp_path / 'out/training-cluster.json').exists()
