# SPDX-License-Identifier: Apache-2.0

"""Blocks of one member: had, wanted, and passed between swarms. Pure."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import math
import random

from virtco_tenant.cast import peers

#: Seconds that a member waits for blocks that another cluster has or should
#: have, before it takes them from the source. Otherwise one slow cluster would
#: hold up all others.
PATIENCE_S = 1.5
#: A gate that has its share fetches 1 / (HELP * gates) of the blocks that its
#: cluster lacks, as a first step.
HELP = 2

#: Returns, for a level, the number of neighbours that have each block.
Availability = Callable[[int], Sequence[int]]


class Blocks:
    """State of a member's blocks in its swarms, one per ``peers.LEVELS``.

    All swarms hold the same blocks.

    :param draw: returns a random sample of a sequence, of a given length.
    :ivar to_pass: blocks that came by one swarm and may be lacking in others.
    """

    def __init__(self, n_blocks: int, clock: Callable[[], float],
                 draw: Callable[[Sequence[int], int], list[int]] = (
                     random.sample)):
        self._n_blocks = n_blocks
        self._clock = clock
        self._draw = draw
        self.to_pass: collections.deque[int] = collections.deque()
        self._share: peers.Share | None = None
        #: Number of helping steps since the share was given.
        self._helped: int
        self._have: list[set[int]] = [set() for _ in peers.LEVELS]
        self._wanted: list[set[int]] = [set() for _ in peers.LEVELS]
        #: Time from which it waits for other clusters; None while it does not.
        self._waits_s: float | None = None

    def found(self, blocks: Iterable[int]) -> None:
        """Mark blocks that were here before as had, in each swarm."""
        for got in self._have:
            got.update(blocks)

    def take(self, share: peers.Share | None, available: Availability
             ) -> bool:
        """Fetch the share; once it is here, help to fetch missing blocks.

        :param share: share of the member; None for no gate.
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
        """Return libtorrent's priority of each block in a swarm.

        It is 4 for a block to fetch, else 0.
        """
        return [4 if block in self._wanted[level] else 0
                for block in range(self._n_blocks)]

    def _help(self, share: peers.Share, available: Availability) -> bool:
        """Want some blocks that other gates of the cluster should fetch.

        :returns: whether any are wanted; False while other clusters still
            send the member's own share, or if no block is missing.
        """
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
            # In order: blocks that another cluster has, which costs the source
            # nothing; blocks that this cluster should take from the source;
            # blocks that another cluster should have taken and did not.
            (peers.BETWEEN, [one for one in lacking
                             if between[one] and is_patient]),
            (peers.FIRST, [one for one in lacking
                           if share.is_clusters_first(one)]),
            (peers.FIRST, [one for one in lacking if not between[one]]),
            (peers.FIRST, lacking))
        for level, blocks in ways:
            if blocks:
                # At random, so that two helpers seldom take the same blocks;
                # more each time, as the responsible gates may be gone.
                part = min(1, 2 ** self._helped / (HELP * share.gates))
                self._helped += 1
                self._wanted[level].update(self._draw(
                    blocks, math.ceil(len(blocks) * part)))
                return True
        return False

    def finished(self, level: int, block: int) -> list[int]:
        """Note a block that came by one swarm.

        :returns: other swarms that wanted it and need not fetch it any more.
        """
        self._have[level].add(block)
        self.to_pass.append(block)
        spared = [other for other in peers.LEVELS
                  if other != level and block in self._wanted[other]]
        for other in spared:
            self._wanted[other].discard(block)
        return [other for other in spared if block not in self._have[other]]

    def lacking(self, block: int) -> list[int]:
        """Return the swarms that should have a block and do not."""
        share = self._share
        return [level for level in (peers.BETWEEN, peers.WITHIN)
                if block not in self._have[level] and (
                    level == peers.WITHIN
                    or share is not None and share.has(block)
                    or block in self._have[peers.FIRST])]

    def source(self, block: int) -> int | None:
        """Return the swarm from which to copy a block to swarms without it.

        None if no swarm lacks it, or none has it.
        """
        if not self.lacking(block):
            return None
        return next((level for level in peers.LEVELS
                     if block in self._have[level]), None)
