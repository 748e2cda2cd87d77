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

"""A training workload of AICB (github.com/aliyun/aicb), as its CSV.

A file has a section per stage of the pipeline: a line in brackets that names
its ranks (absent when there is one section), a header line, and a line per
operation of one rank. ``CommType.epoch_end`` ends an iteration; the first
epoch sets up. ``msg_size`` is in bytes, with NCCL's meaning of the size.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import re

from virtco.hintkit import collectives
from virtco.hintkit import inputs
from virtco.hintkit import made
from virtco import units

COLUMNS = ['comm_type', 'comm_group', 'comm_group_size', 'msg_size']
GROUPS = ('tp_group', 'dp_group', 'pp_group', 'ep_group', 'ep_tp_group',
          'ep_dp_group', 'embedding_group', 'all_nodes')
SAME_AS = {'all_gather_into_tensor': 'all_gather',
           'reduce_scatter_tensor': 'reduce_scatter'}
#: They send nothing, or (irecv) what another rank's isend sends.
SILENT = ('barrier', 'computation', 'irecv')

_RANK = re.compile(r'rank\s*([0-9]{1,6})')

#: (collective, group, "send_next" or "send_prev") -> bytes.
Sums = dict[tuple[str, str, str], float]


@dataclasses.dataclass(slots=True)
class _Section:
    """Operations of one stage.

    :ivar ranks: of the stage; None is all.
    :ivar epochs: sums of each epoch, the set-up first.
    """

    where: str
    ranks: list[int] | None = None
    epochs: list[Sums] = dataclasses.field(default_factory=lambda: [{}])

    def per_iteration(self) -> Sums:
        """Mean over the epochs after the set-up that sent anything."""
        epochs = [sums for sums in self.epochs[1:] if sums]
        if not epochs:
            inputs.refuse(self.where, 'CommType.epoch_end',
                          len(self.epochs) - 1,
                          'an iteration after the end of the set-up epoch')
        return {key: sum(sums.get(key, 0.0) for sums in epochs) / len(epochs)
                for key in {key for sums in epochs for key in sums}}


@dataclasses.dataclass(slots=True)
class _File:
    sections: list[_Section] = dataclasses.field(default_factory=list)
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)


def convert(path: str, gpus_per_vm: int = 8,
            world_size: int | None = None) -> made.Made:
    """The matrix of one iteration.

    :raises virtco.exception.InputInvalid:
    """
    file = _read(path)
    sections = [(section.ranks, section.per_iteration())
                for section in file.sections]
    size = {group: file.sizes.get(group, 1) for group in GROUPS}
    size['pp_group'] = max(size['pp_group'], len(sections))
    known = max((max(ranks) + 1 for ranks, _sums in sections if ranks),
                default=size['tp_group'] * size['dp_group']
                * size['pp_group'])
    layout = _Layout(size, world_size or max(known, size['all_nodes']))
    _check_world(path, layout, file.sizes, known)
    by_group: dict[str, float] = {}
    flows: made.Flows = {}
    inside_bytes = 0.0
    for ranks, sums in sections:
        for (kind, group, way), size_bytes in sums.items():
            members = ranks or range(layout.world_size)
            found, inside = made.onto_vms(
                _counted(layout.sends(members, kind, group, way, size_bytes),
                         by_group, group), gpus_per_vm)
            inside_bytes += inside
            for pair, sent in found.items():
                flows[pair] = flows.get(pair, 0.0) + sent
    n_vms = -(-layout.world_size // gpus_per_vm)
    return made.Made(made.matrix_of(n_vms, flows), (
        'One iteration, all ranks, by parallel group: ' + (', '.join(
            f'{group.removesuffix("_group")} {size_bytes / 1e9:,.3f} GB'
            for group, size_bytes in sorted(by_group.items()))
            or 'nothing') + '.',
        f'{layout.world_size} ranks: TP {size["tp_group"]}, PP '
        f'{size["pp_group"]}, DP {layout.per_stage // size["tp_group"]}, EP '
        f'{size["ep_group"]}; TP varies fastest, then EP, DP, PP '
        '(Megatron).',
        f'Rank r runs on VM r div {gpus_per_vm} ({n_vms} VMs); '
        f'{units.format_size(inside_bytes)} stay inside of VMs and are left '
        'out.',
        'Collectives take rings over the ranks of their group in order; the '
        'set-up epoch is left out, the others are averaged.'))


def _check_world(path: str, layout: '_Layout', sizes: dict[str, int],
                 known: int) -> None:
    size, world_size = layout.size, layout.world_size
    tp, pp, ep = size['tp_group'], size['pp_group'], size['ep_group']
    if not known <= world_size <= collectives.MAX_RANKS:
        inputs.refuse(path, 'world size', world_size,
                      f'from {known} to {collectives.MAX_RANKS}')
    dp = sizes.get('dp_group', world_size // (tp * pp))
    if tp * pp * dp != world_size or dp % ep:
        inputs.refuse(path, 'world size', world_size,
                      f'TP {tp} times PP {pp} times DP {dp}, DP a multiple of '
                      f'EP {ep} (no context parallelism)')


def _counted(sends: Iterator[tuple[int, int, float]],
             by_group: dict[str, float], group: str
             ) -> Iterator[tuple[int, int, float]]:
    for src, dst, size_bytes in sends:
        by_group[group] = by_group.get(group, 0.0) + size_bytes
        yield src, dst, size_bytes


class _Layout:
    """Which ranks form each group."""

    def __init__(self, size: dict[str, int], world_size: int):
        self.size = size
        self.world_size = world_size
        self.per_stage = world_size // size['pp_group']

    def group_of(self, rank: int, group: str) -> Sequence[int]:
        """The ranks of the group that holds ``rank``, in order."""
        tp, ep = self.size['tp_group'], self.size['ep_group']
        start = rank - rank % self.per_stage
        stage = range(start, start + self.per_stage)
        if group == 'all_nodes':
            return range(self.world_size)
        if group in ('pp_group', 'embedding_group'):
            line = range(rank % self.per_stage, self.world_size,
                         self.per_stage)
            return line if group == 'pp_group' else [line[0], line[-1]]
        if group in ('tp_group', 'ep_tp_group'):
            width = tp if group == 'tp_group' else tp * ep
            first = (rank - start) // width * width
            return stage[first:first + width]
        if group == 'ep_group':
            block = (rank - start) // (tp * ep) * (tp * ep)
            return stage[block + rank % tp:block + tp * ep:tp]
        step = tp if group == 'dp_group' else tp * ep
        return stage[(rank - start) % step::step]

    def sends(self, ranks: Sequence[int], kind: str, group: str, way: str,
              size_bytes: float) -> Iterator[tuple[int, int, float]]:
        """What each of ``ranks`` sends in one operation of its group."""
        mine = set(ranks)
        groups = {tuple(self.group_of(rank, group)) for rank in mine}
        for members in sorted(groups):
            if len(members) < 2:
                continue
            if kind == 'isend':
                found = _to_neighbour(members, way, size_bytes)
            else:
                found = collectives.RING[kind](members, size_bytes)
            # Other stages tell of their own ranks.
            yield from (sent for sent in found if sent[0] in mine)


def _to_neighbour(stages: Sequence[int], way: str, size_bytes: float
                  ) -> Iterator[tuple[int, int, float]]:
    line = stages if way == 'send_next' else stages[::-1]
    for src, dst in zip(line, line[1:]):
        yield src, dst, size_bytes


def _read(path: str) -> _File:
    file = _File()
    ranks: list[int] | None = None
    where = path
    for where, line in inputs.lines(path):
        text = line.strip()
        if text.startswith('['):
            ranks = _ranks(where, text)
        elif text.startswith(COLUMNS[0]):
            if text.split(',')[:4] != COLUMNS:
                inputs.refuse(where, 'header', text, ','.join(COLUMNS)
                              + ', … as AICB writes it')
            file.sections.append(_Section(where, ranks))
            ranks = None
        elif text and file.sections:
            _operation(where, text, file)
        elif text:
            inputs.refuse(where, 'header', text, ','.join(COLUMNS) + ', …')
    if not file.sections:
        inputs.refuse(where, 'header', None, ','.join(COLUMNS) + ', …')
    return file


def _ranks(where: str, text: str) -> list[int]:
    named = [int(one) for one in _RANK.findall(text)]
    if '~' in text and len(named) == 2:
        named = list(range(named[0], named[1] + 1))
    if not named or max(named) >= collectives.MAX_RANKS:
        inputs.refuse(where, 'ranks', text, 'such as [rank0 ~ rank127], below '
                      f'{collectives.MAX_RANKS}')
    return named


def _operation(where: str, text: str, file: _File) -> None:
    cells = text.split(',')
    kind = cells[0].removeprefix('CommType.')
    section = file.sections[-1]
    if kind == 'epoch_end':
        section.epochs.append({})
        return
    if kind in SILENT:  # The shape of a computation holds commas.
        return
    kind = SAME_AS.get(kind, kind)
    if kind not in collectives.RING and kind != 'isend':
        inputs.refuse(where, 'comm_type', cells[0], 'one of ' + ', '.join(
            [*collectives.RING, 'isend', *SILENT, 'epoch_end']))
    if len(cells) < 8:
        inputs.refuse(where, 'columns', len(cells), 'at least 8')
    group = cells[1].removeprefix('CommGroup.')
    group = 'all_nodes' if group == 'all' else group
    if group not in GROUPS:
        inputs.refuse(where, 'comm_group', cells[1],
                      'one of ' + ', '.join(GROUPS))
    n_members = inputs.count(where, 'comm_group_size', cells[2], 1,
                             collectives.MAX_RANKS)
    # AICB writes a size of 1 beside isend.
    if kind != 'isend' and (
            file.sizes.setdefault(group, n_members) != n_members):
        inputs.refuse(where, 'comm_group_size', n_members,
                      f'{file.sizes[group]}, as before in {group}')
    size_bytes = inputs.size_bytes(where, 'msg_size', cells[3])
    way = cells[7] if kind == 'isend' else ''
    if kind == 'isend' and way not in ('send_next', 'send_prev'):
        inputs.refuse(where, 'additional', way, 'send_next or send_prev')
    key = kind, group, way
    section.epochs[-1][key] = section.epochs[-1].get(key, 0.0) + size_bytes
