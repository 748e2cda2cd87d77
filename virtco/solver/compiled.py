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

"""How the solver's kernels are compiled, and run without that.

They use one-dimensional arrays and plain loops only, so that the same source
runs compiled on numpy arrays and interpreted on lists. Each kernel lives in
one file with all that it calls, where :func:`interpreted` finds it.
"""

from collections.abc import Callable
import types
from typing import Any

from virtco import jit as machine

COMPILED = machine.AVAILABLE


def jit(function: Callable[..., Any]) -> Any:
    """Compile with a cache on disk; ``.py_func`` is the plain function.

    The kernels allocate nothing, and without reference counting (_nrt) of
    every array in the state they run thirteen times as fast.
    """
    kernel = machine.compiled(function, error_model='numpy', _nrt=False)
    if not hasattr(kernel, 'py_func'):
        setattr(kernel, 'py_func', function)
    return kernel


def interpreted(kernel: Any) -> Callable[..., Any]:
    """The same kernel, with all it calls from its file, not compiled."""
    scope = dict(kernel.py_func.__globals__)
    for name, value in list(scope.items()):
        if hasattr(value, 'py_func'):
            scope[name] = types.FunctionType(value.py_func.__code__, scope,
                                             name)
    plain: Callable[..., Any] = scope[kernel.py_func.__name__]
    return plain
