# SPDX-License-Identifier: Apache-2.0

"""Shares a link among classes by what they sent of late. Pure.

Earliest departure times know no borrowing: a class has one rate, and what it
does not use is nobody's. So the agent looks several times a second at what
each class sent, and gives the rest to others: guaranteed rates first, then the
order of priorities, then turns (the quanta of HTB).
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses

from edge_module.tcplan import minors
from edge_module.tcplan import model

#: Who uses this part of its rate may want more than it has.
_IS_FULL = 0.95
# What a class may grow by that is not full, so that one that speeds up is
# noticed as full; and what an idle one begins with.
_HEADROOM = 1.03
_FIRST_SHARE = 0.01
_TINY_BPS = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """What a class did since the last look.

    :ivar sent_bps: on the wire.
    :ivar has_queue: whether packets wait, or were dropped.
    """

    sent_bps: float = 0.0
    has_queue: bool = False


def wanted_bps(used: Mapping[int, Use], rates_bps: Mapping[int, float],
               leaves: Iterable[model.HtbClass], link_bps: float
               ) -> dict[int, float]:
    """What each leaf can be expected to send if it may.

    :param rates_bps: what each has had since the last look.
    """
    leaves = tuple(leaves)
    first_bps = _FIRST_SHARE * link_bps / max(1, len(leaves))
    wanted = {}
    for leaf in leaves:
        use = used.get(leaf.minor, Use())
        is_full = use.has_queue or (
            use.sent_bps >= _IS_FULL * rates_bps.get(leaf.minor, 0.0) > 0)
        wanted[leaf.minor] = min(leaf.ceil_bps, leaf.ceil_bps if is_full
                                 else first_bps + _HEADROOM * use.sent_bps)
    return wanted


def share(tree: Mapping[int, model.HtbClass], wanted: Mapping[int, float]
          ) -> dict[int, float]:
    """Rates of all leaves, in bits per second.

    Together they are no more than the link, and those of a class's children
    no more than its ceil. As long as a leaf wants more and no ceil forbids
    it, the whole link is given away. What nobody wants is left with those to
    whom it is guaranteed: they begin with it.
    """
    sharing = _Sharing(tree, wanted)
    sharing.give()
    sharing.wanted = {minor: max(bps, tree[minor].rate_bps)
                      for minor, bps in wanted.items()}
    sharing.give()
    return {leaf: sharing.given[leaf] for leaf in sharing.leaves}


class _Sharing:
    """One computation of :func:`share`."""

    def __init__(self, tree: Mapping[int, model.HtbClass],
                 wanted: Mapping[int, float]):
        self.tree = tree
        self.children: dict[int, list[int]] = {}
        for item in tree.values():
            self.children.setdefault(item.parent, []).append(item.minor)
        self.wanted = wanted
        self.leaves = [minor for minor in tree if minor not in self.children
                       and minor not in minors.INNER]
        self.above = {leaf: self._ancestors(leaf) for leaf in self.leaves}
        self.given = dict.fromkeys(tree, 0.0)

    def _ancestors(self, minor: int) -> tuple[int, ...]:
        """Of a leaf, itself first, the link last."""
        found = []
        while minor in self.tree:
            found.append(minor)
            minor = self.tree[minor].parent
        return tuple(found)

    def give(self) -> None:
        """Give what is left to those who want more."""
        # What is guaranteed comes first, deepest first: a class's own rate is
        # its children's before anybody else's.
        for depth in range(max(map(len, self.above.values()), default=0)):
            by_holder: dict[int, list[int]] = {}
            for leaf in self.leaves:
                if depth < len(self.above[leaf]) - 1:
                    by_holder.setdefault(self.above[leaf][depth],
                                         []).append(leaf)
            for holder, below in by_holder.items():
                self._fill_in_order(
                    below, self.tree[holder].rate_bps - self.given[holder])
        if minors.LINK in self.tree:
            self._fill_in_order(self.leaves, self.tree[
                minors.LINK].rate_bps - self.given[minors.LINK])

    def _fill_in_order(self, leaves: list[int], room_bps: float) -> None:
        by_prio: dict[int, list[int]] = {}
        for leaf in leaves:
            by_prio.setdefault(self.tree[leaf].prio, []).append(leaf)
        for prio in sorted(by_prio):
            if room_bps <= _TINY_BPS:
                return
            room_bps -= self._fill(by_prio[prio], room_bps)

    def _fill(self, leaves: list[int], room_bps: float) -> float:
        """Raise all together in proportion to their turns; what was given."""
        start_bps = room_bps
        active = {leaf for leaf in leaves if self._left(leaf) > _TINY_BPS}
        while active and room_bps > _TINY_BPS:
            weight: dict[int, float] = {}
            for leaf in active:
                for holder in self.above[leaf]:
                    weight[holder] = weight.get(
                        holder, 0.0) + self.tree[leaf].quantum_bytes
            total = sum(self.tree[leaf].quantum_bytes for leaf in active)
            step = min(room_bps / total, *(
                self._room(holder) / part for holder, part in weight.items()))
            for holder, part in weight.items():
                self.given[holder] += step * part
            room_bps -= step * total
            active = {leaf for leaf in active if self._left(leaf) > _TINY_BPS}
        return start_bps - room_bps

    def _room(self, holder: int) -> float:
        """Until a class has its ceil, or a leaf all it wants."""
        most = min(self.tree[holder].ceil_bps,
                   self.wanted.get(holder, float('inf')))
        return max(0.0, most - self.given[holder])

    def _left(self, leaf: int) -> float:
        return min(map(self._room, self.above[leaf]))
