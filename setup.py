# SPDX-License-Identifier: Apache-2.0

"""Compiles kernels; all else is in setup.cfg and pyproject.toml."""

import os
import pathlib
import sys

import setuptools

# Where setup.cfg finds the command that compiles kernels.
sys.path.insert(0, str(pathlib.Path(__file__).parent / 'tools'))
import build_kernels

setuptools.setup(
    setup_requires=['pbr>=6.1.1'], pbr=True,
    ext_modules=build_kernels.extensions(),
    options={'build_ext': {'parallel': os.cpu_count()}})
