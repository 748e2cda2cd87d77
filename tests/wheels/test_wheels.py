# SPDX-License-Identifier: Apache-2.0

"""Wheels built from the sdist with and without a compiler, installed clean.

All of it with the Python that runs this file; packages come from where pip
finds them.
"""

import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

from virtco import compiled

ROOT = pathlib.Path(__file__).parents[2]
#: Every program, so every extra that one of them needs.
EXTRAS = 'controller,edge,osc'
OTHERS = {'tenant': 'cast', 'lab': 'report'}
PROGRAMS = sorted(
    entry.name for name in ('virtco', 'virtco-tenant', 'virtco-lab')
    for entry in importlib.metadata.distribution(name).entry_points
    if entry.group == 'console_scripts')
#: The kernel that most others are made of, and those that go with it.
BROKEN = 'virtco.scheduling.rater_kernel'
#: Which kernels run as plain Python, by the compiler of the wheel.
PLAIN = {'none': set(compiled.KERNELS), 'broken': compiled.together([BROKEN]),
         'gcc': set()}
USE = '''
import importlib
import json

import numpy as np

from virtco import compiled
from virtco_lab.sim import simulation
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.scheduling import fabric
from virtco.solver import planner

hosts = tuple(cluster.Host(f'h{i}', (2.0,), 1e9, 1e9) for i in range(3))
vms = tuple(cluster.Vm(f'v{i}', (1.0,)) for i in range(4))
flows = [(0, 1, 4e8), (1, 2, 2e8), (2, 3, 3e8), (3, 0, 1e8)]
plan = planner.plan(snapshot.PlacementProblem(
    hosts, vms, (coflow.Coflow.from_flows('c', 4, flows),)), budget_s=20.0)
sim = simulation.Simulation(
    np.full(6, 1e9), simulation.Config('mrtf+swap', 'max-min'),
    [fabric.Demand(np.array([0, 1]), np.array([1, 2]), np.array(sizes),
                   np.ones(2)) for sizes in ([1e8, 2e8], [3e7, 5e8])])
sim.start(0)
sim.start(1)
sim.run()
print(json.dumps({
    'plain': [name for name in compiled.KERNELS
              if importlib.import_module(name).__file__.endswith('.py')],
    'gap': plan.gap, 'hosts': plan.hosts,
    'completion_s': sim.completion_s().tolist()}))
'''


def run(*argv, cwd, status=0, **env):
    """What a command printed; this checkout is not on its path."""
    inherited = {name: value for name, value in os.environ.items()
                 if name not in ('PYTHONPATH', 'CC')}
    done = subprocess.run([str(word) for word in argv], cwd=cwd, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=inherited | env)
    assert done.returncode == status, (argv, done.stdout[-4000:])
    return done.stdout


class Workshop:
    """A clean virtual environment, and wheels by the compiler that made them.

    :ivar wheels: each with what its build printed.
    """

    def __init__(self, directory):
        self.directory = directory
        self.wheels = {}
        self._python = directory / 'clean' / 'bin' / 'python'
        self._installed = None
        run(sys.executable, '-m', 'venv', 'clean', cwd=directory)
        run('git', 'clone', '-q', ROOT, 'source', cwd=directory)
        # The build backend, as a frontend calls it.
        run(sys.executable, '-c', 'from pbr import build; '
            'build.build_sdist("../sdist")', cwd=directory / 'source')

    def wheel(self, compiler):
        """Build one of the sdist unless there is one."""
        if compiler not in self.wheels:
            sdist, = (self.directory / 'sdist').iterdir()
            out = self.directory / compiler
            said = run(self._python, '-m', 'pip', 'wheel', '-v', '--no-deps',
                       '-w', out, sdist, cwd=self.directory,
                       CC=str(self._compiler(compiler)))
            self.wheels[compiler] = next(out.iterdir()), said
        return self.wheels[compiler]

    def install(self, compiler):
        """Have this wheel in the environment; with the first, all it needs."""
        path, _ = self.wheel(compiler)
        what = ([f'{path}[{EXTRAS}]', *self._others()]
                if self._installed is None else
                ['--no-deps', '--force-reinstall', path])
        # What has to be compiled has to do without.
        self.run('python', '-m', 'pip', 'install', *what, CC='/bin/false')
        self._installed = compiler

    def _others(self):
        """The other distributions, with no compiler and one wheel for all."""
        out = self.directory / 'others'
        for name, extra in OTHERS.items():
            self.run('python', '-m', 'pip', 'wheel', '--no-deps', '-w', out,
                     self.directory / 'source' / name, CC='/bin/false')
            path, = out.glob(f'virtco_{name}-*-py3-none-any.whl')
            yield f'{path}[{extra}]'

    def run(self, program, *arguments, **options):
        return run(self._python.with_name(program), *arguments,
                   cwd=self.directory, **options)

    def _compiler(self, name):
        if name == 'none':
            return '/bin/false'
        if name == 'gcc':
            return name
        path = self.directory / 'broken-gcc'
        file = BROKEN.rpartition('.')[2]
        path.write_text('#!/bin/sh\ncase "$*" in '
                        f'*/{file}.c*) exit 3;; esac\nexec gcc "$@"\n')
        path.chmod(0o755)
        return path


@pytest.fixture(scope='module')
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp('wheels'))


def test_hints_need_neither_a_compiler_nor_20_mb(tmp_path):
    run(sys.executable, '-m', 'venv', 'vm', cwd=tmp_path)
    run('git', 'clone', '-q', ROOT, 'source', cwd=tmp_path)

    def size_bytes():
        return sum(path.stat().st_size for path in (tmp_path / 'vm').rglob('*')
                   if path.is_file() and not path.is_symlink())

    before = size_bytes()
    python = tmp_path / 'vm' / 'bin' / 'python'
    run(python, '-m', 'pip', 'install', tmp_path / 'source',
        tmp_path / 'source' / 'tenant', cwd=tmp_path, CC='/bin/false')
    assert size_bytes() - before < 20e6
    assert 'VMs, 2 flows' in run(
        python.with_name('virtco-hint'), 'check', '[[0, "5GB"], ["1GB", 0]]',
        cwd=tmp_path)


@pytest.mark.parametrize('compiler', PLAIN)
def test_a_wheel_says_what_it_lacks(workshop, compiler):
    path, said = workshop.wheel(compiler)
    if compiler == 'none':
        assert path.name.endswith('-py3-none-any.whl')
    else:
        tag = f'cp{sys.version_info.major}{sys.version_info.minor}'
        assert f'-{tag}-{tag}-linux_' in path.name
    warned = [line for line in said.splitlines()
              if 'NOT COMPILED' in line and 'these kernels' in line]
    assert len(warned) == bool(PLAIN[compiler])
    for line in warned:
        named = line.rpartition(': ')[2].split(', ')
        assert set(named) == PLAIN[compiler]


@pytest.mark.parametrize('compiler', ['none', 'gcc'])
def test_a_wheel_has_the_programs_of_the_edge_module(workshop, compiler):
    """Or its build says why it has not; gcc has no part in it."""
    path, said = workshop.wheel(compiler)
    with zipfile.ZipFile(path) as wheel:
        has_programs = 'edge_module/classify/classify.bpf.o' in (
            wheel.namelist())
    assert has_programs != ('classify.c, so nftables classifies' in said)
    assert has_programs == any(map(shutil.which, ('clang', 'clang-14')))


@pytest.fixture(scope='module', params=PLAIN)
def installed(request, workshop):
    """The compiler of the wheel in the environment; each is put there once."""
    workshop.install(request.param)
    return request.param


@pytest.fixture(scope='module')
def expected():
    """What this checkout plans and simulates."""
    answer = json.loads(run(sys.executable, '-c', USE, cwd=ROOT))
    del answer['plain']
    return answer


def test_an_installed_wheel_knows_its_kernels(workshop, installed):
    states = dict(line.split() for line in workshop.run(
        'python', '-m', 'virtco.compiled',
        status=int(bool(PLAIN[installed]))).splitlines())
    assert states == {
        name: 'plain' if name in PLAIN[installed] else 'compiled'
        for name in compiled.KERNELS}


def test_programs_start(workshop, installed):
    assert PROGRAMS
    for program in PROGRAMS:
        assert 'usage: ' in workshop.run(program, '--help').lower(), program


def test_it_plans_and_simulates_as_this_checkout_does(
        workshop, installed, expected):
    answer = json.loads(workshop.run('python', '-c', USE).splitlines()[-1])
    assert set(answer.pop('plain')) == PLAIN[installed]
    assert answer == expected
    assert answer['gap'] == 0
