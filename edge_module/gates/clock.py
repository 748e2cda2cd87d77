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
