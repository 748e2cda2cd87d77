# SPDX-License-Identifier: Apache-2.0

"""Rates of virtual functions, which a network card enforces by itself. Pure.

A card switches packets of a virtual function past the host's tree. It limits
and guarantees the sum of what the function sends, and that of a group of
functions. A group of virtco is also the mark by which a rate is known as its
own after a restart.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import math
from typing import Annotated
from typing import Literal
from typing import NamedTuple

import msgspec

from edge_module.classify import classified as classify
from edge_module.tcplan import minors
from edge_module.tcplan import model

#: Cards take whole Mbit/s.
STEP_BPS = 10 ** 6
#: Group that another program made.
OTHERS = -1
#: Stands for the bus of a card without representors, whose address is then
#: the index of its own device. It has no groups: all its rates are virtco's.
CARD = 'vf'

_Name = Annotated[str, msgspec.Meta(pattern=r'\A[A-Za-z0-9_.:-]{1,64}\Z')]
_U32 = Annotated[int, msgspec.Meta(ge=0, lt=2 ** 32)]
#: Rate of a function in Mbit/s.
Mbps = Annotated[int, msgspec.Meta(ge=0, lt=10 ** 8)]


class Name(NamedTuple):
    """Key of a virtual function, or of a group of functions of one card.

    :ivar bus: bus of the card, such as ``pci``.
    :ivar card: address on the bus.
    :ivar port: number of the function at its card; None for a group.
    :ivar group: minor by which a group is named; 0 for a function.
    """

    bus: _Name
    card: _Name
    port: _U32 | None = None
    group: model.Minor = 0


class Rate(NamedTuple):
    """Rate of a function or group; 0 is no guarantee, limit or group.

    :ivar share_mbps: guaranteed.
    :ivar most_mbps: limit.
    :ivar group: group of a function; :data:`OTHERS` is not virtco's.
    """

    share_mbps: int = 0
    most_mbps: int = 0
    group: int = 0

    @property
    def is_others(self) -> bool:
        """Whether another program set it, so that it stays."""
        return self.group == OTHERS or not self.group and any(self)


class Step(NamedTuple):
    """Change of a function or group; None leaves a value.

    :ivar group: group that a function joins, 0 to leave the one it is in.
    """

    what: Literal['make', 'set', 'delete']
    name: Name
    share_mbps: Mbps | None = None
    most_mbps: Mbps | None = None
    group: model.Minor | None = None


Rates = dict[Name, Rate]


def of_ports(tree: model.Tree, entries: Mapping[classify.Entry, int],
             functions: Mapping[int, Name]) -> Rates:
    """Return the rates of functions whose VMs send for coflows, and those of
    their groups.

    A function is guaranteed its part of the rates of its classes; a class is
    divided equally among the ports of its flows. Its limit is the sum of the
    ceils, and the rate kept for traffic without a coflow, which the card
    cannot tell from it. Functions that send for one coflow alone are a group
    with the coflow's ceil; all others are in the group of the link.

    :param functions: functions by ifindex of the port.
    """
    users: dict[int, set[int]] = {}
    for entry, minor in entries.items():
        if minor in tree and model.is_data(minor):
            users.setdefault(minor, set()).add(entry.ifindex)
    found: Rates = {}
    for ifindex, name in functions.items():
        own = [tree[minor] for minor, ports in users.items()
               if ifindex in ports]
        if not own:
            continue
        ceils_bps: dict[int, int] = {}
        for item in own:
            ceils_bps[item.parent] = min(
                tree[item.parent].ceil_bps,
                ceils_bps.get(item.parent, 0) + item.ceil_bps)
        share_mbps = int(sum(item.rate_bps / len(users[item.minor])
                             for item in own) // STEP_BPS)
        group, *more = ceils_bps
        group = minors.LINK if more else group
        found[name] = Rate(share_mbps, _most_mbps(
            sum(ceils_bps.values()), tree), group)
        whole = name._replace(port=None, group=group)
        found[whole] = Rate(
            share_mbps + found.get(whole, Rate()).share_mbps,
            _most_mbps(tree[group].ceil_bps, tree))
    return found


def _most_mbps(ceil_bps: int, tree: model.Tree) -> int:
    """Return the limit of a function or group; 0 for that of the link.

    :param ceil_bps: sum of the ceils of its classes.
    """
    most_bps = ceil_bps + sum(tree[minor].rate_bps for minor in (
        minors.UNMANAGED, minors.CONTROL))
    return (0 if most_bps >= tree[minors.LINK].ceil_bps
            else math.ceil(most_bps / STEP_BPS))


def steps(have: Rates, wanted: Rates) -> Iterator[Step]:
    """Yield the changes from one state to another.

    A function joins its group before it has rates, and leaves it after, so
    that no rate is ever without the mark of its owner.
    """
    for name, rate in wanted.items():
        if name.port is None and have.get(name) != rate:
            yield Step('set' if name in have else 'make', name, *rate[:2])
    for name, before in have.items():
        rate = wanted.get(name, Rate())
        if name.port is None or before == rate or before.is_others:
            continue
        if name.bus == CARD:
            yield Step('set', name, *rate[:2])
            continue
        if before.group != rate.group:
            if before.group:
                yield Step('set', name, 0, 0)
                yield Step('set', name, group=0)
            if rate.group:
                yield Step('set', name, group=rate.group)
        if rate.group:
            yield Step('set', name, *rate[:2])
    for name in have.keys() - wanted.keys():
        if name.port is None:
            yield Step('delete', name)
