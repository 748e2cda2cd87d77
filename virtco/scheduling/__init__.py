# SPDX-License-Identifier: Apache-2.0

"""Coflow scheduling: who goes first, and at which rate.

Pure: no I/O and no clock. The controller, the emulated testbed and the
simulator call the same code.
"""

import virtco.compiled
from virtco.scheduling.order_and_rates import schedule

__all__ = ['schedule']

virtco.compiled.check()
