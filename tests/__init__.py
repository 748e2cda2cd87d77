# SPDX-License-Identifier: Apache-2.0

"""Tests of all distributions, as they lie in this tree.

The laboratory and the tenants' tools go before installed ones, in this
process and in those that it starts.
"""

import os
import pathlib
import sys

_ROOT = pathlib.Path(__file__).parents[1]
_PATHS = [str(_ROOT / name) for name in ('', 'lab', 'tenant')]

sys.path[:0] = _PATHS
os.environ['PYTHONPATH'] = os.pathsep.join(
    [*_PATHS, *filter(None, [os.environ.get('PYTHONPATH')])])
