# SPDX-License-Identifier: Apache-2.0

"""The parallel groups of a training job's ranks, and their traffic.

Pure. Ranks are in Megatron's order: TP varies fastest, then EP, DP, PP.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from virtco import ring_and_tree
from virtco_tenant.hintkit import collectives
from virtco_tenant.hintkit import inputs
from virtco_tenant.hintkit import made

GROUPS = ('tp_group', 'dp_group', 'pp_group', 'ep_group', 'ep_tp_group',
          'ep_dp_group', 'embedding_group', 'all_nodes')

#: (collective, group, "send_next" or "send_prev") -> bytes of one rank.
Sums = dict[tuple[str, str, str], float]


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """Operations of an iteration of a training job, as a file tells them.

    :ivar path: path of the file, for messages.
    :ivar stages: stages of the pipeline: (ranks, None for all; bytes that each
        rank gives to each operation).
    :ivar sizes: number of ranks by group, where the file tells it.
    :ivar world_size: least number of ranks; None if the file tells none.
    :ivar compute_s: time in which nothing is sent; None if the file tells
        none.
    :ivar notes: assumptions, a sentence each.
    """

    path: str
    stages: tuple[tuple[Sequence[int] | None, Sums], ...]
    sizes: Mapping[str, int]
    world_size: int | None = None
    compute_s: float | None = None
    notes: tuple[str, ...] = ()

    def tells_world(self) -> bool:
        """Return whether the file tells the number of ranks."""
        return (self.world_size is not None
                or not self.sizes.keys().isdisjoint(('dp_group',
                                                     'all_nodes')))

    def block(self) -> int:
        """Return the number of ranks of the smallest job: DP equal to EP."""
        size = self._sizes()
        return size['tp_group'] * size['pp_group'] * size['ep_group']

    def layout(self, world_size: int | None = None) -> 'Layout':
        """Return the groups of all ranks.

        :param world_size: number of ranks; None takes the file's.
        :raises virtco.exception.InputInvalid: for ranks that form no groups.
        """
        size = self._sizes()
        least = max(self.world_size or 1, size['all_nodes'])
        data = self.sizes.get('dp_group')
        tp, pp, ep = size['tp_group'], size['pp_group'], size['ep_group']
        found = world_size or max(least, tp * pp * (data or 1))
        if not least <= found <= collectives.MAX_RANKS:
            inputs.refuse(self.path, 'world size', found,
                          f'{least} to {collectives.MAX_RANKS} ranks')
        data = data or found // (tp * pp)
        if tp * pp * data != found or data % ep:
            inputs.refuse(self.path, 'world size', found,
                          f'TP {tp} times PP {pp} times DP {data}, with DP a '
                          f'multiple of EP {ep} (no context parallelism)')
        return Layout(size, found)

    def _sizes(self) -> dict[str, int]:
        size = {group: self.sizes.get(group, 1) for group in GROUPS}
        size['pp_group'] = max(size['pp_group'], len(self.stages))
        return size

    def scaled(self, world_size: int) -> 'Workload':
        """Return the job on another number of ranks, by changing its DP.

        :raises virtco.exception.InputInvalid: for ranks that form no groups.
        """
        n = len(self.stages)
        stages = tuple(
            (range(k * world_size // n, (k + 1) * world_size // n), sums)
            for k, (_ranks, sums) in enumerate(self.stages))
        found = dataclasses.replace(
            self, world_size=world_size, stages=stages,
            sizes={group: size for group, size in self.sizes.items()
                   if group not in ('dp_group', 'ep_dp_group', 'all_nodes')})
        found.layout(world_size)
        return found

    def flows(self, layout: 'Layout', ranks_per_vm: int
              ) -> tuple[made.Flows, float, dict[str, float]]:
        """Return the bytes by pair of VMs, within VMs, and by group."""
        by_group: dict[str, float] = {}
        flows: made.Flows = {}
        inside_bytes = 0.0
        for ranks, sums in self.stages:
            for (kind, group, way), size_bytes in sums.items():
                inside_bytes += made.onto_vms(flows, _counted(
                    layout.sends(ranks or range(layout.world_size), kind,
                                 group, way, size_bytes),
                    by_group, group), ranks_per_vm)
        return flows, inside_bytes, by_group


def _counted(sends: Iterator[tuple[int, int, float]],
             by_group: dict[str, float], group: str
             ) -> Iterator[tuple[int, int, float]]:
    for src, dst, size_bytes in sends:
        by_group[group] = by_group.get(group, 0.0) + size_bytes
        yield src, dst, size_bytes


class Layout:
    """Division of a job's ranks into parallel groups.

    :param size: ranks per group, for each of GROUPS.
    """

    def __init__(self, size: dict[str, int], world_size: int):
        self.size = size
        self.world_size = world_size
        self.per_stage = world_size // size['pp_group']

    def group_of(self, rank: int, group: str) -> Sequence[int]:
        """Return the ranks of the group that holds ``rank``, in order."""
        tp, ep = self.size['tp_group'], self.size['ep_group']
        start = rank - rank % self.per_stage
        stage = range(start, start + self.per_stage)
        if group == 'all_nodes':
            return range(self.world_size)
        if group in ('pp_group', 'embedding_group'):
            line = range(rank % self.per_stage, self.world_size,
                         self.per_stage)
            # The embedding is in the first and in the last stage.
            return (line if group == 'pp_group'
                    else line[::max(1, len(line) - 1)])
        if group in ('tp_group', 'ep_tp_group'):
            width = tp if group == 'tp_group' else tp * ep
            first = (rank - start) // width * width
            return stage[first:first + width]
        if group == 'ep_group':
            block = (rank - start) // (tp * ep) * (tp * ep)
            return stage[block + rank % tp:block + tp * ep:tp]
        step = tp if group == 'dp_group' else tp * ep
        return stage[rank % step::step]

    def sends(self, ranks: Sequence[int], kind: str, group: str, way: str,
              size_bytes: float) -> Iterator[tuple[int, int, float]]:
        """Yield (sender, receiver, bytes) of an operation in the groups.

        Only flows that ``ranks`` send are included.

        :param kind: collective, or ``isend``.
        :param way: ``send_next`` or ``send_prev`` of an ``isend``.
        """
        mine = set(ranks)
        groups = {self.group_of(rank, group) for rank in mine}
        for members in sorted(groups, key=lambda members: members[0]):
            if len(members) < 2:
                continue
            if (kind == 'all_to_all'
                    and len(members) > collectives.MAX_PAIR_RANKS):
                inputs.refuse('Workload', f'{group} of all_to_all',
                              len(members),
                              f'at most {collectives.MAX_PAIR_RANKS} ranks')
            if kind == 'isend':
                found = _to_neighbour(members, way, size_bytes)
            else:
                found = ring_and_tree.RING[kind](members, size_bytes)
            # Other stages have lines of their own for their ranks.
            yield from (sent for sent in found if sent[0] in mine)


def _to_neighbour(stages: Sequence[int], way: str, size_bytes: float
                  ) -> Iterator[tuple[int, int, float]]:
    line = stages if way == 'send_next' else stages[::-1]
    for src, dst in zip(line, line[1:]):
        yield src, dst, size_bytes
