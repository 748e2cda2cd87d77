# SPDX-License-Identifier: Apache-2.0

"""How many examples a law is tried with."""

import os

_IS_FULL = os.environ.get('VIRTCO_TEST_GEAR') == 'full'
#: What the default gear leaves out of expensive laws.
_DIVISOR = 1 if _IS_FULL else 4
#: Of a law that says nothing else; hypothesis' own default in full.
USUAL = 100 if _IS_FULL else 50


def count(full: int) -> int:
    """Scale the number of examples of an expensive law to the gear.

    The default gear takes a quarter, but never fewer than 15.
    """
    return max(min(full, 15), full // _DIVISOR)
