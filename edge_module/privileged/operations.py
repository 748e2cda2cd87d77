# SPDX-License-Identifier: Apache-2.0

"""Typed changes of the kernel that the agent may ask for.

Each operation builds its own netlink messages from its fields, whose types
and limits msgspec checks when the helper decodes them. No bytes and no text
of the agent reach the kernel.
"""

from typing import Annotated

import msgspec

from edge_module.classify import classified as classify
from edge_module.qdisc import redirect
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from edge_module.tcplan import model

IfIndex = Annotated[int, msgspec.Meta(ge=1, lt=2 ** 31)]
_U32 = Annotated[int, msgspec.Meta(ge=0, lt=2 ** 32)]


class _TcOperation(msgspec.Struct, frozen=True, tag=True, array_like=True,
                   forbid_unknown_fields=True):
    """A change of queues on one device."""

    ifindex: IfIndex

    def message(self) -> wire.Message:
        """The rtnetlink message that makes the change."""
        raise NotImplementedError


class AddRoot(_TcOperation, frozen=True):
    """Put an HTB at the root of a device that has no qdisc of its own."""

    def message(self) -> wire.Message:
        return wire.root_qdisc(self.ifindex, minors.HOST)


class SetClass(_TcOperation, frozen=True):
    """Create a class or change its parameters in place."""

    wanted: model.HtbClass

    def message(self) -> wire.Message:
        return wire.set_class(self.ifindex, self.wanted)


class SetLeaf(_TcOperation, frozen=True):
    """Create the queue of a leaf class or change its limits in place."""

    wanted: model.HtbClass

    def message(self) -> wire.Message:
        return wire.set_leaf(self.ifindex, self.wanted)


class DeleteClass(_TcOperation, frozen=True):
    """Delete a class and its queue."""

    minor: model.Minor

    def message(self) -> wire.Message:
        return wire.delete_class(self.ifindex, self.minor)


class AddIfb(msgspec.Struct, frozen=True, tag=True, array_like=True,
             forbid_unknown_fields=True):
    """Create the intermediate device that queues received packets."""

    def message(self) -> wire.Message:
        return redirect.add_ifb(redirect.IFB_DEV)


class AddIngress(_TcOperation, frozen=True):
    """Create the qdisc that filters of received packets belong to."""

    def message(self) -> wire.Message:
        return redirect.ingress_qdisc(self.ifindex)


class Redirect(_TcOperation, frozen=True):
    """Send every received packet through the intermediate device."""

    ifb: IfIndex

    def message(self) -> wire.Message:
        return redirect.redirect_all(self.ifindex, self.ifb)


class MatchPair(_TcOperation, frozen=True):
    """Put the packets of a pair of addresses into a class."""

    key: classify.Key
    minor: model.Minor

    def message(self) -> wire.Message:
        return redirect.match_pair(self.ifindex, self.key, self.minor)


class DeletePair(_TcOperation, frozen=True):
    """Delete the filter of a pair, by the numbers the kernel gave it."""

    handle: _U32
    info: _U32

    def message(self) -> wire.Message:
        return redirect.delete_pair(self.ifindex, self.handle, self.info)


TcOperation = (AddRoot | SetClass | SetLeaf | DeleteClass | AddIfb
               | AddIngress | Redirect | MatchPair | DeletePair)
