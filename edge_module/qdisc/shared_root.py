# SPDX-License-Identifier: Apache-2.0

"""Netlink messages that put our tree into an HTB of Open vSwitch or OVN.

Both put an HTB ``1:`` at the root of a device, with one class ``1:fffe`` for
the link, and a class ``1:q+1`` below it for each queue q of less than 0xf000.
They delete classes of queues that they do not want, and leave higher ones. So
our tree is in a class ``1:fffd`` of its own, where a filter puts all packets
that are in no queue. A packet that ``set_queue`` put into a queue has its
class as priority, and the kernel looks at that first.
"""

import dataclasses

from edge_module.qdisc import redirect
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from edge_module.tcplan import model
from virtco import units

HANDLE = wire.INSIDE & 0xffff0000
LINK = HANDLE | 0xfffe
#: Least minor of a class that is no queue's.
NO_QUEUE = 0xf001
#: Divisor by which a root is known as ours. It decides nothing, as each class
#: names its quantum.
R2Q_MARK = wire.R2Q_MARK + 1
# Open vSwitch's class of queue 0, which takes packets that no filter matches.
_DEFAULT = 1
# The filter is known as ours by its preference.
_INFO = wire.filter_info(wire.R2Q_MARK, wire.ETH_P_ALL)
# Rate of the class for the link, as in Open vSwitch's own tree.
_MOST_BPS = (2 ** 32 - 1) * units.BITS_PER_BYTE
_LINK = model.HtbClass(LINK & 0xffff, minors.ROOT, _MOST_BPS, _MOST_BPS, 0,
                       64 * 1024, None)
# As Open vSwitch guarantees to each queue: the rest is borrowed, so that all
# keep to the limit of the class for the link.
_CONTAINER = dataclasses.replace(
    _LINK, minor=wire.INSIDE & 0xffff, parent=_LINK.minor,
    rate_bps=1500 * units.BITS_PER_BYTE)


def root(ifindex: int, instead: bool = False) -> wire.Message:
    """Put an HTB with the layout of Open vSwitch at the root of a device.

    :param instead: in the place of the qdisc that is there, else where there
        is none.
    """
    return wire.new_htb(ifindex, HANDLE, wire.TC_H_ROOT, R2Q_MARK, _DEFAULT,
                        wire.NLM_F_REPLACE if instead else wire.NLM_F_EXCL)


def link(ifindex: int) -> wire.Message:
    """Create the class for the link."""
    return wire.set_class(ifindex, _LINK, HANDLE, wire.NLM_F_EXCL)


def container(ifindex: int) -> wire.Message:
    """Create the class that holds our tree."""
    return wire.set_class(ifindex, _CONTAINER, HANDLE, wire.NLM_F_EXCL)


def sieve(ifindex: int) -> wire.Message:
    """Put packets that are in no queue into that class."""
    return redirect.match_all(ifindex, HANDLE, _INFO, wire.INSIDE)


def is_sieve(body: bytes) -> bool:
    """Return whether a filter is one of :func:`sieve`."""
    return bool(wire.TCMSG.unpack_from(body)[4] == _INFO)


def tree(ifindex: int) -> wire.Message:
    """Create our HTB in that class."""
    return wire.new_htb(ifindex, wire.ROOT_HANDLE, wire.INSIDE, wire.R2Q_MARK,
                        minors.HOST, wire.NLM_F_EXCL)


def is_ours(root: wire.Qdisc) -> bool:
    """Return whether a qdisc is one of :func:`root`."""
    return root.handle == HANDLE and root.r2q == R2Q_MARK


def removal(ifindex: int, with_root: bool) -> list[wire.Message]:
    """Return the messages that delete our classes and filters.

    :param with_root: also the HTB around our tree.
    """
    if with_root:
        return [wire.tc(wire.RTM_DELQDISC, 0, ifindex, HANDLE,
                        wire.TC_H_ROOT)]
    return [wire.tc(wire.RTM_DELTFILTER, 0, ifindex, 0, HANDLE, _INFO),
            wire.tc(wire.RTM_DELTCLASS, 0, ifindex, wire.INSIDE)]
