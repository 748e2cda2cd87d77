# SPDX-License-Identifier: Apache-2.0

"""The HTB tree that enforces a policy on a link. Pure."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import math
import types
from typing import Any
from typing import TypeVar

from msgspec import structs

from edge_module.tcplan import minors
from edge_module.tcplan import model
from virtco import units
from virtco.wire import edge_policy

# The kernel reads a class's priority only when its queue stops being empty:
# all coflows have the same priority, and the length of turns orders them.
COFLOW_PRIO, HOST_PRIO = 0, model.LOWEST_PRIO - 1
# Ratio of a coflow's turn to that of the next one in the host's order.
TURN_PART = 8
# Part of the rate that a policy guarantees to traffic without a coflow.
HOST_PART = 0.25
# Guaranteed and largest share of the link for all control packets together. A
# receiver of full frames that acknowledges each second one sends 2.9 % of
# their bytes back, also while its own coflows fill its link.
CONTROL_SHARE, CONTROL_CEIL_SHARE = 0.03, 0.06
# A host's request or answer goes at once, although its guarantee is small.
HOST_BURST_BYTES = 64 * 1024
# Hundreds of flows that get their turn together are acknowledged together: a
# flow whose last acknowledgements are lost waits for TCP's timer.
CONTROL_LEAF_BYTES = 64 * 1024
# Turn of one port's control packets.
CONTROL_QUANTUM_BYTES = 256


def base_tree(link_bps: float, default_rate_bps: float,
              settings: model.TreeSettings) -> model.Tree:
    """Return the tree without any policy or port.

    The host has a leaf of its own, the default class. Leaves of unmanaged VM
    traffic and of control packets come with ports.

    :param link_bps: speed of the uplink.
    :param default_rate_bps: guaranteed to the host's and to unmanaged traffic.
    """
    link = model.whole_bps(link_bps)
    settings = settings.on_link(link_bps)
    control = model.whole_bps(CONTROL_SHARE * link)
    default = min(link - control, model.whole_bps(default_rate_bps))
    host = model.whole_bps(HOST_PART * default)

    quantum = settings.min_quantum_bytes
    return {item.minor: item for item in (
        settings.htb_class(minors.LINK, minors.ROOT, link, link, 0, quantum),
        settings.htb_class(
            minors.HOST, minors.LINK, host, link, HOST_PRIO, quantum,
            # The least rate at which the queue may drain.
            model.leaf_limit_bytes(default, settings),
            model.leaf_packet_bytes(default, link, settings),
            HOST_BURST_BYTES),
        settings.htb_class(
            minors.UNMANAGED, minors.LINK,
            max(model.IDLE_RATE_BPS, default - host), link, 0, quantum),
        settings.htb_class(
            minors.CONTROL, minors.LINK, control,
            model.whole_bps(CONTROL_CEIL_SHARE * link), 0, quantum))}


def receiver_tree(link_bps: float, default_rate_bps: float, minor: int
                  ) -> model.Tree:
    """Return a tree of the link, a default class and one class for all
    coflows.

    :param minor: minor of the class of coflows.
    """
    settings = model.TreeSettings()
    link = base_tree(link_bps, default_rate_bps, settings)[minors.LINK]
    default = model.HtbClass(
        minors.HOST, minors.LINK,
        min(link.rate_bps, model.whole_bps(default_rate_bps)), link.ceil_bps,
        model.LOWEST_PRIO, settings.min_quantum_bytes,
        model.leaf_limit_bytes(link_bps, settings),
        model.leaf_packet_bytes(link_bps, link_bps, settings))
    return {item.minor: item for item in (link, default, dataclasses.replace(
        default, minor=minor, rate_bps=link.rate_bps - default.rate_bps,
        prio=0))}


def _with_turn(item: model.HtbClass, turn: float,
               settings: model.TreeSettings) -> model.HtbClass:
    """Return a leaf with another turn, or a coflow's, whose turn stays.

    Super-packets are cut into frames: the kernel sends at least one packet per
    turn, whatever its length, and counts the wire's bytes once for each.

    :param turn: part of a whole turn, less than 1; of control packets, which
        are never cut, a multiple.
    """
    if minors.is_control(item.minor):
        return dataclasses.replace(
            item, quantum_bytes=int(item.quantum_bytes * turn))
    return dataclasses.replace(
        item, quantum_bytes=item.quantum_bytes if model.is_data(item.minor)
        else int(item.quantum_bytes * turn),
        packet_bytes=settings.frame_bytes or item.packet_bytes)


def _unmanaged_classes(
        default_rate_bps: float, unmanaged: edge_policy.Unmanaged | None,
        factor: float, early_bps: frozenset[tuple[int, float]],
        ports: tuple[int, ...], link_bps: float, settings: model.TreeSettings
        ) -> Iterable[model.HtbClass]:
    """Yield all classes but those of coflows.

    A port's class has no guarantee of its own, so it borrows from its parent,
    and all ports share the parent's guarantee in turns.

    :param factor: factor by which limits by destination are multiplied.
    :param early_bps: rate that is added to them then, by minor.
    """
    base = base_tree(link_bps, default_rate_bps, settings)
    yield from base.values()
    host, control = base[minors.HOST], base[minors.CONTROL]
    own = sorted(minors.of_ports(ports).values())
    for minor in (minors.UNKNOWN, *own):
        yield settings.htb_class(
            minor, minors.UNMANAGED, model.IDLE_RATE_BPS, host.ceil_bps,
            model.LOWEST_PRIO, host.quantum_bytes, host.limit_bytes,
            host.packet_bytes)
    leaf_bytes = max(CONTROL_LEAF_BYTES, model.leaf_limit_bytes(
        control.rate_bps, dataclasses.replace(
            settings, min_leaf_bytes=CONTROL_LEAF_BYTES)))
    # Control packets have the first priority.
    for minor in (minors.UPLINK_CONTROL, *map(minors.of_control, own)):
        yield settings.htb_class(
            minor, minors.CONTROL, model.IDLE_RATE_BPS, control.ceil_bps, 0,
            CONTROL_QUANTUM_BYTES, leaf_bytes, model.WHOLE_BYTES)
    if unmanaged is None:
        return
    default_bps = model.whole_bps(default_rate_bps)
    seats = {minors.UNKNOWN_SEAT, *minors.seats(ports).values()}
    slots = {0: unmanaged.others_bps,
             **{limit.slot: limit.rate_bps for limit in unmanaged.limits}}
    for slot, rate_bps in slots.items():
        usual_bps = model.whole_bps(min(factor * rate_bps, host.ceil_bps))
        ceil_bps = model.whole_bps(min(
            usual_bps + dict(early_bps).get(minors.of_limit(slot), 0.0),
            host.ceil_bps))
        yield settings.htb_class(
            minors.of_limit(slot), minors.UNMANAGED, model.IDLE_RATE_BPS,
            ceil_bps, 0, host.quantum_bytes)
        leaf = (model.leaf_limit_bytes(min(default_bps, usual_bps), settings),
                model.leaf_packet_bytes(default_bps, usual_bps, settings))
        for seat in sorted(seats):
            yield settings.htb_class(
                minors.of_limited(slot, seat), minors.of_limit(slot),
                model.IDLE_RATE_BPS, ceil_bps, model.LOWEST_PRIO,
                host.quantum_bytes, *leaf)


#: Classes by the arguments that they were made of: of ten thousand coflows,
#: most are unchanged from one policy to the next.
Made = dict[tuple[object, ...], tuple[model.HtbClass, ...]]


def build_tree(policy: edge_policy.EdgePolicy, link_bps: float,
               settings: model.TreeSettings = model.TreeSettings(),
               n_past: int = 0, ports: Iterable[int] = (),
               turns: Mapping[int, float] = types.MappingProxyType({}),
               early_bps: Mapping[int, float] = types.MappingProxyType({}),
               made: Made | None = None, queues_bps: float = 0.0
               ) -> model.Tree:
    """Return the tree that enforces a policy on a link.

    Guaranteed rates of coflows are scaled down together until they fit with
    the rates kept for other traffic and for queues of other programs; a ceil
    never exceeds the link.

    :param link_bps: speed of the uplink; the policy's egress_bps if less.
    :param n_past: number of times that the policy's time to live passed. From
        the first time on there is no order, and every coflow may borrow the
        whole link. Half of the link is guaranteed in proportion to the last
        rates, the other half in equal parts. Limits of unmanaged traffic
        double each time.
    :param ports: ifindexes of the VM ports.
    :param turns: part of a whole turn, by minor of a port's or coflow's class;
        see :mod:`edge_module.tcplan.turns` and
        :mod:`edge_module.tcplan.acknowledging`.
    :param early_bps: rate that classes of coflows lend to unmanaged traffic,
        by minor; see :mod:`edge_module.early_packets`.
    :param made: cache of the tree before; it is updated.
    :param queues_bps: rate guaranteed to queues of other programs.
    """
    link_bps = min(link_bps, policy.egress_bps)
    settings = settings.on_link(link_bps)
    before, made = dict(made or {}), {} if made is None else made
    made.clear()

    def classes_of(make: Callable[..., Iterable[model.HtbClass]],
                   *within: object) -> model.Tree:
        made[within] = before.get(within) or tuple(make(*within))
        return {item.minor: item for item in made[within]}

    tree = classes_of(
        _unmanaged_classes, policy.default_rate_bps, policy.unmanaged,
        2.0 ** n_past, frozenset(early_bps.items()), tuple(ports), link_bps,
        settings)
    classes = (_shared(policy.classes, link_bps) if n_past
               else policy.classes)
    room_bps = max(0.0, link_bps - model.kept_bps(tree) - queues_bps)
    if early_bps:
        classes = tuple(_changed(coflow, early_bps) for coflow in classes)
        lent_bps = min(room_bps, early_bps.get(minors.UNMANAGED, 0.0))
        room_bps -= lent_bps
        unmanaged = tree[minors.UNMANAGED]
        tree[minors.UNMANAGED] = dataclasses.replace(
            unmanaged, rate_bps=model.whole_bps(unmanaged.rate_bps + lent_bps))
    total_bps = sum(_coflow_rate(coflow, settings) for coflow in classes)
    scale = 1.0 if total_bps <= room_bps else room_bps / total_bps
    for coflow in classes:
        tree |= classes_of(_coflow_classes, coflow, link_bps, scale, settings)
    for minor in turns.keys() & tree.keys():
        if tree[minor].limit_bytes is not None:
            tree[minor] = _with_turn(tree[minor], turns[minor], settings)
    return tree


_Rated = TypeVar('_Rated', edge_policy.EdgePolicy, edge_policy.CoflowClass,
                 edge_policy.Destination, edge_policy.Unmanaged,
                 edge_policy.DestinationLimit)


def in_proportion(policy: edge_policy.EdgePolicy, link_bps: float
                  ) -> edge_policy.EdgePolicy:
    """Return a policy for an uplink of another speed: each class has the same
    share of it.
    """
    if link_bps == policy.egress_bps or not policy.egress_bps:
        return policy

    def scaled(item: _Rated, *names: str, **values: Any) -> _Rated:
        return structs.replace(item, **values, **{
            name: link_bps / policy.egress_bps * getattr(item, name)
            for name in names})

    rates = 'rate_bps', 'ceil_bps'
    return scaled(
        policy, 'egress_bps', 'default_rate_bps',
        classes=tuple(scaled(coflow, *rates, destinations=tuple(
            scaled(child, *rates) for child in coflow.destinations))
            for coflow in policy.classes),
        unmanaged=policy.unmanaged and scaled(
            policy.unmanaged, 'others_bps', limits=tuple(
                scaled(limit, 'rate_bps')
                for limit in policy.unmanaged.limits)))


def _shared(classes: tuple[edge_policy.CoflowClass, ...], link_bps: float
            ) -> tuple[edge_policy.CoflowClass, ...]:
    """Return the coflows of an expired policy with shares of the whole link.

    Half of the link is divided by their last rates, half equally: nobody
    knows any more whether the rates themselves fit.
    """
    equal_bps = link_bps / max(1, len(classes))
    total_bps = sum(coflow.rate_bps for coflow in classes)

    def share_bps(coflow: edge_policy.CoflowClass) -> float:
        if not total_bps:
            return equal_bps
        return (equal_bps + link_bps * coflow.rate_bps / total_bps) / 2

    return tuple(structs.replace(
        coflow, rate_bps=share_bps(coflow), ceil_bps=link_bps, prio=0,
        destinations=tuple(structs.replace(
            child, rate_bps=child.weight * share_bps(coflow),
            ceil_bps=link_bps)
            for child in coflow.destinations)) for coflow in classes)


def _changed(coflow: edge_policy.CoflowClass, more_bps: Mapping[int, float]
             ) -> edge_policy.CoflowClass:
    """Return a coflow with other rates of itself and of its children.

    :param more_bps: rate that is added, by minor; a child's to both.
    """
    changes = [more_bps.get(child.minor, 0.0) for child in coflow.destinations]
    change = more_bps.get(coflow.minor, 0.0) + sum(changes)
    if not change:
        return coflow
    return structs.replace(
        coflow, rate_bps=coflow.rate_bps + change, destinations=tuple(
            structs.replace(child, rate_bps=child.rate_bps + of_child)
            for child, of_child in zip(coflow.destinations, changes)))


def _coflow_rate(coflow: edge_policy.CoflowClass, settings: model.TreeSettings
                 ) -> float:
    children = sum(max(settings.floor_bps, child.rate_bps)
                   for child in coflow.destinations)
    return max(settings.floor_bps, coflow.rate_bps, children)


def _coflow_classes(coflow: edge_policy.CoflowClass, link_bps: float,
                    scale: float, settings: model.TreeSettings
                    ) -> Iterable[model.HtbClass]:
    """Yield a coflow's class, then its children for destinations."""
    # Each coflow's turn is 8 times the next one's in the host's order, so the
    # first coflow with queued data gets most of the unused rate.
    turn_bytes = max(1, int(min(
        settings.max_turn_bytes, units.bps_to_bytes_per_s(link_bps)
        * settings.turn_s)) // int(TURN_PART ** coflow.prio))
    child_rates = [
        model.whole_bps(max(settings.floor_bps, child.rate_bps) * scale)
        for child in coflow.destinations]
    # Every child has at least floor_bps, so the sum may exceed the coflow's.
    rate = max(sum(child_rates),
               model.whole_bps(_coflow_rate(coflow, settings) * scale))
    ceil = max(rate, model.whole_bps(min(coflow.ceil_bps, link_bps)))
    leaf = ((None, None) if coflow.destinations else
            (model.leaf_limit_bytes(ceil, settings),
             model.leaf_packet_bytes(rate, ceil, settings)))
    # Only leaves have turns: the kernel changes no inner class's.
    yield settings.htb_class(
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
        yield settings.htb_class(
            child.minor, coflow.minor, child_rate, child_ceil, COFLOW_PRIO,
            quantum, model.leaf_limit_bytes(child_ceil, settings),
            packet_bytes)


def _quantum(turn_bytes: int, packet_bytes: int | None,
             settings: model.TreeSettings) -> int:
    """Return the HTB quantum of a leaf, in bytes.

    It is the turn, but at least min_quantum_bytes, or the largest packet of
    the leaf if that is less.

    :param packet_bytes: largest packet of the leaf; None for an inner class.
    """
    least = settings.min_quantum_bytes
    if packet_bytes is not None:
        least = min(least, packet_bytes)
    return max(least, turn_bytes)
