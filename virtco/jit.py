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

"""numba where it is installed, plain Python where it is not.

``NUMBA_DISABLE_JIT=1`` gives plain Python as well; both must agree, and a
test holds them to it.

numba keeps compiled functions on disk and compiles one again when *its own*
file changed, but not when the file of a function that it calls did: after an
update old kernels would live on inside their callers. So each package's
kernels are kept in a directory named after the state of all sources that they
can call. It lies in ``NUMBA_CACHE_DIR``, beside the sources, or in the user's
cache, whichever is the first that can be written; where none can (a service
user without a home, say) each process compiles for itself, which takes half a
minute and is all the difference.
"""

from collections.abc import Callable
import functools
import hashlib
import os
import pathlib
import shutil
import tempfile
from typing import Any

try:
    import numba
    # Its attributes come from the environment when numba is imported.
    _CONFIG: Any = numba.config
    AVAILABLE = True
except ImportError:  # pragma: no cover - depends on the machine
    AVAILABLE = False

_ROOT = pathlib.Path(__file__).parent
#: Packages whose kernels call those of others.
_CALLED = {'sim': ('scheduling',)}
#: Directories of former sources that stay (others may still run them).
_KEPT = 3


def compiled(function: Callable[..., Any], **options: Any
             ) -> Callable[..., Any]:
    """Decorate a kernel: scalars and numpy arrays in, arrays changed.

    :param options: of ``numba.njit``.
    """
    if not AVAILABLE:  # pragma: no cover - depends on the machine
        return function
    directory = _cache_directory(function.__module__.split('.')[1])
    usual = _CONFIG.CACHE_DIR
    _CONFIG.CACHE_DIR = directory or usual
    try:
        return numba.njit(cache=directory != '', **options)(function)
    finally:
        _CONFIG.CACHE_DIR = usual


@functools.cache
def _cache_directory(package: str) -> str:
    """Where the package's kernels are kept; empty where nothing can be."""
    digest = hashlib.sha256()
    for name in (package, *_CALLED.get(package, ())):
        for path in sorted((_ROOT / name).glob('*.py')):
            digest.update(path.read_bytes())
    for base in (_CONFIG.CACHE_DIR, _ROOT / package / '__pycache__',
                 '~/.cache/virtco'):
        if not base:
            continue
        kernels = pathlib.Path(base).expanduser() / 'virtco-kernels'
        directory = kernels / f'{package}-{digest.hexdigest()[:16]}'
        try:
            fresh = not directory.exists()
            directory.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=directory).close()
            os.utime(directory)
        except (OSError, RuntimeError):
            # Not ours to write; expanduser knows no home.
            continue
        if fresh:
            _drop_former(kernels, package)
        return str(directory)
    return ''


def _drop_former(kernels: pathlib.Path, package: str) -> None:
    """Keep the last used states of a package's kernels only."""
    used_at = []
    for directory in kernels.glob(f'{package}-*'):
        try:
            used_at.append((directory.stat().st_mtime_ns, directory))
        except FileNotFoundError:
            # Another process drops them too.
            continue
    for _, directory in sorted(used_at, reverse=True)[_KEPT + 1:]:
        shutil.rmtree(directory, ignore_errors=True)
