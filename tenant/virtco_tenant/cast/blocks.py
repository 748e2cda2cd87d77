# SPDX-License-Identifier: Apache-2.0

"""Which blocks a member has, fetches, and hands from swarm to swarm. Pure."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import math
import random

from virtco_tenant.cast import peers

#: So long one waits for blocks that another cluster has or should have. A slow
#: one would hold up all others, while the source has time.
PATIENCE_S = 1.5
#: One that is done takes its part of what others lack in so many steps, first.
HELP = 2

#: How many neighbours have each block, by level.
Availability = Callable[[int], Sequence[int]]


class Blocks:
    """The same blocks are in a swarm for each of ``peers.LEVELS``.

    :param draw: so many of these, at random.
    :ivar to_pass: that came by one swarm and may be lacking in others.
    """

    def __init__(self, n_blocks: int, clock: Callable[[], float],
                 draw: Callable[[Sequence[int], int], list[int]] = (
                     random.sample)):
        self._n_blocks = n_blocks
        self._clock = clock
        self._draw = draw
        self.to_pass: collections.deque[int] = collections.deque()
        self._share: peers.Share | None = None
        #: How often it helped since the share is this one.
        self._helped = 0
        self._have: list[set[int]] = [set() for _ in peers.LEVELS]
        self._wanted: list[set[int]] = [set() for _ in peers.LEVELS]
        #: Since when it waits for other clusters.
        self._waits_s: float | None = None

    def found(self, blocks: Iterable[int]) -> None:
        """Take over what was here before, in each swarm."""
        for got in self._have:
            got.update(blocks)

    def take(self, share: peers.Share | None, available: Availability
             ) -> bool:
        """Fetch the share; when it is here, help with what others lack.

        :returns: whether priorities change.
        """
        got = self._have[peers.WITHIN]
        if share == self._share:
            return (share is not None and self._wanted[peers.FIRST] <= got
                    and self._help(share, available))
        self._share, self._helped, self._waits_s = share, 0, None
        for wanted in self._wanted:
            wanted.clear()
        if share is not None:
            for block in filter(share.has, range(self._n_blocks)):
                if block in got:
                    self.to_pass.append(block)
                else:
                    self._wanted[peers.BETWEEN].add(block)
                    if share.is_first(block):
                        self._wanted[peers.FIRST].add(block)
        return True

    def priorities(self, level: int) -> list[int]:
        """What a swarm is to fetch: 4 for yes, as libtorrent counts."""
        return [4 if block in self._wanted[level] else 0
                for block in range(self._n_blocks)]

    def _help(self, share: peers.Share, available: Availability) -> bool:
        """Fetch some of what others should; False while others give."""
        got = self._have[peers.WITHIN]
        within, between = map(available, (peers.WITHIN, peers.BETWEEN))
        now_s = self._clock()
        if self._waits_s is None:
            self._waits_s = now_s
        is_patient = now_s < self._waits_s + PATIENCE_S
        if is_patient and any(
                between[block] for block in self._wanted[peers.BETWEEN] - got):
            return False
        lacking = [block for block in range(self._n_blocks)
                   if block not in got and not within[block]]
        ways = (
            # Another cluster has it, which costs the source nothing; it would
            # be for this cluster to take it from the source; another cluster
            # should, and did not.
            (peers.BETWEEN, [one for one in lacking
                             if between[one] and is_patient]),
            (peers.FIRST, [one for one in lacking
                           if share.is_clusters_first(one)]),
            (peers.FIRST, [one for one in lacking if not between[one]]),
            (peers.FIRST, lacking))
        for level, blocks in ways:
            if blocks:
                # Drawn, so that two that help seldom take the same; more each
                # time, as those who should do it may be gone.
                part = min(1, 2 ** self._helped / (HELP * share.gates))
                self._helped += 1
                self._wanted[level].update(self._draw(
                    blocks, math.ceil(len(blocks) * part)))
                return True
        return False

    def finished(self, level: int, block: int) -> list[int]:
        """Note a block that came by one swarm.

        :returns: other swarms that were to fetch it and need not any more.
        """
        self._have[level].add(block)
        self.to_pass.append(block)
        spared = [other for other in peers.LEVELS
                  if other != level and block in self._wanted[other]]
        for other in spared:
            self._wanted[other].discard(block)
        return [other for other in spared if block not in self._have[other]]

    def lacking(self, block: int) -> list[int]:
        """Swarms that should have a block and do not."""
        share = self._share
        return [level for level in (peers.BETWEEN, peers.WITHIN)
                if block not in self._have[level] and (
                    level == peers.WITHIN
                    or share is not None and share.has(block)
                    or block in self._have[peers.FIRST])]

    def source(self, block: int) -> int | None:
        """The swarm to read a block from that another one lacks."""
        if not self.lacking(block):
            return None
        return next((level for level in peers.LEVELS
                     if block in self._have[level]), None)
