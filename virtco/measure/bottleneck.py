# SPDX-License-Identifier: Apache-2.0

"""Bottlenecks that paths share, and their places (Choreo section 3.3)."""

from collections.abc import Sequence
import dataclasses
import enum

from virtco.topology import tree

#: Relative fall of a path's rate, while another path sends, above which both
#: share a bottleneck.
SIGNIFICANT = 0.2


class Way(enum.StrEnum):
    """Direction of a link."""

    OUT = 'out of'
    IN = 'into'


@dataclasses.dataclass(frozen=True, slots=True)
class Links:
    """All links of a level, in one direction.

    :ivar level: 0 for the hosts' own links, k for the uplinks of the
        topology's k-th level of switches, from the hosts upwards.
    """

    level: int
    way: Way


#: A host, then the switch above it at each level from the hosts upwards; None
#: where a short branch has none.
Place = tuple[str | None, ...]
#: Places of the host that sends and of the one that receives.
Path = tuple[Place, Place]


@dataclasses.dataclass(frozen=True, slots=True)
class Location:
    """Links where the shared bottlenecks are.

    :ivar links: links that explain the measurements best, the lowest first;
        several where the measurements cannot tell them apart, none where
        nothing was shared or no links explain more than half.
    :ivar n_explained: pairs of paths that are as these links make them.
    """

    links: tuple[Links, ...]
    n_explained: int


def places(plane: tree.Plane) -> dict[str, Place]:
    """Locate the hosts of a plane."""
    found = {}
    for host, above in plane.chains():
        by_level = {node.height(): node.name for node in above}
        found[host] = host, *map(by_level.get, range(plane.depth()))
    return found


def at(place: Place, level: int) -> str | None:
    """Return the switch above a host at a level; level 0 is the host."""
    return place[level] if level < len(place) else None


def shares_bottleneck(alone_bps: float, beside_bps: float) -> bool:
    """Tell whether a path's rate fell significantly while another sent."""
    return beside_bps < alone_bps * (1 - SIGNIFICANT)


def shared(one: Path, other: Path, links: Links) -> str | None:
    """Find the host or switch whose link of these both paths pass.

    Both of Choreo's rules, for any level: the paths come from the same
    subtree, and both leave it. As printed, rule 1(a) lets all paths of one
    source interfere at the top-of-rack switch, also one that stays in its
    rack; such a path does not pass the link out of it. Towards the receivers
    the same holds with the ends swapped. Where a switch stands for several,
    an answer means "potentially": the paths may be routed through different
    ones.
    """
    (near, far), (other_near, other_far) = (
        [at(place, links.level)
         for place in (path if links.way is Way.OUT else path[::-1])]
        for path in (one, other))
    return near if near == other_near and near not in (
        far, other_far) else None


def locate(interferences: Sequence[tuple[Path, Path, bool]]) -> Location:
    """Find the links that explain which pairs of paths interfered.

    :param interferences: two paths, and whether they shared a bottleneck.
    """
    levels = range(max((len(place) for one, other, _ in interferences
                        for place in (*one, *other)), default=0))
    explained: dict[Links, int] = {}
    for links in (Links(level, way) for level in levels for way in Way):
        predicted = [shared(one, other, links) is not None
                     for one, other, _ in interferences]
        seen = [is_shared for _, _, is_shared in interferences]
        # Links that explain no interference at all explain nothing.
        if any(a and b for a, b in zip(predicted, seen)):
            explained[links] = sum(
                a == b for a, b in zip(predicted, seen))
    most = max(explained.values(), default=0)
    if most * 2 <= len(interferences):
        return Location((), 0)
    return Location(tuple(links for links, count in explained.items()
                          if count == most), most)
