# SPDX-License-Identifier: Apache-2.0

"""The name of this run of tests, for whatever other runs can see.

Network namespaces and directories outside of pytest's own begin with it, so
that two runs beside each other on one machine do not meet. Devices, ports and
tables need no such name where they are in a namespace that has it. The
emulation's own names are :mod:`virtco_lab.emulation.namespaces`'.
"""

import itertools
import os
import secrets

#: No other live process has the number; one that ended may have left
#: something behind, which has another end.
PREFIX = f'vt{os.getpid()}{secrets.token_hex(2)}'
_numbers = itertools.count(1)


def another():
    """Name a thing of which this run has several."""
    return f'{PREFIX}n{next(_numbers)}'
