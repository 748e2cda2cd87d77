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
"""From a policy to an HTB tree, and from one tree to another.

Pure: no I/O, no clock. :func:`build_tree` says what the tree should be,
:func:`plan_update` how the kernel's tree becomes that one without an instant
at which a managed flow is unshaped or the port over-committed.
"""

from collections.abc import Container
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import math

from virtco.table import edge_policy
from virtco import units

ROOT = 0
LINK_MINOR = edge_policy.ROOT_MINOR
DEFAULT_MINOR = edge_policy.DEFAULT_MINOR
LOWEST_PRIO = edge_policy.PRIOS - 1
# What a class is guaranteed before its turn comes and after its time: HTB
# wants a positive rate, a whole number of bytes per second. Whatever it sends
# then, it owes for a minute, also at another rate: HTB keeps debts as times.
IDLE_RATE_BPS = units.BITS_PER_BYTE
# Of GSO over IPv4; with IPv6 there may be longer ones, up to 512 KB.
SUPER_PACKET_BYTES = 64 * 1024
WHOLE_BYTES = 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class HtbClass:
    """One class of the tree.

    :ivar parent: minor of the parent, :data:`ROOT` for the qdisc itself.
    :ivar rate_bps: guaranteed, a multiple of 8.
    :ivar ceil_bps: limit with what is borrowed, a multiple of 8.
    :ivar limit_bytes: length of the leaf's queue; None for an inner class.
    :ivar packet_bytes: the largest packet that a leaf passes whole; longer
        super-packets are cut into frames. None for an inner class.
    """

    minor: int
    parent: int
    rate_bps: int
    ceil_bps: int
    prio: int
    quantum_bytes: int
    limit_bytes: int | None
    packet_bytes: int | None = None

    def same_parameters(self, other: 'HtbClass') -> bool:
        """Whether the class itself, without its leaf, is the same."""
        return dataclasses.replace(
            self, limit_bytes=other.limit_bytes,
            packet_bytes=other.packet_bytes) == other

    def same_leaf(self, other: 'HtbClass') -> bool:
        return (self.limit_bytes, self.packet_bytes) == (
            other.limit_bytes, other.packet_bytes)


Tree = dict[int, HtbClass]


@dataclasses.dataclass(frozen=True, slots=True)
class TreeSettings:
    """What the operator decides about the shape of the tree.

    :ivar leaf_s: length of a leaf's queue in time at its ceil.
    :ivar floor_bps: a class with less would not be heard of again for long.
    :ivar super_packet_s: a leaf at whose ceil a super-packet takes longer
        cuts it up. HTB charges a packet in whole to its class, and what the
        class then owes is a time, which stays when its rate rises: one
        super-packet at 0.2 Mbit/s holds it for 2.6 s.
    :ivar owed_s: so does one at whose guaranteed rate it takes this long: it
        may borrow, but has no guarantee until that time is over.
    :ivar frame_bytes: longest frame of the uplink; None never cuts.
    """

    leaf_s: float = 0.025
    min_leaf_bytes: int = 128 * 1024
    max_leaf_bytes: int = 64 * 1024 * 1024
    min_quantum_bytes: int = 64 * 1024
    max_quantum_bytes: int = 1024 * 1024
    floor_bps: int = 8000
    super_packet_s: float = 0.1
    owed_s: float = 0.5
    frame_bytes: int | None = None

    @property
    def whole_ceil_bps(self) -> int:
        """The least ceil at which a leaf passes super-packets whole."""
        return math.ceil(SUPER_PACKET_BYTES * units.BITS_PER_BYTE
                         / self.super_packet_s)

    @property
    def whole_rate_bps(self) -> int:
        """The least guarantee at which a leaf passes them whole."""
        return math.ceil(SUPER_PACKET_BYTES * units.BITS_PER_BYTE
                         / self.owed_s)


@dataclasses.dataclass(frozen=True, slots=True)
class Update:
    """Steps in the order in which they are sent to the kernel.

    ``leave`` lists classes that nothing is sent to any more once the
    classification is replaced; they are deleted after a grace period,
    children first.
    """

    create: tuple[HtbClass, ...] = ()
    lower: tuple[HtbClass, ...] = ()
    raise_: tuple[HtbClass, ...] = ()
    leave: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.create or self.lower or self.raise_)


def _whole(rate_bps: float) -> int:
    """Round down to what the kernel can hold: whole bytes per second."""
    return max(IDLE_RATE_BPS, int(rate_bps // units.BITS_PER_BYTE)
               * units.BITS_PER_BYTE)


def leaf_limit_bytes(ceil_bps: float, settings: TreeSettings) -> int:
    """Length of a leaf: leaf_s at ceil, to the next power of two.

    The power of two keeps the queue as it is while rates change a little.
    """
    wanted = units.bps_to_bytes_per_s(ceil_bps) * settings.leaf_s
    if wanted <= settings.min_leaf_bytes:
        return settings.min_leaf_bytes
    return min(settings.max_leaf_bytes,
               int(2 ** math.ceil(math.log2(wanted))))


def leaf_packet_bytes(rate_bps: float, ceil_bps: float,
                      settings: TreeSettings) -> int:
    """The largest packet that a leaf passes whole."""
    if settings.frame_bytes is None or (
            ceil_bps >= settings.whole_ceil_bps
            and rate_bps >= settings.whole_rate_bps):
        return WHOLE_BYTES
    return settings.frame_bytes


def base_tree(link_bps: float, default_rate_bps: float,
              settings: TreeSettings) -> Tree:
    """Link class and default class: what stands without any policy."""
    link = _whole(link_bps)
    return {
        LINK_MINOR: HtbClass(LINK_MINOR, ROOT, link, link, 0,
                             settings.min_quantum_bytes, None),
        DEFAULT_MINOR: HtbClass(
            DEFAULT_MINOR, LINK_MINOR, min(link, _whole(default_rate_bps)),
            link, LOWEST_PRIO, settings.min_quantum_bytes,
            leaf_limit_bytes(link, settings),
            # Its guarantee does not change, nor does what it owes.
            leaf_packet_bytes(link, link, settings)),
    }


def build_tree(policy: edge_policy.EdgePolicy, link_bps: float,
               settings: TreeSettings = TreeSettings(),
               fair: bool = False) -> Tree:
    """The tree a policy asks for on a link.

    Guaranteed rates that do not fit beside the default class are scaled down
    together; a ceil never exceeds the link.

    :param link_bps: speed of the uplink; the policy's egress_bps if less.
    :param fair: ignore order and rates and share equally among coflows: what
        a policy decays to when no controller renews it.
    """
    link_bps = min(link_bps, policy.egress_bps)
    tree = base_tree(link_bps, policy.default_rate_bps, settings)
    classes = _fair(policy.classes, link_bps) if fair else policy.classes
    scale = _scale(classes, link_bps - tree[DEFAULT_MINOR].rate_bps, settings)
    for coflow in classes:
        for htb_class in _coflow_classes(coflow, link_bps, scale, settings):
            tree[htb_class.minor] = htb_class
    return tree


def _fair(classes: tuple[edge_policy.CoflowClass, ...], link_bps: float
          ) -> tuple[edge_policy.CoflowClass, ...]:
    share_bps = link_bps / max(1, len(classes))
    return tuple(dataclasses.replace(
        coflow, rate_bps=share_bps, ceil_bps=link_bps, prio=0,
        destinations=tuple(dataclasses.replace(
            child, rate_bps=child.weight * share_bps, ceil_bps=link_bps)
            for child in coflow.destinations)) for coflow in classes)


def _coflow_rate(coflow: edge_policy.CoflowClass, settings: TreeSettings
                 ) -> float:
    children = sum(max(settings.floor_bps, child.rate_bps)
                   for child in coflow.destinations)
    return max(settings.floor_bps, coflow.rate_bps, children)


def _scale(classes: Iterable[edge_policy.CoflowClass], room_bps: float,
           settings: TreeSettings) -> float:
    """Factor that makes the guaranteed rates fit into room_bps."""
    total = sum(_coflow_rate(coflow, settings) for coflow in classes)
    return 1.0 if total <= room_bps else max(0.0, room_bps) / total


def _coflow_classes(coflow: edge_policy.CoflowClass, link_bps: float,
                    scale: float, settings: TreeSettings
                    ) -> Iterable[HtbClass]:
    rate = _whole(_coflow_rate(coflow, settings) * scale)
    ceil = max(rate, _whole(min(coflow.ceil_bps, link_bps)))
    leaf = ((None, None) if coflow.destinations else
            (leaf_limit_bytes(ceil, settings),
             leaf_packet_bytes(rate, ceil, settings)))
    # Only leaves have a priority: the kernel changes no inner class's.
    yield HtbClass(coflow.minor, LINK_MINOR, rate, ceil,
                   0 if coflow.destinations else coflow.prio,
                   settings.min_quantum_bytes, *leaf)
    weights = [child.weight for child in coflow.destinations
               if child.weight > 0]
    least = min(weights, default=1.0)
    for child in coflow.destinations:
        child_rate = _whole(max(settings.floor_bps, child.rate_bps) * scale)
        child_ceil = max(child_rate, _whole(min(child.ceil_bps, ceil)))
        quantum = min(settings.max_quantum_bytes, int(
            settings.min_quantum_bytes * max(1.0, child.weight / least)))
        yield HtbClass(child.minor, coflow.minor, child_rate, child_ceil,
                       coflow.prio, quantum,
                       leaf_limit_bytes(child_ceil, settings),
                       leaf_packet_bytes(child_rate, child_ceil, settings))


def hold(tree: Tree, current: Mapping[int, HtbClass], minors: Iterable[int],
         settings: TreeSettings) -> Tree:
    """The tree in which some leaves still send what they have queued.

    Without it they would owe for that what it takes at their new rate. They
    keep of their guarantee what a super-packet asks for, those that stay may
    borrow as much as it asks for, and those that leave stay. The guarantees of
    others shrink in proportion where that would over-commit the link.

    :param current: the classes as they are, with ``minors`` among them.
    """
    minors = set(minors)
    if not minors:
        return tree
    held = dict(tree)
    room_bps = (held[LINK_MINOR].rate_bps - held[DEFAULT_MINOR].rate_bps
                - sum(tree[minor].rate_bps for minor in minors & tree.keys()))
    most_bps = min(settings.whole_rate_bps, room_bps / len(minors))
    for minor in minors:
        keep_bps = _whole(min(current[minor].rate_bps, most_bps))
        if minor in tree:
            _let_borrow(held, minor, settings)
            keep_bps = max(keep_bps, held[minor].rate_bps)
        held[minor] = dataclasses.replace(held.get(minor, current[minor]),
                                          rate_bps=keep_bps)
        parent = held[minor].parent
        if parent != LINK_MINOR and parent not in held:
            held[parent] = dataclasses.replace(current[parent],
                                               rate_bps=IDLE_RATE_BPS)
    for minor, rate_bps in _children_bps(held).items():
        if minor in held and minor != LINK_MINOR:
            held[minor] = dataclasses.replace(
                held[minor], rate_bps=max(rate_bps, held[minor].rate_bps))
    return _shrink(held, minors)


def _let_borrow(held: Tree, minor: int, settings: TreeSettings) -> None:
    """Raise the ceil of a leaf and of the classes above it."""
    while minor in held and minor != LINK_MINOR:
        held[minor] = dataclasses.replace(held[minor], ceil_bps=max(
            held[minor].ceil_bps, min(held[LINK_MINOR].ceil_bps,
                                      _whole(settings.whole_ceil_bps))))
        minor = held[minor].parent


def _shrink(tree: Tree, kept: Container[int]) -> Tree:
    """Scale guarantees so that they fit; the default class's is kept too."""
    kept_bps = {minor: item.rate_bps for minor, item in tree.items()
                if minor in kept}
    within_bps = _children_bps({minor: tree[minor] for minor in kept_bps})
    total_bps = guaranteed_bps(tree)
    fixed_bps = tree[DEFAULT_MINOR].rate_bps + sum(kept_bps.values())
    link_bps = tree[LINK_MINOR].rate_bps
    if total_bps <= link_bps:
        return tree
    scale = max(0, link_bps - fixed_bps) / max(1, total_bps - fixed_bps)

    def scaled(item: HtbClass) -> HtbClass:
        if item.minor in kept_bps or item.minor in (LINK_MINOR,
                                                    DEFAULT_MINOR):
            return item
        own_bps = within_bps.get(item.minor, 0)
        return dataclasses.replace(item, rate_bps=own_bps + _whole(
            scale * (item.rate_bps - own_bps)))

    return {minor: scaled(item) for minor, item in tree.items()}


def _children_bps(tree: Mapping[int, HtbClass]) -> dict[int, int]:
    """Sum of the children's rates, by parent."""
    found: dict[int, int] = {}
    for item in tree.values():
        found[item.parent] = found.get(item.parent, 0) + item.rate_bps
    return found


def guaranteed_bps(tree: Mapping[int, HtbClass]) -> int:
    """Sum of the guaranteed rates that compete for the link.

    Per child of the link class the larger of its own rate and its
    children's: the kernel grants both.
    """
    children = _children_bps(tree)
    return sum(max(htb_class.rate_bps, children.get(htb_class.minor, 0))
               for htb_class in tree.values()
               if htb_class.parent == LINK_MINOR)


def _all_fit(current: Mapping[int, HtbClass],
             desired: Mapping[int, HtbClass]) -> bool:
    """Whether all that is missing may get its rate beside what stands."""
    return guaranteed_bps({**desired, **current}) <= max(
        guaranteed_bps(current), guaranteed_bps(desired))


def _depth(tree: Mapping[int, HtbClass], minor: int) -> int:
    depth = 0
    while minor in tree and depth < 8:
        minor = tree[minor].parent
        depth += 1
    return depth


def plan_update(current: Mapping[int, HtbClass],
                desired: Mapping[int, HtbClass]) -> Update:
    """Steps from the kernel's tree to the desired one.

    A new class starts idle where its rate would over-commit the link in front
    of ``raise_``. Link and default class never do: they carry traffic from the
    first moment, as all classes may when the tree was lost. One that leaves
    keeps its place, idle and last, until nothing can be sent to it any more.
    A class that stands under another parent cannot be moved: it leaves, and
    the next update creates it.
    """
    fits = _all_fit(current, desired)
    create: list[HtbClass] = []
    lower: list[HtbClass] = []
    raise_: list[HtbClass] = []
    for minor in sorted(desired, key=lambda key: (_depth(desired, key), key)):
        wanted = desired[minor]
        have = current.get(minor)
        if have is None and (fits or minor in (LINK_MINOR, DEFAULT_MINOR)):
            create.append(wanted)
        elif have is None:
            create.append(dataclasses.replace(
                wanted, rate_bps=min(wanted.rate_bps, IDLE_RATE_BPS)))
            raise_.append(wanted)
        elif have.parent == wanted.parent and have != wanted:
            (lower if wanted.rate_bps < have.rate_bps else raise_).append(
                wanted)
    # Leaves first, the link last: what is guaranteed never exceeds it.
    lower.reverse()
    leaving = [minor for minor, have in current.items()
               if minor not in desired
               or desired[minor].parent != have.parent]
    for minor in sorted(leaving):
        idle = dataclasses.replace(current[minor], rate_bps=IDLE_RATE_BPS,
                                   prio=LOWEST_PRIO)
        if idle != current[minor]:
            lower.append(idle)
    return Update(tuple(create), tuple(lower), tuple(raise_), tuple(sorted(
        leaving, key=lambda key: (-_depth(current, key), key))))
