# SPDX-License-Identifier: Apache-2.0

"""Typed changes of the kernel that the agent may ask for.

Each operation builds its own netlink message or nft commands from its fields,
whose types and limits msgspec checks when the helper decodes them. No bytes of
the agent reach the kernel, and no text but addresses and names that are
matched in full.

nft is given its own language rather than JSON: libnftables 1.0.6 cannot read
``typeof`` maps and dynamic sets as JSON, and a transaction has one language.
"""

from collections.abc import Callable
from collections.abc import Iterable
import socket
from typing import Annotated
from typing import ClassVar
from typing import Literal

import msgspec

from edge_module.classify import classified as classify
from edge_module.classify import nft_text
from edge_module.qdisc import devlink
from edge_module.qdisc import redirect
from edge_module.qdisc import shared_root
from edge_module.qdisc import vf_link
from edge_module.qdisc import wire
from edge_module.tcplan import model
from edge_module.tcplan import vf_rates

IfIndex = Annotated[int, msgspec.Meta(ge=1, lt=2 ** 31)]
Device = Annotated[str, msgspec.Meta(
    pattern=r'\A[A-Za-z0-9][A-Za-z0-9_.-]{0,14}\Z')]
_U32 = Annotated[int, msgspec.Meta(ge=0, lt=2 ** 32)]
HookName = Literal['ingress', 'egress']


Part = Literal['root', 'instead', 'link', 'container', 'sieve', 'tree']


class Refused(PermissionError):
    """The helper refused an operation that no caller may ask for."""


class _Operation(msgspec.Struct, frozen=True, tag=True, array_like=True,
                 forbid_unknown_fields=True):
    """Something the agent may ask for, encoded as its name and fields."""


class _TcOperation(_Operation, frozen=True):
    """A change of queues on one device, made by one rtnetlink message.

    :cvar build: makes the message of the fields.
    """

    ifindex: IfIndex
    build: ClassVar[Callable[..., wire.Message]]

    def message(self) -> wire.Message:
        """Return the netlink message of this change."""
        return self.build(*msgspec.structs.astuple(self))


class AddRoot(_TcOperation, frozen=True):
    """Put an HTB at the root of a device that has no qdisc of its own."""

    build = staticmethod(wire.root_qdisc)


class Share(_TcOperation, frozen=True):
    """Make a part of an HTB that holds our tree beside others' classes.

    :ivar part: ``instead`` puts such an HTB in the place of our own root.
    """

    part: Part

    def message(self) -> wire.Message:
        """Return the netlink message of this change."""
        if self.part == 'instead':
            return shared_root.root(self.ifindex, instead=True)
        made: wire.Message = getattr(shared_root, self.part)(self.ifindex)
        return made


class SetClass(_TcOperation, frozen=True):
    """Create a class or change its parameters in place."""

    wanted: model.HtbClass
    build = staticmethod(wire.set_class)


class SetLeaf(_TcOperation, frozen=True):
    """Create the queue of a leaf class or change its limits in place."""

    wanted: model.HtbClass
    build = staticmethod(wire.set_leaf)


class DeleteClass(_TcOperation, frozen=True):
    """Delete a class and its queue."""

    minor: model.Minor
    build = staticmethod(wire.delete_class)


class AddIfb(_Operation, frozen=True):
    """Create the intermediate device that queues received packets.

    :ivar ifindex: 0, or that of the device, which is set up.
    """

    ifindex: Annotated[int, msgspec.Meta(ge=0, lt=2 ** 31)] = 0

    def message(self) -> wire.Message:
        return redirect.add_ifb(redirect.IFB_DEV, self.ifindex)


class AddIngress(_TcOperation, frozen=True):
    """Create the qdisc that filters of received packets belong to."""

    build = staticmethod(redirect.ingress_qdisc)


class Redirect(_TcOperation, frozen=True):
    """Send every received packet through the intermediate device."""

    ifb: IfIndex
    build = staticmethod(redirect.redirect_all)


class EndRedirect(_TcOperation, frozen=True):
    """Delete the filter of a redirection, whose target may be gone."""

    build = staticmethod(redirect.delete_redirect)


class MatchPair(_TcOperation, frozen=True):
    """Put the packets of a pair of addresses into a class."""

    key: classify.Entry
    minor: model.Minor
    build = staticmethod(redirect.match_pair)


class DeletePair(_TcOperation, frozen=True):
    """Delete the filter of a pair, by the numbers the kernel gave it."""

    handle: _U32
    info: _U32
    build = staticmethod(redirect.delete_pair)


class SetRate(_Operation, frozen=True):
    """Change a virtual function's rate, or a group of such functions."""

    step: vf_rates.Step

    def message(self) -> wire.Message:
        """Return the netlink message of this change."""
        return (vf_link.change if self.step.name.bus == vf_rates.CARD
                else devlink.change)(self.step)


TcOperation = (AddRoot | Share | SetClass | SetLeaf | DeleteClass | AddIfb
               | AddIngress | Redirect | EndRedirect | MatchPair | DeletePair
               | SetRate)


class _NftOperation(_Operation, frozen=True):
    """A change of virtco's table, made by commands of nft.

    :cvar build: makes the commands for a hook of the fields.
    """

    build: ClassVar[Callable[..., str]]

    def commands(self, hook: nft_text.Hook) -> str:
        """Return the commands for nft."""
        return self.build(hook, *msgspec.structs.astuple(self))


class DeleteTable(_NftOperation, frozen=True):
    """Delete the table of virtco."""

    build = staticmethod(nft_text.delete_table)


class AddTable(_NftOperation, frozen=True):
    """Create the table without ports, rules and entries."""

    build = staticmethod(nft_text.Hook.skeleton)


class ChangeMap(_NftOperation, frozen=True):
    """Delete and add elements of a map from a class, port or destination."""

    kind: classify.SmallMap
    stale: list[classify.MapKey]
    fresh: list[tuple[classify.MapKey, model.Minor]]
    build = staticmethod(nft_text.map_commands)


class ChangeEntries(_NftOperation, frozen=True):
    """Delete and add entries of flows."""

    stale: list[classify.Entry]
    fresh: list[tuple[classify.Entry, model.Minor]]

    def commands(self, hook: nft_text.Hook) -> str:
        """Return the commands for nft, after a check of every address.

        :raises virtco.exception.Invalid:
        """
        _check_addresses(self.stale)
        _check_addresses(entry for entry, _ in self.fresh)
        return nft_text.entry_commands(hook, self.stale, self.fresh)


class SetRules(_NftOperation, frozen=True):
    """Replace the rules for packets of flows and of none.

    :ivar names: rules for packets of flows.
    :ivar follows: whether destinations of other packets are followed.
    """

    names: list[nft_text.RuleName]
    follows: bool
    build = staticmethod(nft_text.Hook.set_rules)


class AttachPort(_NftOperation, frozen=True):
    """Classify the packets of a port.

    :ivar minor: minor of its own class.
    """

    dev: Device
    ifindex: IfIndex
    minor: model.Minor
    build = staticmethod(nft_text.port_chain)


class DetachPort(_NftOperation, frozen=True):
    """Delete all that there is of a port, whose device may be gone."""

    ifindex: IfIndex
    build = staticmethod(nft_text.delete_port_chain)


class AttachUplink(_NftOperation, frozen=True):
    """Tell the host's packets at an uplink from those of unknown ports.

    :ivar learns: whether to note who sends what arrives there.
    """

    dev: Device
    ifindex: IfIndex
    learns: bool
    build = staticmethod(nft_text.uplink_chain)


class DetachUplink(_NftOperation, frozen=True):
    """Delete all that there is of an uplink, which may be gone."""

    ifindex: IfIndex
    learns: bool
    build = staticmethod(nft_text.delete_uplink_chain)


ClassifyOperation = (
    DeleteTable | AddTable | ChangeMap | ChangeEntries | SetRules
    | AttachPort | DetachPort | AttachUplink | DetachUplink)


class MapListing(_Operation, frozen=True):
    """Request to read a map of the BPF programs, or their devices.

    :ivar ifindex: device whose cache is read.
    """

    what: Literal['devices', 'flows', 'macs', 'reached', 'settings', 'links',
                  'cache']
    ifindex: Annotated[int, msgspec.Meta(ge=0, lt=2 ** 31)] = 0


class Listing(_Operation, frozen=True):
    """Request to list virtco's table or a part of it.

    :ivar what: kind of object to list.
    :ivar name: name of one map or set; empty for the whole table.
    """

    what: Literal['table', 'map', 'set']
    name: Annotated[str, msgspec.Meta(
        pattern=r'\A(?:(?:in|e)gress_[a-z0-9]{1,16}|peers[46]_[0-9]{1,10})?\Z'
        )] = ''

    def command(self) -> str:
        """Return the line for nft that asks for the listing."""
        return f'list {self.what} {nft_text.TABLE} {self.name}\n'


def _check_addresses(entries: Iterable[classify.Entry]) -> None:
    """Check that entries hold addresses, not host names.

    nft would look host names up.

    :raises Refused: for text that is no address of the entry's family.
    """
    for entry in entries:
        family = socket.AF_INET6 if entry.is_ipv6 else socket.AF_INET
        for address in (entry.src_ip, entry.dst_ip):
            try:
                socket.inet_pton(family, address)
            except (OSError, ValueError) as error:
                raise Refused(f'address {address[:40]!r} is not of '
                              f'{family.name}') from error
