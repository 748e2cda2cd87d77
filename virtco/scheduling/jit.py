# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Compiled where numba is there, plain Python where it is not.

``NUMBA_DISABLE_JIT=1`` gives plain Python as well; both must agree, and a
test holds them to it.

numba keeps compiled functions on disk and compiles one again when *its own*
file changed, but not when the file of a function that it calls did: after an
update old kernels would live on inside their callers. So the cache has a
directory per state of all sources that hold kernels.
"""

from collections.abc import Callable
import functools
import hashlib
import os
import pathlib
from typing import Any

try:
    import numba
    AVAILABLE = True
except ImportError:  # pragma: no cover - depends on the machine
    AVAILABLE = False

_HERE = pathlib.Path(__file__).parent
#: Packages with kernels that call each other.
_PACKAGES = (_HERE, _HERE.parent / 'sim')


@functools.cache
def _cache_directory() -> str:
    """Where compiled kernels go; empty to leave it to numba."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted(package.glob('*.py')):
            digest.update(path.read_bytes())
    base = pathlib.Path(numba.config.CACHE_DIR or _HERE / '__pycache__')
    if not os.access(base if base.exists() else base.parent, os.W_OK):
        base = pathlib.Path('~/.cache').expanduser()
    directory = base / f'virtco-kernels-{digest.hexdigest()[:16]}'
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ''
    return str(directory)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a kernel: scalars and numpy arrays in, arrays changed."""
    if not AVAILABLE:  # pragma: no cover - depends on the machine
        return function
    usual = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = _cache_directory() or usual
    try:
        return numba.njit(cache=True)(function)
    finally:
        numba.config.CACHE_DIR = usual
