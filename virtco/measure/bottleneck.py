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

"""Which paths share a bottleneck, and where it is (Choreo section 3.3)."""

from collections.abc import Sequence
import dataclasses
import enum

#: A path whose rate falls by more than this share beside another one shares
#: its bottleneck.
SIGNIFICANT = 0.2
#: Sums that differ by less than this are the same.
TOLERANCE = 0.1


class Level(enum.Enum):
    """The link at which paths are narrowest.

    SOURCE: the sender's own uplink or the rate limit of its hose. RACK: from
    the top-of-rack switch upwards. SUBTREE: from the aggregation layer into
    the core.
    """

    SOURCE = 'source'
    RACK = 'rack'
    SUBTREE = 'subtree'


class Model(enum.Enum):
    """What limits the paths out of a source.

    HOSE: a limit per source, whatever the number of destinations. PIPE: a
    limit per pair. UNKNOWN: the measurements fit neither.
    """

    HOSE = 'hose'
    PIPE = 'pipe'
    UNKNOWN = 'unknown'


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a host is in the tree.

    :ivar rack: name of its rack.
    :ivar subtree: name of its aggregation switch's subtree.
    """

    host: str
    rack: str
    subtree: str


@dataclasses.dataclass(frozen=True, slots=True)
class Path:
    src: Place
    dst: Place


def shares_bottleneck(alone_bps: float, beside_bps: float) -> bool:
    """Whether a path's rate decreased significantly beside another path."""
    return beside_bps < alone_bps * (1 - SIGNIFICANT)


def may_interfere(one: Path, other: Path, level: Level) -> bool:
    """Whether two paths would use the same bottleneck: the two rules.

    As printed, rule 1(a) lets all paths of one source interfere, also one
    that stays in its rack with one that leaves it. Such a path does not pass
    the link out of the top-of-rack switch, so here both have to leave.

    For SUBTREE the answer True means "potentially": the paths may be routed
    through different switches.
    """
    match level:
        case Level.SOURCE:
            return one.src.host == other.src.host
        case Level.RACK:
            rack = one.src.rack
            return (rack == other.src.rack
                    and rack not in (one.dst.rack, other.dst.rack))
        case Level.SUBTREE:
            subtree = one.src.subtree
            return (subtree == other.src.subtree and subtree not in
                    (one.dst.subtree, other.dst.subtree))


def source_model(alone_bps: Sequence[float],
                 together_bps: Sequence[float]) -> Model:
    """What limits the paths out of one source.

    :param alone_bps: rate of each path, measured alone.
    :param together_bps: rate of the same paths, measured at the same time;
        at least two. In a hose their sum stays what the widest got alone; in
        pipes none of them notices the others.
    """
    if len(alone_bps) != len(together_bps) or len(alone_bps) < 2:
        return Model.UNKNOWN
    if not any(shares_bottleneck(alone, together) for alone, together
               in zip(alone_bps, together_bps, strict=True)):
        return Model.PIPE
    if abs(sum(together_bps) / max(alone_bps) - 1) <= TOLERANCE:
        return Model.HOSE
    return Model.UNKNOWN


def narrowest_level(interferences: Sequence[tuple[Path, Path, bool]]
                    ) -> Level | None:
    """The level that explains which pairs of paths interfered.

    :param interferences: two paths, and whether they shared a bottleneck.
    :returns: the lowest level whose rules predict most of them, None without
        any measurement or when no level predicts more than half.
    """
    if not interferences:
        return None
    right = {level: sum(may_interfere(one, other, level) == seen
                        for one, other, seen in interferences)
             for level in Level}
    best = max(Level, key=lambda level: right[level])
    return best if right[best] * 2 > len(interferences) else None
