# SPDX-License-Identifier: Apache-2.0

"""How far this host's wall clock may be off.

Gates of one job at several hosts, and of jobs that share a link, refer to the
wall clock. Hypervisors keep it by NTP or PTP; the daemon that does so tells
the kernel how far it is off at most, which anybody may ask.
"""

import ctypes
import math
import struct

_TIME_ERROR = 5
# modes, offset, freq, maxerror, esterror, status of struct timex.
_TIMEX = struct.Struct('@Ilqqqi')
_BYTES = 512
_MICROSECONDS = 1e-6

_LIBC = ctypes.CDLL(None)


def error_s() -> float:
    """Estimated by the daemon; inf where no daemon keeps the clock."""
    asked = ctypes.create_string_buffer(_BYTES)
    if _LIBC.adjtimex(asked) in (-1, _TIME_ERROR):
        return math.inf
    return float(_TIMEX.unpack_from(asked)[4]) * _MICROSECONDS
