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
"""What kind of thing a network device is, as the kernel says it."""

import socket
import struct

from edge_module.privileged import kernel
from edge_module.qdisc import wire

_RTM_GETLINK = 18
_IFINFOMSG = struct.Struct('=BxHiII')
_IFLA_MASTER, _IFLA_LINKINFO, _INFO_KIND = 10, 18, 1


def may_be_port(dev: str) -> bool:
    """Whether it is a port of a switch or a tap, or not there at all."""
    try:
        ifindex = socket.if_nametoindex(dev)
        found = dict(wire.attrs(_link(ifindex), _IFINFOMSG.size))
    except OSError:
        return True  # the kernel refuses it
    info = dict(wire.attrs(found.get(_IFLA_LINKINFO, b''), 0))
    return _IFLA_MASTER in found or info.get(_INFO_KIND, b'').rstrip(
        b'\0') == b'tun'


def _link(ifindex: int) -> bytes:
    return kernel.ask((_RTM_GETLINK, 0, _IFINFOMSG.pack(
        0, 0, ifindex, 0, 0)))
