# SPDX-License-Identifier: Apache-2.0

"""A matrix of bytes between MPI ranks, as text or CSV."""

import re
from typing import Any

from virtco_tenant.hintkit import inputs
from virtco_tenant.hintkit import made

MAX_RANKS = 20_000

_SEPARATOR = re.compile(r'[,;\s]\s*|\s+')


def convert(path: str, triples: bool, ranks_per_vm: int,
            cyclic: bool) -> made.Made:
    """Read a matrix, or lines of sender, receiver and bytes.

    Comments begin with ``#``; columns are separated by blanks, ``,`` or ``;``.

    :param cyclic: ranks go round the VMs (MPI's map-by node) instead of
        filling one after the other.
    :raises virtco.exception.InputInvalid:
    """
    n_ranks, flows = _triples(path) if triples else _dense(path)
    n_vms = -(-n_ranks // ranks_per_vm)
    on_vms: made.Flows = {}
    inside_bytes = made.onto_vms(
        on_vms, ((src, dst, size) for (src, dst), size in flows.items()),
        ranks_per_vm, n_vms if cyclic else None)
    placed = ('one rank runs on each VM' if ranks_per_vm == 1 else
              f'rank r runs on VM r mod {n_vms}' if cyclic else
              f'rank r runs on VM r div {ranks_per_vm}')
    return made.Made(made.matrix_of(n_vms, on_vms), (
        f'{n_ranks} ranks; {placed}.',
        'Row i, column j is what rank i sends to rank j, in bytes, in the '
        'whole run.' if not triples else
        'Each line is sender, receiver and bytes; repeated pairs add up.',
        *([f'{inside_bytes:,.0f} bytes stay inside of VMs and are left out.']
          if inside_bytes else ())))


def _rows(path: str) -> Any:
    for where, line in inputs.lines(path):
        text = line.partition('#')[0].strip().strip(',;')
        if text:
            yield where, _SEPARATOR.split(text)


def _dense(path: str) -> tuple[int, made.Flows]:
    flows: made.Flows = {}
    n_ranks = src = 0
    where = path
    for where, cells in _rows(path):
        n_ranks = n_ranks or len(cells)
        if len(cells) != n_ranks or n_ranks > MAX_RANKS:
            inputs.refuse(where, 'columns', len(cells),
                          f'{n_ranks}, as in the first row, and at most '
                          f'{MAX_RANKS}')
        for dst, cell in enumerate(cells):
            size = inputs.size_bytes(where, f'column {dst + 1}', cell)
            if size and dst != src:
                flows[src, dst] = size
        src += 1
    if src != n_ranks or not n_ranks:
        inputs.refuse(where, 'rows', src,
                      f'as many rows as columns ({n_ranks or "at least 1"})')
    return n_ranks, flows


def _triples(path: str) -> tuple[int, made.Flows]:
    flows: made.Flows = {}
    most = -1
    for where, cells in _rows(path):
        if len(cells) != 3:
            inputs.refuse(where, 'columns', len(cells),
                          '3 columns (sender, receiver, bytes)')
        src, dst = (inputs.count(where, name, cell, 0, MAX_RANKS - 1)
                    for name, cell in zip(('sender', 'receiver'), cells))
        size = inputs.size_bytes(where, 'bytes', cells[2])
        most = max(most, src, dst)
        if src != dst:
            flows[src, dst] = flows.get((src, dst), 0.0) + size
    if most < 0:
        inputs.refuse(path, 'lines', 0, 'at least one line')
    return most + 1, flows
