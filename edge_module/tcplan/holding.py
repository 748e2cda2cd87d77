# SPDX-License-Identifier: Apache-2.0

"""Leaves that still send what they have queued. Pure."""

from collections.abc import Container
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses

from edge_module.tcplan import minors
from edge_module.tcplan import model


def hold(tree: model.Tree, current: Mapping[int, model.HtbClass],
         leaves: Iterable[int], settings: model.TreeSettings) -> model.Tree:
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
    """Scale guarantees so that they fit, but for what is no coflow's data.

    :param most_bps: the link; a few bytes more where the least rates of many
        classes exceed it.
    """
    kept_bps = {minor: item.rate_bps for minor, item in tree.items()
                if minor in kept}
    within_bps = model.children_bps({minor: tree[minor] for minor in kept_bps})
    total_bps = model.guaranteed_bps(tree)
    fixed_bps = model.kept_bps(tree) + sum(kept_bps.values())
    if total_bps <= most_bps:
        return tree
    scale = max(0, most_bps - fixed_bps) / max(1, total_bps - fixed_bps)

    def scaled(item: model.HtbClass) -> model.HtbClass:
        if item.minor in kept_bps or not model.is_data(item.minor):
            return item
        own_bps = within_bps.get(item.minor, 0)
        return dataclasses.replace(item, rate_bps=own_bps + model.whole_bps(
            scale * (item.rate_bps - own_bps)))

    return {minor: scaled(item) for minor, item in tree.items()}
