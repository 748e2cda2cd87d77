# SPDX-License-Identifier: Apache-2.0

"""Limits of VMs' ports, as the kernel enforces them on their devices.

libvirt sets a flavor's ``quota:vif_*`` on a tap, Neutron's agents the rules of
a port's QoS policy: an HTB or TBF limits what the VM receives, a policer at
the ingress of the device limits what it sends. Whoever set a limit, the device
has it, so the devices are the one source here.
"""

from collections.abc import Collection
from collections.abc import Iterator
import math
import struct

from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import wire

#: Most that a VM sends and receives, bit/s; None: no limit.
Caps = tuple[float | None, float | None]
NONE: Caps = (None, None)

_POLICE_PARMS, _POLICE_RATE64 = 1, 8
#: Bytes before the rate: index, action, limit, burst and MTU.
_POLICE_RATE_AT = struct.calcsize('=IiIII')
_ACT_KIND, _ACT_OPTIONS = 1, 2
#: Attributes of a filter's options that hold its policer, and its actions.
_IN_FILTER = {b'u32': (6, 7), b'basic': (4, 3), b'matchall': (None, 2)}


def read(ifindexes: Collection[int]) -> dict[int, Caps]:
    """Read the limits of devices; those without any are left out.

    :raises OSError: when the kernel refuses the dump.
    """
    found: dict[int, list[float | None]] = {}
    for body in kernel.tc_dump(wire.dump_request(wire.RTM_GETQDISC, 0)):
        _, ifindex, handle, parent, _ = wire.TCMSG.unpack_from(body)
        if ifindex not in ifindexes:
            continue
        caps = found.setdefault(ifindex, [None, None])
        if handle == wire.INGRESS_HANDLE:
            caps[0] = police_bps(kernel.tc_dump(wire.dump_request(
                wire.RTM_GETTFILTER, ifindex, wire.INGRESS_HANDLE)))
        elif parent == wire.TC_H_ROOT:
            kind, options = wire.kind_and_options(body)
            if kind == b'htb':
                caps[1] = htb_bps(kernel.tc_dump(wire.dump_request(
                    wire.RTM_GETTCLASS, ifindex)))
            elif kind == b'tbf':
                caps[1] = wire.shown_rate(options[wire.TBF_PARMS],
                                          options.get(wire.TBF_RATE64))
    return {ifindex: (caps[0], caps[1]) for ifindex, caps in found.items()
            if any(caps)}


def htb_bps(classes: Collection[bytes]) -> float | None:
    """Return the most that an HTB lets through one of its leaves, bit/s.

    A class lends up to its ceil; one at the top has nobody to borrow from and
    keeps to its rate.
    """
    most_bps, parents = {}, {}
    for body in classes:
        _, _, handle, parent, _ = wire.TCMSG.unpack_from(body)
        kind, options = wire.kind_and_options(body)
        if kind != b'htb':
            continue
        rate = options[wire.HTB_PARMS]
        most_bps[handle] = wire.shown_rate(rate, options.get(
            wire.HTB_RATE64)) if parent == wire.TC_H_ROOT else (
                wire.shown_rate(rate[wire.RATESPEC.size:],
                                options.get(wire.HTB_CEIL64)))
        parents[handle] = parent

    def through(handle: int) -> float:
        return (min(most_bps[handle], through(parents[handle]))
                if handle in parents else math.inf)

    return max(map(through, parents.keys() - set(parents.values())),
               default=None)


def police_bps(filters: Collection[bytes]) -> float | None:
    """Return the least rate of the policers of filters, bit/s."""
    return min((wire.shown_rate(
        options[_POLICE_PARMS][_POLICE_RATE_AT:],
        options.get(_POLICE_RATE64))
        for body in filters for options in _policers(body)
        if _POLICE_PARMS in options), default=None)


def _policers(body: bytes) -> Iterator[dict[int, bytes]]:
    """Yield the options of each policer of a filter."""
    kind, options = wire.kind_and_options(body)
    old, actions = _IN_FILTER.get(kind, (None, None))
    if old in options:
        yield dict(wire.attrs(options[old], 0))
    for _, action in wire.attrs(options.get(actions, b''), 0):
        found = dict(wire.attrs(action, 0))
        if found.get(_ACT_KIND, b'').rstrip(b'\0') == b'police':
            yield dict(wire.attrs(found.get(_ACT_OPTIONS, b''), 0))
