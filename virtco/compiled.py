# SPDX-License-Identifier: Apache-2.0

"""Kernels: modules that Cython compiles when the package is built.

Python prefers the compiled module to its source. Without a compiler the
source runs as it stands, with the same answers, some hundred times slower.
A compiled module carries the digest of its source as its build id, so that
one left over from before an edit is refused.

``python -m virtco.compiled`` lists the kernels and fails unless all are
compiled from their present sources. See doc/source/contributor/kernels.rst.
"""

from collections.abc import Iterable
import functools
import hashlib
import importlib.machinery
import importlib.util
import logging
import pathlib
import sys
import types
from typing import Any

LOG = logging.getLogger(__name__)

#: Kernels that setup.py compiles, each after the kernels that it calls.
KERNELS = (
    'virtco.scheduling.rater_kernel',
    'virtco.scheduling.order_kernel',
    'virtco.scheduling.rate_kernel',
    'virtco.fluid.run_kernels',
    'virtco.fluid.event_kernels',
    'virtco.fluid.flow_kernels',
    'virtco.advise.kernels',
    'virtco.solver.bounds.sets_kernel',
    'virtco.solver.enumeration_kernel',
    'virtco.solver.moves.kernel',
    'virtco.solver.model.loads_kernel',
    'virtco.solver.moves.rank_kernel',
)
_ROOT = pathlib.Path(__file__).parent.parent


def source(name: str) -> pathlib.Path:
    """Return the path of a kernel's source."""
    return _ROOT.joinpath(*name.split('.')).with_suffix('.py')


def partners(name: str) -> list[str]:
    """Name the kernels whose C functions and structures a kernel uses."""
    text = source(name).read_text()
    return [other for other in KERNELS if f'cython.cimports.{other} ' in text]


def together(names: Iterable[str]) -> set[str]:
    """Add to kernels their partners, whose partners they are, and so on.

    They are compiled all or none: plain Python sees no C functions, and
    compiled code finds none in plain Python.
    """
    found = set(names)
    links = {name: partners(name) for name in KERNELS}
    while more := {other for name, others in links.items()
                   if not found.isdisjoint((name, *others))
                   for other in (name, *others)} - found:
        found |= more
    return found


def sources(name: str) -> list[pathlib.Path]:
    """List the files that a kernel is compiled from."""
    return [source(name), *(
        path for other in (*partners(name), name)
        if (path := source(other).with_suffix('.pxd')).exists())]


def digest(name: str) -> str:
    """Compute the digest of all files that a kernel is compiled from."""
    found = hashlib.sha1(usedforsecurity=False)
    for path in sources(name):
        found.update(path.read_bytes())
    return found.hexdigest()


def state(name: str) -> str:
    """Return 'compiled', 'plain' or 'stale' (built from another source)."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        binary = source(name).with_suffix(suffix)
        if binary.exists():
            current = bytes.fromhex(digest(name)) in binary.read_bytes()
            return 'compiled' if current else 'stale'
    return 'plain'


@functools.cache
def check() -> None:
    """Log once the kernels that are not compiled; their packages call it.

    :raises ImportError: when a compiled kernel is not that of its source.
    """
    states = {name: state(name) for name in KERNELS}
    stale = [name for name in KERNELS if states[name] == 'stale']
    if stale:
        raise ImportError(f'compiled from another source than the present '
                          f'one: {", ".join(stale)}; run tools/setup')
    slow = [name for name in KERNELS if states[name] == 'plain']
    if slow:
        LOG.warning('Planning and scheduling take a hundred times as long '
                    'as they need to; not compiled: %s', ', '.join(slow))


def views(**fields: Any) -> dict[str, Any]:
    """Convert a kernel's fields: arrays become Python's own buffers.

    Compiled or not, kernels write into the caller's arrays. Plain ones then
    work with Python's own numbers, which are faster than numpy's.
    """
    return {name: memoryview(value) if hasattr(value, '__array__') else value
            for name, value in fields.items()}


def plain(name: str) -> types.ModuleType:
    """Run a kernel's module from its source, to compare with.

    Kernels that it imports are plain, too.
    """
    # A package that is first imported below would find half of its kernels.
    for other in KERNELS:
        importlib.import_module(other.rpartition('.')[0])
    before = {other: sys.modules.get(other) for other in KERNELS}
    try:
        for other in KERNELS[:KERNELS.index(name) + 1]:
            spec = importlib.util.spec_from_file_location(
                other, source(other))
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            _install(other, module)
            spec.loader.exec_module(module)
        return module
    finally:
        for other, loaded in before.items():
            _install(other, loaded)


def _install(name: str, module: types.ModuleType | None) -> None:
    """Make the module the one that import statements find, or none."""
    package, _, attribute = name.rpartition('.')
    if module is None:
        sys.modules.pop(name, None)
        if package in sys.modules:
            vars(sys.modules[package]).pop(attribute, None)
    else:
        sys.modules[name] = module
        setattr(importlib.import_module(package), attribute, module)


def main() -> int:
    """Print the state of each kernel; return 0 if all are compiled."""
    states = {name: state(name) for name in KERNELS}
    for name in KERNELS:
        print(name, states[name])
    return int(set(states.values()) != {'compiled'})


if __name__ == '__main__':
    sys.exit(main())
