# SPDX-License-Identifier: Apache-2.0

"""What tree a policy asks for. Pure."""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import math
import types

from edge_module.tcplan import minors
from edge_module.tcplan import model
from edge_module.tcplan import turns as turns_of_ports
from virtco import units
from virtco.wire import edge_policy

# The kernel looks at a class's priority only when its queue begins: all
# coflows have the same one, and turns keep their order.
COFLOW_PRIO, HOST_PRIO = 0, model.LOWEST_PRIO - 1
# Of the turn of the coflow before it.
TURN_PART = 8
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


def base_tree(link_bps: float, default_rate_bps: float,
              settings: model.TreeSettings) -> model.Tree:
    """What stands without any policy and port.

    The host has a leaf of its own, the default class. What VMs send unmanaged
    and control packets share the rest of ``default_rate_bps``;
    their leaves come with ports and coflows.
    """
    link = model.whole_bps(link_bps)
    settings = settings.on_link(link_bps)
    default = min(link, model.whole_bps(default_rate_bps))
    host, control = (model.whole_bps(part * default)
                     for part in (HOST_PART, CONTROL_PART))
    shared = max(model.IDLE_RATE_BPS, default - host)
    leaf = _shared_leaf(link, default, settings)

    def inner(minor: int, parent: int, rate_bps: int, ceil_bps: int
              ) -> model.HtbClass:
        return _on_wire(model.HtbClass(
            minor, parent, rate_bps, ceil_bps, 0, settings.min_quantum_bytes,
            None), settings)

    return {item.minor: item for item in (
        inner(minors.LINK, minors.ROOT, link, link),
        _on_wire(model.HtbClass(
            minors.HOST, minors.LINK, host, link, HOST_PRIO,
            settings.min_quantum_bytes, *leaf,
            burst_bytes=HOST_BURST_BYTES), settings),
        inner(minors.SHARED, minors.LINK, shared, link),
        inner(minors.UNMANAGED, minors.SHARED,
              max(model.IDLE_RATE_BPS, shared - control), link),
        inner(minors.CONTROL, minors.SHARED, min(control, shared),
              max(control, model.whole_bps(CONTROL_CEIL_SHARE * link))))}


def receiver_tree(link_bps: float, default_rate_bps: float, minor: int,
                  settings: model.TreeSettings) -> model.Tree:
    """Link, default, and one class ``minor`` for all coflows together."""
    base = base_tree(link_bps, default_rate_bps, settings)
    link = base[minors.LINK]
    leaf = _shared_leaf(link_bps, link_bps, settings)
    default = model.HtbClass(
        minors.HOST, minors.LINK,
        min(link.rate_bps, model.whole_bps(default_rate_bps)), link.ceil_bps,
        model.LOWEST_PRIO, settings.min_quantum_bytes, *leaf)
    return {item.minor: item for item in (link, _on_wire(default, settings), (
        _on_wire(dataclasses.replace(
            default, minor=minor, rate_bps=link.rate_bps - default.rate_bps,
            prio=0), settings)))}


def _on_wire(item: model.HtbClass, settings: model.TreeSettings
             ) -> model.HtbClass:
    return dataclasses.replace(item, overhead_bytes=settings.overhead_bytes,
                               frame_min_bytes=settings.frame_min_bytes)


def _shared_leaf(link_bps: float, default_rate_bps: float,
                 settings: model.TreeSettings) -> tuple[int, int]:
    """Length by what is guaranteed, for that may be all it drains at."""
    return (model.leaf_limit_bytes(default_rate_bps, settings),
            model.leaf_packet_bytes(default_rate_bps, link_bps, settings))


def _port_class(minor: int, base: model.Tree) -> model.HtbClass:
    """Unmanaged traffic of a VM's port: all ports take turns.

    Without a guarantee of its own a leaf can only borrow, from its parent
    first: so the parent's is shared, however many there are.
    """
    host = base[minors.HOST]
    return dataclasses.replace(
        host, minor=minor, parent=minors.UNMANAGED,
        rate_bps=model.IDLE_RATE_BPS, prio=model.LOWEST_PRIO, burst_bytes=0)


def _with_turn(item: model.HtbClass, turn: float,
               settings: model.TreeSettings) -> model.HtbClass:
    """Shorten the turn of a port's class.

    A packet may be no longer than the turn: the kernel sends one in each.
    """
    quantum_bytes = int(item.quantum_bytes * turn)
    packet_bytes = item.packet_bytes
    if turn <= turns_of_ports.FLOOD_TURN and settings.frame_bytes is not None:
        packet_bytes = settings.frame_bytes
    return dataclasses.replace(item, quantum_bytes=quantum_bytes,
                               packet_bytes=packet_bytes)


def _limit_classes(unmanaged: edge_policy.Unmanaged, factor: float,
                   default_bps: float, base: model.Tree,
                   settings: model.TreeSettings, seats: Iterable[int]
                   ) -> Iterable[model.HtbClass]:
    """A class per limited destination, in which all ports take turns."""
    parent = base[minors.UNMANAGED]
    slots = {0: unmanaged.others_bps,
             **{limit.slot: limit.rate_bps for limit in unmanaged.limits}}
    for slot, rate_bps in slots.items():
        ceil_bps = model.whole_bps(min(factor * rate_bps, parent.ceil_bps))
        yield dataclasses.replace(
            parent, minor=minors.of_limit(slot), parent=minors.UNMANAGED,
            rate_bps=model.IDLE_RATE_BPS, ceil_bps=ceil_bps)
        for minor in sorted({minors.of_limited(slot, seat)
                             for seat in seats}):
            yield dataclasses.replace(
                _port_class(minor, base), parent=minors.of_limit(slot),
                ceil_bps=ceil_bps,
                limit_bytes=model.leaf_limit_bytes(
                    min(default_bps, ceil_bps), settings),
                packet_bytes=model.leaf_packet_bytes(
                    default_bps, ceil_bps, settings))


def _control_class(minor: int, base: model.Tree,
                   settings: model.TreeSettings) -> model.HtbClass:
    """Control packets of a coflow or port: before all else, never many."""
    parent = base[minors.CONTROL]
    return dataclasses.replace(
        parent, minor=minor, parent=minors.CONTROL,
        rate_bps=model.IDLE_RATE_BPS, quantum_bytes=CONTROL_QUANTUM_BYTES,
        limit_bytes=max(CONTROL_LEAF_BYTES, model.leaf_limit_bytes(
            parent.rate_bps, dataclasses.replace(
                settings, min_leaf_bytes=CONTROL_LEAF_BYTES))),
        packet_bytes=model.WHOLE_BYTES)


@dataclasses.dataclass(slots=True)
class Made:
    """What the last tree was made of: the same coflow has the same classes.

    Of ten thousand most are what they were; see :func:`build_tree`.
    """

    within: object = None
    classes: dict[int, tuple[edge_policy.CoflowClass,
                             tuple[model.HtbClass, ...]]] = dataclasses.field(
                                 default_factory=dict)


def build_tree(policy: edge_policy.EdgePolicy, link_bps: float,
               settings: model.TreeSettings = model.TreeSettings(),
               n_past: int = 0, ports: Iterable[int] = (),
               turns: Mapping[int, float] = types.MappingProxyType({}),
               made: Made | None = None) -> model.Tree:
    """The tree a policy asks for on a link.

    Guaranteed rates that do not fit beside what is kept for all else are
    scaled down together; a ceil never exceeds the link.

    :param link_bps: speed of the uplink; the policy's egress_bps if less.
    :param n_past: how often the policy's time to live passed. From the first
        time on there is no order, every coflow may borrow the whole link, and
        is guaranteed half of it by its last rate and half as all others are.
        Limits of unmanaged traffic double each time.
    :param ports: indexes of the VM ports' devices.
    :param turns: by minor of a port's class the part of a whole turn that it
        has; see :mod:`edge_module.tcplan.turns`.
    :param made: of the tree before; it is brought up to this one.
    """
    link_bps = min(link_bps, policy.egress_bps)
    settings = settings.on_link(link_bps)
    base = base_tree(link_bps, policy.default_rate_bps, settings)
    tree = dict(base)
    ports = tuple(ports)
    for minor in sorted({minors.of_port(ifindex) for ifindex in ports}):
        tree[minor] = _port_class(minor, base)
    for minor in sorted({minors.of_port_control(ifindex)
                         for ifindex in ports}):
        tree[minor] = _control_class(minor, base, settings)
    if policy.unmanaged is not None:
        for item in _limit_classes(
                policy.unmanaged, 2.0 ** n_past,
                model.whole_bps(policy.default_rate_bps),
                base, settings, minors.seats(ports).values()):
            tree[item.minor] = item
    for minor in turns.keys() & tree.keys():
        tree[minor] = _with_turn(tree[minor], turns[minor], settings)
    classes = (_shared(policy.classes, link_bps) if n_past
               else policy.classes)
    scale = _scale(classes, link_bps - model.kept_bps(base), settings)
    made = made if made is not None else Made()
    within = link_bps, scale, settings, base[minors.CONTROL]
    before = made.classes if made.within == within else {}
    made.within, made.classes = within, {}
    for coflow in classes:
        known = before.get(coflow.minor)
        if known is None or known[0] != coflow:
            known = coflow, (
                *(_on_wire(item, settings) for item in _coflow_classes(
                    coflow, link_bps, scale, settings)),
                _control_class(minors.of_control(coflow.minor), base,
                               settings))
        made.classes[coflow.minor] = known
        tree.update((item.minor, item) for item in known[1])
    return tree


def _turn_bytes(place: int, link_bps: float, settings: model.TreeSettings
                ) -> int:
    """What a coflow may send of the link's unused rate in one turn.

    The first of them that has something to send gets most of what is left.

    :param place: in the host's order.
    """
    longest = min(settings.max_turn_bytes,
                  units.bps_to_bytes_per_s(link_bps) * settings.turn_s)
    return max(1, int(longest) // int(TURN_PART ** place))


def _shared(classes: tuple[edge_policy.CoflowClass, ...], link_bps: float
            ) -> tuple[edge_policy.CoflowClass, ...]:
    """Give each its share of the link; rates of which nobody knows any more
    whether they fit are none.
    """
    equal_bps = link_bps / max(1, len(classes))
    total_bps = sum(coflow.rate_bps for coflow in classes)

    def share_bps(coflow: edge_policy.CoflowClass) -> float:
        if not total_bps:
            return equal_bps
        return (equal_bps + link_bps * coflow.rate_bps / total_bps) / 2

    return tuple(dataclasses.replace(
        coflow, rate_bps=share_bps(coflow), ceil_bps=link_bps, prio=0,
        destinations=tuple(dataclasses.replace(
            child, rate_bps=child.weight * share_bps(coflow),
            ceil_bps=link_bps)
            for child in coflow.destinations)) for coflow in classes)


def _coflow_rate(coflow: edge_policy.CoflowClass, settings: model.TreeSettings
                 ) -> float:
    children = sum(max(settings.floor_bps, child.rate_bps)
                   for child in coflow.destinations)
    return max(settings.floor_bps, coflow.rate_bps, children)


def _scale(classes: Iterable[edge_policy.CoflowClass], room_bps: float,
           settings: model.TreeSettings) -> float:
    """Factor that makes the guaranteed rates fit into room_bps."""
    total = sum(_coflow_rate(coflow, settings) for coflow in classes)
    return 1.0 if total <= room_bps else room_bps / total


def _coflow_classes(coflow: edge_policy.CoflowClass, link_bps: float,
                    scale: float, settings: model.TreeSettings
                    ) -> Iterable[model.HtbClass]:
    turn_bytes = _turn_bytes(coflow.prio, link_bps, settings)
    child_rates = [
        model.whole_bps(max(settings.floor_bps, child.rate_bps) * scale)
        for child in coflow.destinations]
    # No child is without a rate: the least ones may be more than their part.
    rate = max(sum(child_rates),
               model.whole_bps(_coflow_rate(coflow, settings) * scale))
    ceil = max(rate, model.whole_bps(min(coflow.ceil_bps, link_bps)))
    leaf = ((None, None) if coflow.destinations else
            (model.leaf_limit_bytes(ceil, settings),
             model.leaf_packet_bytes(rate, ceil, settings)))
    # Only leaves have turns: the kernel changes no inner class's.
    yield model.HtbClass(
        coflow.minor, minors.LINK, rate, ceil, COFLOW_PRIO,
        settings.min_quantum_bytes if coflow.destinations
        else _quantum(turn_bytes, leaf[1], settings), *leaf)
    weights = [child.weight for child in coflow.destinations
               if child.weight > 0]
    least = min(weights, default=1.0)
    least_turn = math.ceil(turn_bytes * least / max(1.0, sum(weights)))
    for child, child_rate in zip(coflow.destinations, child_rates):
        child_ceil = max(child_rate,
                         model.whole_bps(min(child.ceil_bps, ceil)))
        packet_bytes = model.leaf_packet_bytes(child_rate, child_ceil,
                                               settings)
        quantum = min(
            max(settings.max_quantum_bytes, turn_bytes),
            int(_quantum(least_turn, packet_bytes, settings)
                * max(1.0, child.weight / least)))
        yield model.HtbClass(
            child.minor, coflow.minor, child_rate, child_ceil, COFLOW_PRIO,
            quantum, model.leaf_limit_bytes(child_ceil, settings),
            packet_bytes)


def _quantum(turn_bytes: int, packet_bytes: int | None,
             settings: model.TreeSettings) -> int:
    """Of a leaf with this turn; no less than a packet."""
    least = settings.min_quantum_bytes
    if packet_bytes is not None:
        least = min(least, packet_bytes)
    return max(least, turn_bytes)
