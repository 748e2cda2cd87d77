# SPDX-License-Identifier: Apache-2.0

"""Broadcasts of a file's blocks, after Orchestra's Table 2.

The unit of time is the time of a block over a VM's port, the same for all, in
each direction. The capacity of a rack's uplink is in blocks per unit. Nothing
is lost to handshakes, headers, or waiting for a reply.
"""

import itertools

import numpy as np

#: Blocks of Cornet in a chunk of HDFS: 64 MB to 4 MB.
CHUNK_BLOCKS = 16


def star(receivers: int, blocks: int) -> float:
    """Time a broadcast in which all fetch from the source's port, shared."""
    return float(receivers * blocks)


def chain(receivers: int, blocks: int) -> float:
    """Time a broadcast in which each passes on its blocks, one behind."""
    return float(blocks + receivers - 1)


def tree(receivers: int, blocks: int, degree: int = 2) -> float:
    """Time a broadcast in which each sends each block to child after child."""
    have = np.zeros((receivers + 1, blocks))
    nodes = range(len(have))
    for node in nodes:
        first = degree * node + 1
        free = 0.0
        for block, child in itertools.product(range(blocks),
                                              nodes[first:first + degree]):
            free = max(free, have[node, block]) + 1
            have[child, block] = free
    return float(have.max())


def hdfs(receivers: int, blocks: int, rng: np.random.Generator,
         replicas: int = 3) -> float:
    """Time a broadcast by files that are written along a chain of replicas.

    All then read each chunk from one replica by chance, and replicas share
    their ports.
    """
    sizes = np.diff(np.append(np.arange(0, blocks, CHUNK_BLOCKS), blocks))
    chosen = rng.integers(replicas, size=(receivers, len(sizes)))
    sent = np.bincount(chosen.ravel(), np.tile(sizes, receivers), replicas)
    return chain(replicas, blocks) + float(sent.max())


class Cornet:
    """Swarm in which all receivers with a block send it, the rarest first.

    :param rack: rack of the source, then of each receiver, from 0 without
        gaps, shape (n + 1,).
    :param crossing: blocks that an uplink carries in each direction in a unit
        of time.
    :param is_aware: whether a block is fetched from another rack only while
        nobody in the own rack has it or fetches it.
    """

    def __init__(self, rack: np.ndarray, blocks: int,
                 rng: np.random.Generator, crossing: float = np.inf,
                 is_aware: bool = False):
        self._rack, self._rng = rack, rng
        self._crossing, self._is_aware = crossing, is_aware
        self._have = np.zeros((len(rack), blocks), bool)
        self._have[0] = True
        self._member = rack[None, :] == np.unique(rack)[:, None]
        self._credit = np.zeros((2, len(self._member)))

    def run(self) -> int:
        """Return the number of rounds until all receivers have all blocks."""
        rounds = 0
        while not self._have.all():
            rounds += 1
            self._round()
        return rounds

    def _round(self) -> None:
        have = self._have
        # Uplinks save up capacity for one block at most.
        self._credit = np.minimum(self._credit, 1.0) + self._crossing
        free = np.ones(len(have), bool)
        counts = have.sum(axis=0)
        found: list[tuple[int, int]] = []
        coming = self._member.astype(float) @ have > 0
        for node in self._rng.permutation(np.flatnonzero(~have.all(axis=1))):
            pair = self._fetched(int(node), free, counts, coming)
            if pair is not None:
                giver, block = pair
                free[giver] = False
                counts[block] += 1
                coming[self._rack[node], block] = True
                found.append((int(node), block))
        for node, block in found:
            have[node, block] = True

    def _fetched(self, node: int, free: np.ndarray, counts: np.ndarray,
                 coming: np.ndarray) -> tuple[int, int] | None:
        """Choose the (sender, block) that a receiver fetches in this round.

        :param node: the receiver.
        :param free: whether each node's port is free to send.
        :param counts: number of copies of each block.
        :param coming: whether each rack has or fetches each block, shape
            (racks, blocks).
        :returns: None when it can fetch nothing.
        """
        wanted = free[:, None] & self._have & ~self._have[node]
        if self._is_aware:
            near = self._member[self._rack[node]]
            inside = wanted & near[:, None]
            wanted = (inside if inside.any()
                      else wanted & ~coming[self._rack[node]])
        blocks = np.flatnonzero(wanted.any(axis=0))
        if not len(blocks):
            return None
        rarity = counts[blocks] + self._rng.random(len(blocks))
        block = int(blocks[np.argmin(rarity)])
        giver = int(self._rng.choice(np.flatnonzero(wanted[:, block])))
        ends = self._rack[giver], self._rack[node]
        if ends[0] != ends[1]:
            if min(self._credit[0, ends[0]], self._credit[1, ends[1]]) < 1:
                # The node keeps its port while it waits for the uplinks.
                return None
            self._credit[0, ends[0]] -= 1
            self._credit[1, ends[1]] -= 1
        return giver, block
