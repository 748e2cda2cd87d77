# SPDX-License-Identifier: Apache-2.0

"""The command build_ext: compile what can be, and say what cannot.

setup.cfg names the command, since pbr replaces those that setup() is given.
"""

import os
import pathlib
import platform
import runpy
import shutil
import subprocess

import setuptools
from setuptools import errors
from setuptools.command import build_ext

try:
    from Cython import Build as cython_build
except ImportError:
    cython_build = None

DIRECTIVES = {
    'language_level': 3,
    # Kernels are checked against their plain selves, which check indices.
    'boundscheck': False,
    'wraparound': False,
    'initializedcheck': False,
    'cdivision': True,
    'infer_types': True,
}
# The same rounding as Python's: no fused multiplications, no reordering.
COMPILER = ['-O3', '-g0', '-ffp-contract=off', '-fno-math-errno',
            '-fno-trapping-math']
if platform.machine() in ('x86_64', 'AMD64'):
    # An instruction of every such processor since 2008 counts bits.
    COMPILER.append('-mpopcnt')
#: What Cython needs for typed buffers, compiled once for all kernels.
SHARED = 'virtco._buffers'

#: Programs of the edge module for the kernel, and their package.
BPF = pathlib.Path('edge_module/classify/classify.c')
BPF_PACKAGE = 'edge_module.classify'
#: The compiler; Debian's packages of one version have no name without it.
CLANGS = ('clang', 'clang-19', 'clang-16', 'clang-14')
# A start loads the programs again where their file is another one, so it
# does not depend on the directory of the build.
CLANG = ['-O2', '-g', '-fdebug-compilation-dir=.', '-Wall', '-Werror',
         '-target', 'bpf', '-mcpu=v3', f'-D__{platform.machine()}__',
         f'-I/usr/include/{platform.machine()}-linux-gnu']

COMPILED = runpy.run_path(
    pathlib.Path(__file__).parents[1] / 'virtco' / 'compiled.py')


def extensions():
    """One for each kernel, and one for what they share."""
    return [
        setuptools.Extension(
            SHARED, [SHARED.replace('.', '/') + '.c'],
            extra_compile_args=['-g0']),
        *(setuptools.Extension(
            name, [name.replace('.', '/') + '.py'],
            depends=[os.path.relpath(path)
                     for path in COMPILED['sources'](name)],
            extra_compile_args=COMPILER, extra_link_args=[
                '-Wl,--build-id=0x' + COMPILED['digest'](name)])
          for name in COMPILED['KERNELS'])]


def _reason(error):
    cause = error.args[0] if error.args else error
    if isinstance(cause, subprocess.CalledProcessError):
        return f'{cause.cmd[0]} ended with {cause.returncode}'
    return str(cause)


class BuildKernels(build_ext.build_ext):
    """Leaves out what does not compile: its source runs in its place.

    Setuptools' own ``Extension(optional=True)`` would not do: Cython drops
    it, and what a kernel shares with others has to be left out with it.
    """

    command_name = 'build_ext'

    def initialize_options(self):
        super().initialize_options()
        self.failed = {}
        self._programs = []
        self._beside_sources = False

    def run(self):
        # The base class forgets it while it compiles.
        self._beside_sources = self.inplace
        super().run()

    def build_extensions(self):
        self._compile_bpf()
        if cython_build is None:
            self.failed = dict.fromkeys(
                (one.name for one in self.extensions),
                'Cython is not installed')
        else:
            self._translate()
            super().build_extensions()
        if self.failed:
            self._leave_out()

    def build_extension(self, ext):
        try:
            super().build_extension(ext)
        # Each is the base of others in some version of setuptools.
        except (errors.BaseError, errors.CCompilerError,
                errors.CompileError) as error:
            self.failed[ext.name] = _reason(error)

    def get_outputs(self):
        return [*super().get_outputs(), *self._programs]

    def _compile_bpf(self):
        """Compile the edge module's programs, for a wheel and beside their
        source.
        """
        if BPF_PACKAGE not in (self.distribution.packages or ()):
            return
        built = BPF.with_suffix('.bpf.o')
        target = pathlib.Path(self.build_lib) / built
        target.parent.mkdir(parents=True, exist_ok=True)
        # One of an earlier build.
        target.unlink(missing_ok=True)
        if self._beside_sources:
            built.unlink(missing_ok=True)
        clang = next(filter(None, map(shutil.which, CLANGS)), 'clang')
        try:
            subprocess.run(
                [clang, *CLANG, '-c', BPF, '-o', target], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = _reason(errors.CompileError(error))
            self.warn(f'NOT COMPILED ({reason}): {BPF}, so nftables '
                      'classifies the packets of VMs')
            return
        self._programs = [str(target)]
        if self._beside_sources:
            shutil.copy(target, built)

    def _translate(self):
        """Have Cython write C."""
        for name in COMPILED['KERNELS']:
            # build_ext goes by times of change, which do not always tell.
            if COMPILED['state'](name) == 'stale':
                COMPILED['source'](name).touch()
        translated = {one.name: one for one in cython_build.cythonize(
            self.extensions, build_dir='build/kernels', quiet=True,
            compiler_directives=DIRECTIVES,
            shared_utility_qualified_name=SHARED)}
        for ext in self.extensions:
            ext.sources = translated[ext.name].sources
            ext.depends = translated[ext.name].depends

    def _leave_out(self):
        """Neither install what failed nor what would look for it."""
        # All of them import what they share.
        plain = ({one.name for one in self.extensions}
                 if SHARED in self.failed
                 else COMPILED['together'](self.failed))
        for name in plain:
            # One of an earlier build.
            built = pathlib.Path(self.get_ext_filename(name))
            (self.build_lib / built).unlink(missing_ok=True)
            if self._beside_sources:
                built.unlink(missing_ok=True)
        self.extensions[:] = [
            one for one in self.extensions if one.name not in plain]
        if not self.extensions:
            # A wheel without them is one for every machine.
            if 'bdist_wheel' in self.distribution.command_obj:
                self.get_finalized_command('bdist_wheel').root_is_pure = True
        reasons = sorted(set(self.failed.values()))
        self.warn(
            f'NOT COMPILED ({"; ".join(reasons)}), so these kernels run as '
            'plain Python, some hundred times slower: '
            f'{", ".join(sorted(plain - {SHARED}))}')
