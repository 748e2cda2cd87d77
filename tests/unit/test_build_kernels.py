# SPDX-License-Identifier: Apache-2.0

"""What is built where not all kernels can be compiled."""

import importlib.util
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest
import setuptools

from virtco import compiled

ROOT = pathlib.Path(__file__).parents[2]
SUFFIX = sysconfig.get_config_var('EXT_SUFFIX')

pytestmark = pytest.mark.skipif(not shutil.which('gcc'), reason='no compiler')


@pytest.fixture(scope='module')
def build_kernels():
    spec = importlib.util.spec_from_file_location(
        'build_kernels', ROOT / 'tools' / 'build_kernels.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def build(build_kernels, tmp_path, monkeypatch):
    """A function that builds modules of C; what is said, what is there."""
    monkeypatch.chdir(tmp_path)

    def made(beside=False, programs='', **sources):
        build_kernels.BPF.parent.mkdir(parents=True, exist_ok=True)
        build_kernels.BPF.write_text(programs)
        for name, text in sources.items():
            pathlib.Path(f'{name}.c').write_text(text)
        command = build_kernels.BuildKernels(setuptools.Distribution({
            'packages': [build_kernels.BPF_PACKAGE] if programs else [],
            'ext_modules': [setuptools.Extension(name, [f'{name}.c'])
                            for name in sources]}))
        said = []
        command.warn = said.append
        command.parallel = 2
        # It would go by whole seconds.
        command.force = True
        command.inplace = beside
        command.build_lib = 'lib'
        command.ensure_finalized()
        command.run()
        there = {path.name.removesuffix(SUFFIX)
                 for path in pathlib.Path('lib').rglob('*')
                 if path.is_file()}
        assert there == {pathlib.Path(path).name.removesuffix(SUFFIX)
                         for path in command.get_outputs()}
        return said, there, command.distribution
    return made


def test_what_compiles_is_kept_and_what_does_not_is_said(build):
    said, there, distribution = build(good='int good;', bad='#error no')
    assert there == {'good'}
    assert distribution.has_ext_modules()
    line, = said
    assert '\n' not in line
    assert line.startswith('NOT COMPILED (')
    assert line.endswith('hundred times slower: bad')


@pytest.mark.parametrize('compiler', ['/bin/false', '/no/such/compiler'])
def test_without_a_compiler_nothing_is_left(build, compiler, monkeypatch):
    monkeypatch.setenv('CC', compiler)
    (line,), there, distribution = build(one='int one;', other='int other;')
    assert there == set()
    # Its wheel is one for every machine.
    assert not distribution.has_ext_modules()
    assert compiler in line
    assert line.endswith(': one, other')


def test_without_cython_nothing_is_left(build, build_kernels, monkeypatch):
    monkeypatch.setattr(build_kernels, 'cython_build', None)
    (line,), there, _ = build(one='int one;')
    assert there == set()
    assert '(Cython is not installed)' in line


def test_with_a_compiler_nothing_is_said(build):
    said, there, _ = build(one='int one;')
    assert (said, there) == ([], {'one'})


@pytest.mark.parametrize('beside', [True, False])
def test_one_of_an_earlier_build_goes(build, beside):
    """A build for elsewhere leaves alone what lies beside the sources."""
    build(beside=True, one='int one;', other='int other;')
    _, there, _ = build(beside=beside, one='#error no', other='int other;')
    assert there == {'other'}
    assert pathlib.Path(f'one{SUFFIX}').exists() is not beside
    assert pathlib.Path(f'other{SUFFIX}').exists()


@pytest.fixture
def programs(build_kernels):
    return build_kernels.BPF.with_suffix('.bpf.o')


needs_clang = pytest.mark.skipif(
    not any(map(shutil.which, ('clang', 'clang-14'))), reason='no clang')


@needs_clang
@pytest.mark.parametrize('beside', [True, False])
def test_programs_for_the_kernel_are_compiled(build, programs, beside):
    """For a wheel, and beside the source where that is asked for."""
    said, there, _ = build(beside, 'int good;', one='int one;')
    assert (said, there) == ([], {'one', programs.name})
    assert programs.exists() is beside
    # The same in every directory.
    assert b'pytest' not in pathlib.Path('lib', programs).read_bytes()


@needs_clang
def test_programs_of_an_earlier_build_go(build, programs):
    build(True, 'int good;', one='int one;')
    (line,), there, _ = build(True, '#error no', one='int one;')
    assert there == {'one'}
    assert not programs.exists()
    assert 'clang' in line
    assert line.endswith('so nftables classifies the packets of VMs')


def test_without_clang_there_are_no_programs(build, programs, monkeypatch):
    monkeypatch.setenv('PATH', '/nowhere')
    said, there, _ = build(False, 'int good;', one='int one;')
    assert programs.name not in there
    assert "No such file or directory: 'clang'" in said[0]


def test_kernels_that_share_functions_are_compiled_all_or_none():
    rater = 'virtco.scheduling.rater_kernel'
    alone = 'virtco.solver.moves.kernel'
    assert compiled.together([alone]) == {alone}
    scheduling = compiled.together([rater])
    assert rater in scheduling
    assert 'virtco.fluid.event_kernels' in scheduling
    assert alone not in scheduling
    # From whichever of them one starts.
    for name in scheduling:
        assert compiled.together([name]) == scheduling
    assert compiled.together([alone, rater]) == {alone} | scheduling


def test_without_what_they_share_none_is_compiled(build_kernels, tmp_path):
    command = build_kernels.BuildKernels(setuptools.Distribution({
        'ext_modules': build_kernels.extensions()}))
    said = []
    command.warn = said.append
    command.build_lib = tmp_path
    command.ensure_finalized()
    command.failed = {build_kernels.SHARED: 'no reason'}
    command._leave_out()
    assert command.extensions == []
    line, = said
    assert line.endswith(', '.join(sorted(compiled.KERNELS)))


def test_setup_builds_so():
    done = subprocess.run([sys.executable, '-c', '''
import setuptools
from distutils import core
found = core.run_setup('setup.py', ['build_ext'], stop_after='commandline')
print(found.get_command_class('build_ext').__name__)
print(*[one.name for one in found.ext_modules])
'''], cwd=ROOT, capture_output=True, text=True, check=True)
    command, names = done.stdout.splitlines()[-2:]
    assert command == 'BuildKernels'
    assert set(compiled.KERNELS) < set(names.split())
