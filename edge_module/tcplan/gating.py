# SPDX-License-Identifier: Apache-2.0

"""The classes of a periodic coflow whose gate is open, or closed.

An open one may borrow all of the link, whatever the policy's ceil: who sends
when is decided here, some fifty times a second, and not by the controller's
order, which hears of an iteration a report later. A closed one has a trickle,
by which its connections live and its bytes are seen.
"""

from collections.abc import Iterable
import dataclasses

from edge_module.tcplan import model
from virtco.table import edge_policy

#: Of the link, for all that a coflow with a closed gate sends.
CLOSED_SHARE = 0.0125
#: What a packet may take at the trickle: the class owes so long when its gate
#: opens. Longer ones are cut.
OWED_S = 0.02


def opened(coflow: edge_policy.CoflowClass, link_bps: float
           ) -> edge_policy.CoflowClass:
    """A gated coflow as it is while its gate is open; others as they are."""
    if coflow.gate is None:
        return coflow
    return dataclasses.replace(
        coflow, ceil_bps=link_bps, destinations=tuple(
            dataclasses.replace(child, ceil_bps=link_bps)
            for child in coflow.destinations))


def cut(classes: Iterable[model.HtbClass], link_bps: float,
        settings: model.TreeSettings) -> tuple[model.HtbClass, ...]:
    """Leaves that pass no longer packets than the trickle carries.

    Also while the gate is open, so that its turns change no leaf.
    """
    most_bps = _trickle_bps(link_bps)
    packet_bytes = model.leaf_packet_bytes(
        most_bps, most_bps, dataclasses.replace(
            settings, super_packet_s=min(settings.super_packet_s, OWED_S)))
    return tuple(
        dataclasses.replace(item, packet_bytes=min(item.packet_bytes,
                                                   packet_bytes))
        if model.is_data(item.minor) and item.packet_bytes is not None
        else item for item in classes)


def closed(classes: Iterable[model.HtbClass], link_bps: float
           ) -> tuple[model.HtbClass, ...]:
    """The classes of one coflow while its gate is closed, children first."""
    classes = tuple(classes)
    data = [item for item in classes if model.is_data(item.minor)]
    most_bps = _trickle_bps(link_bps)
    coflow, *children = data
    each_bps = model.whole_bps(most_bps / max(1, len(children)))
    low = [_limited(child, each_bps, most_bps) for child in children]
    parent = _limited(coflow, most_bps, most_bps)
    low.append(dataclasses.replace(parent, rate_bps=max(
        parent.rate_bps, sum(child.rate_bps for child in low))))
    return (*low, *(item for item in classes
                    if not model.is_data(item.minor)))


def closed_in(tree: model.Tree, policy: edge_policy.EdgePolicy,
              link_bps: float) -> frozenset[int]:
    """Minors of the coflows whose gates are closed in a tree that stands."""
    most_bps = _trickle_bps(min(link_bps, policy.egress_bps))
    return frozenset(
        coflow.minor for coflow in policy.classes
        if coflow.gate is not None and coflow.minor in tree
        and tree[coflow.minor].ceil_bps <= most_bps)


def _limited(item: model.HtbClass, rate_bps: int, ceil_bps: int
             ) -> model.HtbClass:
    return dataclasses.replace(item, rate_bps=min(item.rate_bps, rate_bps),
                               ceil_bps=min(item.ceil_bps, ceil_bps))


def _trickle_bps(link_bps: float) -> int:
    return model.whole_bps(CLOSED_SHARE * link_bps)
