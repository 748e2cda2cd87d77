# SPDX-License-Identifier: Apache-2.0

"""Steps from the tree in the kernel to the desired tree. Pure.

While leaves still send their queue, their old rates are held.
"""

from collections.abc import Container
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses

from edge_module.tcplan import minors
from edge_module.tcplan import model


@dataclasses.dataclass(frozen=True, slots=True)
class Update:
    """Steps in the order in which they are sent to the kernel.

    ``rise`` has new classes, too. ``leave`` lists classes that get no packets
    any more once the classification is replaced; they are deleted after a
    grace period, children first.
    """

    lower: tuple[model.HtbClass, ...] = ()
    rise: tuple[model.HtbClass, ...] = ()
    leave: tuple[int, ...] = ()


def _depth(tree: Mapping[int, model.HtbClass], minor: int) -> int:
    above = []
    while minor in tree:
        minor = tree[minor].parent
        above.append(minor)
    return len(above)


def _leaving(current: Mapping[int, model.HtbClass],
             desired: Mapping[int, model.HtbClass]) -> set[int]:
    """Find classes that go or move, with all classes below them."""
    leaving = {minor for minor, have in current.items()
               if minor not in desired
               or desired[minor].parent != have.parent}
    if any(current[minor].limit_bytes is None for minor in leaving):
        for minor in sorted(current, key=lambda key: _depth(current, key)):
            if current[minor].parent in leaving:
                leaving.add(minor)
    return leaving


def plan_update(current: Mapping[int, model.HtbClass],
                desired: Mapping[int, model.HtbClass]) -> Update:
    """Return the steps from the kernel's tree to the desired one.

    Rates fall before new classes take theirs and others rise, so the link is
    never over-committed. A class that leaves keeps its place, idle and with
    the lowest priority, until no packet can reach it. A class under another
    parent cannot be moved: it leaves with its descendants, and the next update
    creates them.
    """
    leaving = _leaving(current, desired)
    lower: list[model.HtbClass] = []
    rise: list[model.HtbClass] = []
    for minor in sorted(desired, key=lambda key: (_depth(desired, key), key)):
        wanted = desired[minor]
        have = current.get(minor)
        if have is None or (
                minor not in leaving and not wanted.stands_as(have)):
            (lower if have is not None and wanted.rate_bps < have.rate_bps
             else rise).append(wanted)
    # Leaves first, the link last: the guarantees never exceed it.
    lower.reverse()
    for minor in sorted(leaving):
        idle = dataclasses.replace(
            current[minor], rate_bps=model.IDLE_RATE_BPS,
            prio=model.LOWEST_PRIO)
        if idle != current[minor]:
            lower.append(idle)
    return Update(tuple(lower), tuple(rise), tuple(sorted(
        leaving, key=lambda key: (-_depth(current, key), key))))


def hold(tree: model.Tree, current: Mapping[int, model.HtbClass],
         leaves: Iterable[int], settings: model.TreeSettings) -> model.Tree:
    """Return the tree to use while some leaves still send their queue.

    HTB charges queued bytes as time at the new rate, so a slower leaf would be
    blocked for long. Until its queue is sent, a leaf keeps its guarantee, up
    to ``whole_rate_bps``; a leaf that stays in the tree may borrow up to
    ``whole_ceil_bps``, and a leaf that leaves is kept. Other guarantees shrink
    in proportion where that would over-commit the link.

    :param tree: the desired tree.
    :param current: the kernel's classes, with ``leaves`` among them.
    :param leaves: minors of the leaves that still send.
    """
    leaves = set(leaves)
    if not leaves:
        return tree
    held = dict(tree)
    room_bps = (held[minors.LINK].rate_bps - model.kept_bps(held)
                - sum(tree[minor].rate_bps for minor in leaves & tree.keys()))
    most_bps = min(settings.whole_rate_bps, room_bps / len(leaves))
    for minor in leaves:
        keep_bps = model.whole_bps(min(current[minor].rate_bps, most_bps))
        if minor in tree:
            _let_borrow(held, minor, settings)
            keep_bps = max(keep_bps, held[minor].rate_bps)
        held[minor] = dataclasses.replace(held.get(minor, current[minor]),
                                          rate_bps=keep_bps)
        parent = held[minor].parent
        if parent != minors.LINK and parent not in held:
            held[parent] = dataclasses.replace(current[parent],
                                               rate_bps=model.IDLE_RATE_BPS)
    for minor, rate_bps in model.children_bps(held).items():
        if minor in held and minor != minors.LINK:
            held[minor] = dataclasses.replace(
                held[minor], rate_bps=max(rate_bps, held[minor].rate_bps))
    return _shrink(held, leaves, max(held[minors.LINK].rate_bps,
                                     model.guaranteed_bps(tree)))


def _let_borrow(held: model.Tree, minor: int,
                settings: model.TreeSettings) -> None:
    """Raise the ceil of a leaf and of the classes above it."""
    ceil_bps = min(held[minors.LINK].ceil_bps,
                   model.whole_bps(settings.whole_ceil_bps))
    while minor in held and minor != minors.LINK:
        held[minor] = dataclasses.replace(
            held[minor], ceil_bps=max(held[minor].ceil_bps, ceil_bps))
        minor = held[minor].parent


def _shrink(tree: model.Tree, kept: Container[int], most_bps: int
            ) -> model.Tree:
    """Return the tree with guarantees of coflows' data scaled down to fit.

    :param kept: minors of classes whose guarantee is not scaled.
    :param most_bps: the link's rate, or slightly more where the least rates
        of many classes exceed it.
    """
    kept_bps = {minor: item.rate_bps for minor, item in tree.items()
                if minor in kept}
    within_bps = model.children_bps({minor: tree[minor] for minor in kept_bps})
    total_bps = model.guaranteed_bps(tree)
    fixed_bps = model.kept_bps(tree) + sum(kept_bps.values())
    if total_bps <= most_bps:
        return tree
    scale = max(0.0, most_bps - fixed_bps) / max(1, total_bps - fixed_bps)

    def scaled(item: model.HtbClass) -> model.HtbClass:
        if item.minor in kept_bps or not model.is_data(item.minor):
            return item
        own_bps = within_bps.get(item.minor, 0)
        return dataclasses.replace(item, rate_bps=own_bps + model.whole_bps(
            scale * (item.rate_bps - own_bps)))

    return {minor: scaled(item) for minor, item in tree.items()}
