# SPDX-License-Identifier: Apache-2.0

"""Compiles a mutant of a kernel as setup.py compiles the kernel."""

import ast
import pathlib
import runpy
import shutil

from Cython import Build
import setuptools
from setuptools.command import build_ext

from tests.mutation import areas
from virtco import compiled

_SETTINGS = runpy.run_path(str(areas.ROOT / 'tools' / 'build_kernels.py'))


def is_kernel(path: str) -> bool:
    return areas.module_name(path) in compiled.KERNELS


def install(name: str, tree: ast.Module, folder: pathlib.Path
            ) -> pathlib.Path:
    """Put a kernel's mutant in the place of its source in this process.

    :func:`virtco.compiled.plain` runs the mutant, too: equality with the
    plain kernel tells nothing of a change in the source of both.

    :returns: the file to import: compiled where the kernel itself is.
    :raises Exception: where the mutant does not compile.
    """
    is_compiled = compiled.state(name) == 'compiled'
    source = folder.joinpath(*name.split('.')).with_suffix('.py')
    source.parent.mkdir(parents=True)
    source.write_text(ast.unparse(tree))
    declared = compiled.source(name).with_suffix('.pxd')
    if declared.exists():
        shutil.copy(declared, source.parent)
    original = compiled.source
    compiled.source = lambda other: (
        source if other == name else original(other))
    if not is_compiled:
        return source
    extension, = Build.cythonize(
        [setuptools.Extension(
            name, [str(source)],
            # Of the options that follow, the last one holds.
            extra_compile_args=[*_SETTINGS['COMPILER'], '-O1'],
            extra_link_args=['-Wl,--build-id=0x' + compiled.digest(name)])],
        build_dir=str(folder / 'c'), include_path=[str(areas.ROOT)],
        quiet=True, compiler_directives=_SETTINGS['DIRECTIVES'],
        shared_utility_qualified_name=_SETTINGS['SHARED'])
    command = build_ext.build_ext(
        setuptools.Distribution({'ext_modules': [extension]}))
    command.build_lib, command.build_temp = str(folder), str(folder / 'o')
    command.ensure_finalized()
    command.run()
    return pathlib.Path(command.get_ext_fullpath(name))
