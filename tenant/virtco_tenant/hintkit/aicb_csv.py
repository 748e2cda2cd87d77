# SPDX-License-Identifier: Apache-2.0

"""AICB's CSV: operations of one rank of each stage of the pipeline.

A stage has a section: a line in brackets that names its ranks (absent when
there is one section), a header line, and a line per operation.
``CommType.epoch_end`` ends an iteration; the first epoch sets up. ``msg_size``
is in bytes, with NCCL's meaning of the size. Older files have no
``comm_group_size``, and some lines leave it open. A file that was logged
beside a run has milliseconds in ``_elapsed_time``.
"""

from collections.abc import Iterable
import dataclasses
import math
import re

from virtco import ring_and_tree
from virtco_tenant.hintkit import collectives
from virtco_tenant.hintkit import inputs
from virtco_tenant.hintkit import parallel

FIRST = 'comm_type'
COLUMNS = (FIRST, 'comm_group', 'msg_size')
SIZE = 'comm_group_size'
WAY = 'additional'
ELAPSED = '_elapsed_time'
SAME_AS = {'all_gather_into_tensor': 'all_gather',
           'reduce_scatter_tensor': 'reduce_scatter'}
#: Operations that send nothing; irecv receives the bytes of an isend.
SILENT = ('barrier', 'irecv')

_RANK = re.compile(r'rank\s*([0-9]{1,6})')


@dataclasses.dataclass(slots=True)
class _Epoch:
    """Sums over an epoch: an iteration, or the set-up.

    :ivar sums: bytes by operation, group and direction.
    :ivar computed_s: logged time of computations.
    :ivar sent_s: logged time of communication.
    :ivar lasted_s: logged time of the whole epoch.
    """

    sums: parallel.Sums = dataclasses.field(default_factory=dict)
    computed_s: float = 0.0
    sent_s: float = 0.0
    lasted_s: float = 0.0

    def compute_s(self) -> float:
        return self.computed_s or max(0.0, self.lasted_s - self.sent_s)


@dataclasses.dataclass(slots=True)
class _Section:
    """Operations of one stage.

    :ivar column: index by name of the column, negative (from the right) for
        columns after the shapes of a computation, which contain commas.
    :ivar ranks: ranks of the stage; None is all.
    :ivar epochs: the set-up first.
    """

    where: str
    column: dict[str, int]
    ranks: list[int] | None = None
    epochs: list[_Epoch] = dataclasses.field(
        default_factory=lambda: [_Epoch()])

    def iterations(self) -> list[_Epoch]:
        """Return the epochs after the set-up that sent anything."""
        epochs = [epoch for epoch in self.epochs[1:] if epoch.sums]
        if not epochs:
            inputs.refuse(self.where, 'CommType.epoch_end',
                          len(self.epochs) - 1,
                          'an iteration after the end of the set-up epoch')
        return epochs


@dataclasses.dataclass(slots=True)
class _File:
    sections: list[_Section] = dataclasses.field(default_factory=list)
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    used: set[str] = dataclasses.field(default_factory=set)


def read(path: str, lines: Iterable[tuple[str, str]]) -> parallel.Workload:
    """Read the mean iteration of a file.

    :raises virtco.exception.InputInvalid:
    """
    file = _read(path, lines)
    iterations = [section.iterations() for section in file.sections]
    compute_s = max(_mean([epoch.compute_s() for epoch in epochs])
                    for epochs in iterations)
    named = [max(section.ranks) + 1 for section in file.sections
             if section.ranks]
    notes = ['The set-up epoch is left out, the others are averaged.']
    if unsized := sorted(file.used - file.sizes.keys() - {'dp_group'}):
        notes.append(f'The file tells no size of {", ".join(unsized)}: taken '
                     'as one rank.')
    if compute_s:
        notes.append('Times are those that AICB logged.')
    return parallel.Workload(
        path, tuple((section.ranks, _means(epochs))
                    for section, epochs in zip(file.sections, iterations)),
        file.sizes, max(named, default=None), compute_s or None,
        tuple(notes))


def _means(epochs: list[_Epoch]) -> parallel.Sums:
    return {key: _mean([epoch.sums.get(key, 0.0) for epoch in epochs])
            for key in {key for epoch in epochs for key in epoch.sums}}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _read(path: str, lines: Iterable[tuple[str, str]]) -> _File:
    file = _File()
    ranks: list[int] | None = None
    where = path
    for where, line in lines:
        text = line.strip()
        if text.startswith('['):
            ranks = _ranks(where, text)
        elif text.startswith(FIRST):
            file.sections.append(_Section(where, _columns(where, text), ranks))
            ranks = None
        elif text and file.sections:
            _operation(where, text, file)
        elif text:
            _no_header(where, text)
    if not file.sections:
        _no_header(where, None)
    return file


def _no_header(where: str, text: str | None) -> None:
    inputs.refuse(where, 'header', text, 'the columns ' + ','.join(COLUMNS)
                  + ', … of a CSV, or the first line of a workload for SimAI, '
                  'as AICB writes them')


def _columns(where: str, text: str) -> dict[str, int]:
    names = [name.strip() for name in text.split(',')]
    if not {*COLUMNS, WAY} <= set(names):
        _no_header(where, text)
    return {name: k - len(names) if name == ELAPSED else k
            for k, name in enumerate(names)}


def _ranks(where: str, text: str) -> list[int]:
    named = [int(one) for one in _RANK.findall(text)]
    if '~' in text and len(named) == 2:
        named = list(range(named[0], named[1] + 1))
    if not named or max(named) >= collectives.MAX_RANKS:
        inputs.refuse(where, 'ranks', text, 'ranks such as [rank0 ~ rank127], '
                      f'below {collectives.MAX_RANKS}')
    return named


def _operation(where: str, text: str, file: _File) -> None:
    cells = [cell.strip() for cell in text.split(',')]
    kind = cells[0].removeprefix('CommType.')
    section = file.sections[-1]
    epoch = section.epochs[-1]
    elapsed_s = _elapsed_s(where, cells, section)
    if kind == 'epoch_end':
        epoch.lasted_s = elapsed_s
        section.epochs.append(_Epoch())
        return
    if kind == 'computation':
        epoch.computed_s += elapsed_s
        return
    epoch.sent_s += elapsed_s
    kind = SAME_AS.get(kind, kind)
    if kind in SILENT:
        return
    if kind not in ring_and_tree.RING and kind != 'isend':
        inputs.refuse(where, 'comm_type', cells[0], 'one of ' + ', '.join(
            [*ring_and_tree.RING, 'isend', *SILENT, 'computation',
             'epoch_end']))
    least = 1 + max(section.column.get(name, 0)
                    for name in (*COLUMNS, SIZE, WAY))
    if len(cells) < least:
        inputs.refuse(where, 'columns', len(cells),
                      f'at least {least} columns')
    named = cells[section.column['comm_group']]
    group = named.removeprefix('CommGroup.')
    group = 'all_nodes' if group == 'all' else group
    if group not in parallel.GROUPS:
        inputs.refuse(where, 'comm_group', named,
                      'one of ' + ', '.join(parallel.GROUPS))
    _note_size(where, kind, group, cells, file)
    size_bytes = inputs.size_bytes(where, 'msg_size',
                                   cells[section.column['msg_size']])
    way = cells[section.column[WAY]] if kind == 'isend' else ''
    if kind == 'isend' and way not in ('send_next', 'send_prev'):
        inputs.refuse(where, 'additional', way, 'send_next or send_prev')
    key = kind, group, way
    epoch.sums[key] = epoch.sums.get(key, 0.0) + size_bytes


def _note_size(where: str, kind: str, group: str, cells: list[str],
               file: _File) -> None:
    """Store the number of ranks of a group if the line has it."""
    file.used.add(group)
    column = file.sections[-1].column.get(SIZE)
    if column is None or cells[column] == 'None':
        return
    n_members = inputs.count(where, SIZE, cells[column], 1,
                             collectives.MAX_RANKS)
    # AICB writes a size of 1 with each isend.
    if kind != 'isend' and (
            file.sizes.setdefault(group, n_members) != n_members):
        inputs.refuse(where, SIZE, n_members,
                      f'{file.sizes[group]}, as before in {group}')


def _elapsed_s(where: str, cells: list[str], section: _Section) -> float:
    column = section.column.get(ELAPSED)
    if column is None or len(cells) < -column or cells[column] in ('', 'None'):
        return 0.0
    try:
        found_ms = float(cells[column])
    except ValueError:
        found_ms = math.nan
    if not 0 <= found_ms < math.inf:
        inputs.refuse(where, ELAPSED, cells[column],
                      'at least 0 milliseconds, or None')
    return found_ms / 1e3
