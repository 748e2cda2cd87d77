# SPDX-License-Identifier: Apache-2.0

"""Compiles kernels and BPF; all else is in setup.cfg and pyproject.toml."""

import os
import pathlib
import runpy
import shutil
import subprocess

import setuptools

try:
    from Cython.Build import cythonize
except ImportError:  # The kernels run as plain Python.
    cythonize = None

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
#: What Cython needs for typed buffers, compiled once for all kernels.
SHARED = 'virtco._buffers'

#: A program for Linux, with the compilers that may make it, newest last.
BPF = pathlib.Path('edge_module/shaper/edt.c')
CLANGS = ('clang-14', 'clang-16', 'clang-19', 'clang')


def compile_bpf():
    """Beside its source, from where it is packed; not without clang.

    Not a command of its own: pbr replaces those that setup() names.
    """
    out = BPF.with_suffix('.o')
    clang = [found for found in map(shutil.which, CLANGS) if found]
    if not clang or (out.exists()
                     and out.stat().st_mtime > BPF.stat().st_mtime):
        return
    done = subprocess.run(
        [clang[-1], '-O2', '-g', '-Wall', '-Werror', '-target', 'bpf',
         '-mcpu=v3', f'-I/usr/include/{os.uname().machine}-linux-gnu', '-c',
         BPF, '-o', out], capture_output=True, text=True)
    if done.returncode:
        print(f'{BPF} is not compiled: {done.stderr}')


def extensions():
    """One for each kernel, and one for what they share.

    Without a compiler they are left out.
    """
    if cythonize is None:
        return []
    compiled = runpy.run_path('virtco/compiled.py')
    for name in compiled['KERNELS']:
        # build_ext goes by times of change, which do not always tell.
        if compiled['state'](name) == 'stale':
            compiled['source'](name).touch()
    kernels = [
        setuptools.Extension(
            name, [name.replace('.', '/') + '.py'], optional=True,
            depends=[str(path) for path in compiled['sources'](name)],
            extra_compile_args=COMPILER, extra_link_args=[
                '-Wl,--build-id=0x' + compiled['digest'](name)])
        for name in compiled['KERNELS']]
    shared = setuptools.Extension(
        SHARED, [SHARED.replace('.', '/') + '.c'], optional=True,
        extra_compile_args=['-g0'])
    return cythonize(
        [shared, *kernels], build_dir='build/kernels', quiet=True,
        compiler_directives=DIRECTIVES, shared_utility_qualified_name=SHARED)


compile_bpf()
setuptools.setup(
    setup_requires=['pbr>=6.1.1'], pbr=True, ext_modules=extensions(),
    options={'build_ext': {'parallel': os.cpu_count()}})
