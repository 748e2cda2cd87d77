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
"""The speed of a network device."""

from pyroute2 import Ethtool

from virtco import exception

_UNKNOWN = (0, 0xFFFF, 0xFFFFFFFF, -1)


def speed_bps(dev: str) -> float:
    """Speed that a device reports, in bits per second.

    :raises virtco.exception.NotFound: when it reports none.
    """
    ethtool = Ethtool()
    try:
        mode = ethtool.get_link_mode(dev)
        mbps = mode.speed
    except Exception as error:  # drivers and kernels answer in many ways
        raise exception.NotFound(what='link speed of', id=dev) from error
    finally:
        ethtool.close()
    if mbps is None or mbps in _UNKNOWN:
        raise exception.NotFound(what='link speed of', id=dev)
    return float(mbps) * 1e6
