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
"""Netlink messages of a BPF program at clsact's ingress of a device.

Pure bytes in and out, as in ``wire``; layouts of ``linux/pkt_cls.h``. The
filter is known as ours by its preference and its name, and the name also says
whether the qdisc it hangs on is ours.
"""

import dataclasses
import sys

from edge_module.privileged import kernel
from edge_module.qdisc import wire

# Ingress and egress of clsact; the former also of the plain ingress qdisc.
_INGRESS, _EGRESS = 0xFFFFFFF2, 0xFFFFFFF3
_PARENT = 0xFFFFFFF1
# After whoever claims the first place, before preferences that the kernel
# chooses.
PREF, _HANDLE = wire.R2Q_MARK, 1
_INFO = wire.filter_info(PREF, wire.ETH_P_ALL)
_FD, _NAME, _FLAGS, _PROGRAM_ID = 6, 7, 8, 11
_DIRECT_ACTION = 1
_KINDS = ('clsact', 'ingress')
_SHARED_NAME, _OWN_NAME = 'virtco', 'virtco-qdisc'


@dataclasses.dataclass(frozen=True, slots=True)
class Hook:
    """Our filter on one device.

    :ivar owns_qdisc: whether the qdisc was made for it.
    """

    ifindex: int
    program_id: int
    owns_qdisc: bool


def has_hooks(qdisc: wire.Qdisc) -> bool:
    """Whether filters can stand at ingress of this qdisc."""
    return qdisc.handle == wire.INGRESS_HANDLE and qdisc.kind in _KINDS


def add_qdisc(ifindex: int) -> wire.Message:
    return (wire.RTM_NEWQDISC, wire.NLM_F_CREATE | wire.NLM_F_EXCL,
            wire.TCMSG.pack(0, ifindex, wire.INGRESS_HANDLE, _PARENT, 0)
            + wire.attr(wire.KIND, b'clsact\0'))


def delete_qdisc(ifindex: int) -> wire.Message:
    return wire.RTM_DELQDISC, 0, wire.TCMSG.pack(
        0, ifindex, wire.INGRESS_HANDLE, _PARENT, 0)


def attach(ifindex: int, owns_qdisc: bool) -> wire.Message:
    """Set the filter, or give it another program without a gap.

    It is sent by ``bpf_attach``, which knows the program's descriptor.
    """
    name = _OWN_NAME if owns_qdisc else _SHARED_NAME
    options = (wire.attr(_NAME, name.encode() + b'\0')
               + wire.attr(_FLAGS, _DIRECT_ACTION.to_bytes(4, sys.byteorder))
               + wire.attr(_FD, kernel.FD_PLACE))
    return (wire.RTM_NEWTFILTER, wire.NLM_F_CREATE,
            wire.TCMSG.pack(0, ifindex, _HANDLE, _INGRESS, _INFO)
            + wire.attr(wire.KIND, b'bpf\0')
            + wire.attr(wire.OPTIONS, options))


def detach(ifindex: int) -> wire.Message:
    return wire.RTM_DELTFILTER, 0, wire.TCMSG.pack(
        0, ifindex, _HANDLE, _INGRESS, _INFO)


def dump_filters(ifindex: int) -> list[wire.Message]:
    """Requests for all filters of a device's hooks."""
    return [(wire.RTM_GETTFILTER, 0,
             wire.TCMSG.pack(0, ifindex, 0, parent, 0))
            for parent in (_INGRESS, _EGRESS)]


def read_hook(body: bytes) -> Hook | None:
    """Our filter; None for one of somebody else."""
    _, ifindex, handle, _, info = wire.TCMSG.unpack_from(body)
    attributes = dict(wire.attrs(body, wire.TCMSG.size))
    if (handle, info) != (_HANDLE, _INFO) or (
            attributes.get(wire.KIND) != b'bpf\0'):
        return None
    options = dict(wire.attrs(attributes.get(wire.OPTIONS, b''), 0))
    name = options.get(_NAME, b'').rstrip(b'\0').decode(errors='replace')
    if name not in (_SHARED_NAME, _OWN_NAME) or _PROGRAM_ID not in options:
        return None
    return Hook(ifindex, int.from_bytes(options[_PROGRAM_ID], sys.byteorder),
                name == _OWN_NAME)
