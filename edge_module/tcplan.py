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

from edge_module import minors
from virtco.table import edge_policy
from virtco import units

ROOT = minors.ROOT
LINK_MINOR = minors.LINK
DEFAULT_MINOR = minors.HOST
# Of what unmanaged VMs send; coflows beyond the seventh and the host come
# before them.
LOWEST_PRIO = edge_policy.PRIOS - 1
LAST_COFLOW_PRIO = HOST_PRIO = LOWEST_PRIO - 1
# Parts of what a policy guarantees to all that is not a coflow's data.
HOST_PART, CONTROL_PART = 0.25, 0.5
# Of the link at most, for all control packets together. A receiver of full
# frames that acknowledges each second one sends 2.9 % of their bytes back.
CONTROL_CEIL_SHARE = 0.06
# A host's request or answer goes at once, although its guarantee is small.
HOST_BURST_BYTES = 64 * 1024
# Acknowledgements are cumulative: rather lose some than let all wait.
CONTROL_LEAF_BYTES = 4096
# Of one coflow, before another one's control packets have their turn.
CONTROL_QUANTUM_BYTES = 256
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
    :ivar overhead_bytes: what the wire adds to each frame.
    :ivar frame_min_bytes: what the shortest frame takes on the wire.
    :ivar burst_bytes: what a class may save up at least; not read back.
    """

    minor: int
    parent: int
    rate_bps: int
    ceil_bps: int
    prio: int
    quantum_bytes: int
    limit_bytes: int | None
    packet_bytes: int | None = None
    overhead_bytes: int = 0
    frame_min_bytes: int = 0
    burst_bytes: int = dataclasses.field(default=0, compare=False)

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
    :ivar link_packet_s: so does every leaf of a link on which it takes longer:
        the host's packets would wait for it there. 0: none does.
    :ivar frame_bytes: longest frame of the uplink; None never cuts.
    :ivar overhead_bytes: see :class:`HtbClass`, as the next one.
    """

    leaf_s: float = 0.025
    min_leaf_bytes: int = 128 * 1024
    max_leaf_bytes: int = 64 * 1024 * 1024
    min_quantum_bytes: int = 64 * 1024
    max_quantum_bytes: int = 1024 * 1024
    floor_bps: int = 8000
    super_packet_s: float = 0.1
    owed_s: float = 0.5
    link_packet_s: float = 0.0
    frame_bytes: int | None = None
    overhead_bytes: int = 0
    frame_min_bytes: int = 0

    def on_link(self, link_bps: float) -> 'TreeSettings':
        """The same, where all leaves cut if the link is too slow."""
        takes_s = SUPER_PACKET_BYTES * units.BITS_PER_BYTE / link_bps
        if not 0 < self.link_packet_s < takes_s:
            return self
        return dataclasses.replace(self, super_packet_s=1e-9)

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
    """What stands without any policy and port.

    The host has a leaf of its own, the default class. What VMs send unmanaged
    and the coflows' control packets share the rest of ``default_rate_bps``;
    their leaves come with ports and coflows.
    """
    link = _whole(link_bps)
    settings = settings.on_link(link_bps)
    default = min(link, _whole(default_rate_bps))
    host, control = (_whole(part * default)
                     for part in (HOST_PART, CONTROL_PART))
    shared = max(IDLE_RATE_BPS, default - host)
    leaf = _shared_leaf(link, default, settings)

    def inner(minor: int, parent: int, rate_bps: int, ceil_bps: int
              ) -> HtbClass:
        return _on_wire(HtbClass(minor, parent, rate_bps, ceil_bps, 0,
                                 settings.min_quantum_bytes, None), settings)

    return {item.minor: item for item in (
        inner(LINK_MINOR, ROOT, link, link),
        _on_wire(HtbClass(DEFAULT_MINOR, LINK_MINOR, host, link, HOST_PRIO,
                          settings.min_quantum_bytes, *leaf,
                          burst_bytes=HOST_BURST_BYTES), settings),
        inner(minors.SHARED, LINK_MINOR, shared, link),
        inner(minors.UNMANAGED, minors.SHARED,
              max(IDLE_RATE_BPS, shared - control), link),
        inner(minors.CONTROL, minors.SHARED, min(control, shared),
              max(control, _whole(CONTROL_CEIL_SHARE * link))))}


def receiver_tree(link_bps: float, default_rate_bps: float, minor: int,
                  settings: TreeSettings) -> Tree:
    """Link, default, and one class ``minor`` for all coflows together."""
    base = base_tree(link_bps, default_rate_bps, settings)
    link = base[LINK_MINOR]
    leaf = _shared_leaf(link_bps, link_bps, settings)
    default = HtbClass(
        DEFAULT_MINOR, LINK_MINOR, min(link.rate_bps, _whole(
            default_rate_bps)), link.ceil_bps, LOWEST_PRIO,
        settings.min_quantum_bytes, *leaf)
    return {item.minor: item for item in (link, _on_wire(default, settings), (
        _on_wire(dataclasses.replace(
            default, minor=minor, rate_bps=link.rate_bps - default.rate_bps,
            prio=0), settings)))}


def _on_wire(item: HtbClass, settings: TreeSettings) -> HtbClass:
    return dataclasses.replace(item, overhead_bytes=settings.overhead_bytes,
                               frame_min_bytes=settings.frame_min_bytes)


def _shared_leaf(link_bps: float, default_rate_bps: float,
                 settings: TreeSettings) -> tuple[int, int]:
    """Length by what is guaranteed, for that may be all it drains at."""
    return (leaf_limit_bytes(default_rate_bps, settings),
            leaf_packet_bytes(default_rate_bps, link_bps, settings))


def _port_class(minor: int, base: Tree, settings: TreeSettings) -> HtbClass:
    """Unmanaged traffic of a VM's port: all ports take turns.

    Without a guarantee of its own a leaf can only borrow, from its parent
    first: so the parent's is shared, however many there are.
    """
    host = base[DEFAULT_MINOR]
    return dataclasses.replace(
        host, minor=minor, parent=minors.UNMANAGED, rate_bps=IDLE_RATE_BPS,
        prio=LOWEST_PRIO, burst_bytes=0)


def _control_class(coflow_minor: int, base: Tree, settings: TreeSettings
                   ) -> HtbClass:
    """Control packets of a coflow: before all else, and never many."""
    parent = base[minors.CONTROL]
    return dataclasses.replace(
        parent, minor=minors.of_control(coflow_minor), parent=minors.CONTROL,
        rate_bps=IDLE_RATE_BPS, quantum_bytes=CONTROL_QUANTUM_BYTES,
        limit_bytes=max(CONTROL_LEAF_BYTES, leaf_limit_bytes(
            parent.rate_bps, dataclasses.replace(
                settings, min_leaf_bytes=CONTROL_LEAF_BYTES))),
        packet_bytes=WHOLE_BYTES)


def build_tree(policy: edge_policy.EdgePolicy, link_bps: float,
               settings: TreeSettings = TreeSettings(),
               fair: bool = False, ports: Iterable[int] = ()) -> Tree:
    """The tree a policy asks for on a link.

    Guaranteed rates that do not fit beside what is kept for all else are
    scaled down together; a ceil never exceeds the link.

    :param link_bps: speed of the uplink; the policy's egress_bps if less.
    :param fair: ignore order and rates and share equally among coflows: what
        a policy decays to when no controller renews it.
    :param ports: indexes of the VM ports' devices.
    """
    link_bps = min(link_bps, policy.egress_bps)
    settings = settings.on_link(link_bps)
    base = base_tree(link_bps, policy.default_rate_bps, settings)
    tree = dict(base)
    for minor in sorted({minors.of_port(ifindex) for ifindex in ports}):
        tree[minor] = _port_class(minor, base, settings)
    classes = _fair(policy.classes, link_bps) if fair else policy.classes
    scale = _scale(classes, link_bps - _kept_bps(base), settings)
    last = 0
    for coflow in classes:
        is_last = coflow.prio >= LAST_COFLOW_PRIO
        first_quantum = _first_quantum(last if is_last else None, settings)
        last += is_last
        for htb_class in _coflow_classes(coflow, link_bps, scale, settings,
                                         first_quantum):
            tree[htb_class.minor] = _on_wire(htb_class, settings)
        control = _control_class(coflow.minor, base, settings)
        tree[control.minor] = control
    return tree


def _first_quantum(position: int | None, settings: TreeSettings) -> int:
    """The least quantum of a coflow's leaves.

    The kernel knows no order among the coflows of the last priority; their
    turns are as much longer as they come earlier there.

    :param position: among those of the last priority; None for the others.
    """
    if position is None:
        return settings.min_quantum_bytes
    return max(settings.min_quantum_bytes,
               settings.max_quantum_bytes >> min(position + 2, 60))


def _kept_bps(tree: Mapping[int, HtbClass]) -> int:
    """What is guaranteed to all but the coflows' data."""
    return sum(tree[minor].rate_bps for minor in (minors.SHARED,
                                                  DEFAULT_MINOR)
               if minor in tree)


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
                    scale: float, settings: TreeSettings,
                    least_quantum: int) -> Iterable[HtbClass]:
    prio = min(coflow.prio, LAST_COFLOW_PRIO)
    child_rates = [_whole(max(settings.floor_bps, child.rate_bps) * scale)
                   for child in coflow.destinations]
    # No child is without a rate: the least ones may be more than their part.
    rate = max(sum(child_rates),
               _whole(_coflow_rate(coflow, settings) * scale))
    ceil = max(rate, _whole(min(coflow.ceil_bps, link_bps)))
    leaf = ((None, None) if coflow.destinations else
            (leaf_limit_bytes(ceil, settings),
             leaf_packet_bytes(rate, ceil, settings)))
    # Only leaves have a priority: the kernel changes no inner class's.
    yield HtbClass(coflow.minor, LINK_MINOR, rate, ceil,
                   0 if coflow.destinations else prio,
                   settings.min_quantum_bytes if coflow.destinations
                   else least_quantum, *leaf)
    weights = [child.weight for child in coflow.destinations
               if child.weight > 0]
    least = min(weights, default=1.0)
    for child, child_rate in zip(coflow.destinations, child_rates,
                                 strict=True):
        child_ceil = max(child_rate, _whole(min(child.ceil_bps, ceil)))
        quantum = min(settings.max_quantum_bytes, int(
            least_quantum * max(1.0, child.weight / least)))
        yield HtbClass(child.minor, coflow.minor, child_rate, child_ceil,
                       prio, quantum,
                       leaf_limit_bytes(child_ceil, settings),
                       leaf_packet_bytes(child_rate, child_ceil, settings))


def hold(tree: Tree, current: Mapping[int, HtbClass],
         leaves: Iterable[int], settings: TreeSettings) -> Tree:
    """The tree in which some leaves still send what they have queued.

    Without it they would owe for that what it takes at their new rate. They
    keep of their guarantee what a super-packet asks for, those that stay may
    borrow as much as it asks for, and those that leave stay. The guarantees of
    others shrink in proportion where that would over-commit the link.

    :param current: the classes as they are, with ``leaves`` among them.
    """
    leaves = set(leaves)
    if not leaves:
        return tree
    held = dict(tree)
    room_bps = (held[LINK_MINOR].rate_bps - _kept_bps(held)
                - sum(tree[minor].rate_bps for minor in leaves & tree.keys()))
    most_bps = min(settings.whole_rate_bps, room_bps / len(leaves))
    for minor in leaves:
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
    return _shrink(held, leaves, max(held[LINK_MINOR].rate_bps,
                                     guaranteed_bps(tree)))


def _let_borrow(held: Tree, minor: int, settings: TreeSettings) -> None:
    """Raise the ceil of a leaf and of the classes above it."""
    while minor in held and minor != LINK_MINOR:
        held[minor] = dataclasses.replace(held[minor], ceil_bps=max(
            held[minor].ceil_bps, min(held[LINK_MINOR].ceil_bps,
                                      _whole(settings.whole_ceil_bps))))
        minor = held[minor].parent


def _shrink(tree: Tree, kept: Container[int], most_bps: int) -> Tree:
    """Scale guarantees so that they fit, but for what is no coflow's data.

    :param most_bps: the link; a few bytes more where the least rates of many
        classes exceed it.
    """
    kept_bps = {minor: item.rate_bps for minor, item in tree.items()
                if minor in kept}
    within_bps = _children_bps({minor: tree[minor] for minor in kept_bps})
    total_bps = guaranteed_bps(tree)
    fixed_bps = _kept_bps(tree) + sum(kept_bps.values())
    if total_bps <= most_bps:
        return tree
    scale = max(0, most_bps - fixed_bps) / max(1, total_bps - fixed_bps)

    def scaled(item: HtbClass) -> HtbClass:
        if item.minor in kept_bps or not is_data(item.minor):
            return item
        own_bps = within_bps.get(item.minor, 0)
        return dataclasses.replace(item, rate_bps=own_bps + _whole(
            scale * (item.rate_bps - own_bps)))

    return {minor: scaled(item) for minor, item in tree.items()}


def is_data(minor: int) -> bool:
    """Whether it is a coflow's or a destination's class."""
    return edge_policy.FIRST_MINOR <= minor <= edge_policy.LAST_MINOR


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
    of ``raise_``. What stands without a policy never does: it carries traffic
    from the first moment, as all classes may when the tree was lost. One that
    leaves keeps its place, idle and last, until nothing can be sent to it any
    more. A class that stands under another parent cannot be moved: it leaves,
    and the next update creates it.
    """
    fits = _all_fit(current, desired)
    create: list[HtbClass] = []
    lower: list[HtbClass] = []
    raise_: list[HtbClass] = []
    for minor in sorted(desired, key=lambda key: (_depth(desired, key), key)):
        wanted = desired[minor]
        have = current.get(minor)
        if have is None and (fits or minor in minors.RESERVED):
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
