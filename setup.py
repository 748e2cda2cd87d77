# SPDX-License-Identifier: Apache-2.0

"""Compiles kernels and BPF; all else is in setup.cfg and pyproject.toml."""

import os
import pathlib
import shutil
import subprocess
import sys

import setuptools

# Where setup.cfg finds the command that compiles kernels.
sys.path.insert(0, str(pathlib.Path(__file__).parent / 'tools'))
import build_kernels

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


compile_bpf()
setuptools.setup(
    setup_requires=['pbr>=6.1.1'], pbr=True,
    ext_modules=build_kernels.extensions(),
    options={'build_ext': {'parallel': os.cpu_count()}})
