# SPDX-License-Identifier: Apache-2.0

"""Traces in the coflow-benchmark format.

First line: ``<ports> <coflows>``. Each further line: id, arrival in ms, number
of mappers, their ports, number of reducers, and ``port:megabytes`` of each. A
megabyte is 10^6 bytes; a reducer's bytes come in equal parts from its mappers
(exactly, nothing is rounded).
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import math
import pathlib

import numpy as np

from virtco import exception
from virtco import units
from virtco.scheduling import fabric as fabric_model

BYTES_PER_MB = 1e6
MS_PER_S = 1e3
#: Larger fabrics and traces are refused rather than tried.
MAX_PORTS = 100_000
MAX_FLOWS = 20_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class TraceCoflow:
    """A coflow, as a line of a trace; ports count from 0."""

    coflow_id: str
    arrival_s: float
    mappers: tuple[int, ...]
    reducers: tuple[tuple[int, float], ...]

    def demand(self) -> fabric_model.Demand:
        """Build the coflow's flows; a port named twice counts twice.

        A port of the trace stands for a rack: what a rack sends to itself
        still crosses its port, as the trace's other users have it.
        """
        n_mappers, n_reducers = len(self.mappers), len(self.reducers)
        size = np.array([size for _, size in self.reducers])
        src = np.repeat(np.array(self.mappers, np.int32), n_reducers)
        dst = np.tile(np.array([port for port, _ in self.reducers],
                               np.int32), n_mappers)
        bits = np.tile(size * units.BITS_PER_BYTE / max(1, n_mappers),
                       n_mappers)
        used = bits > 0
        return fabric_model.Demand(src[used], dst[used], bits[used],
                                   np.ones(int(used.sum())))

    @property
    def size_bytes(self) -> float:
        return sum(size for _, size in self.reducers)


@dataclasses.dataclass(frozen=True, slots=True)
class Trace:
    """Coflows by arrival over ``n_ports`` ports."""

    n_ports: int
    coflows: tuple[TraceCoflow, ...]


def read(path: pathlib.Path) -> Trace:
    """Read a trace.

    :raises virtco.exception.Invalid: naming the line and what is wrong.
    """
    try:
        lines = path.read_text(encoding='utf-8').splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise exception.Invalid(field='trace', value=str(path),
                                limit=f'a readable text file ({error})'
                                ) from error
    rows = [(number, line.split()) for number, line in enumerate(lines, 1)
            if line.strip()]
    if not rows:
        raise exception.Invalid(field='trace', value=str(path),
                                limit='a file with a header line')
    number, header = rows[0]
    if len(header) != 2:
        raise _invalid(number, ' '.join(header),
                       'a header "<ports> <coflows>"')
    n_ports = _integer(number, header[0], 'number of ports', 1, MAX_PORTS)
    n_coflows = _integer(number, header[1], 'number of coflows', 0, MAX_FLOWS)
    if len(rows) - 1 != n_coflows:
        raise _invalid(number, header[1], f'{len(rows) - 1}, as many as '
                       'further lines')
    coflows = [_coflow(number, iter(words), n_ports)
               for number, words in rows[1:]]
    n_flows = sum(len(coflow.mappers) * len(coflow.reducers)
                  for coflow in coflows)
    if n_flows > MAX_FLOWS:
        raise exception.Invalid(field='flows of the trace', value=n_flows,
                                limit=f'at most {MAX_FLOWS}')
    coflows.sort(key=lambda coflow: coflow.arrival_s)
    return Trace(n_ports, tuple(coflows))


def write(path: pathlib.Path, trace: Trace) -> None:
    """Write a trace in the same format."""
    lines = [f'{trace.n_ports} {len(trace.coflows)}']
    for coflow in trace.coflows:
        words = [coflow.coflow_id, f'{coflow.arrival_s * MS_PER_S:.0f}',
                 str(len(coflow.mappers)), *map(str, coflow.mappers),
                 str(len(coflow.reducers)),
                 *(f'{port}:{size / BYTES_PER_MB:.6g}'
                   for port, size in coflow.reducers)]
        lines.append(' '.join(words))
    path.write_text('\n'.join(lines) + '\n', encoding='utf-8')


def _coflow(number: int, words: Iterator[str], n_ports: int) -> TraceCoflow:
    try:
        coflow_id, arrival = next(words), next(words)
        mappers = [_integer(number, next(words), 'mapper', 0, n_ports - 1)
                   for _ in range(_integer(number, next(words),
                                           'number of mappers', 1,
                                           MAX_FLOWS))]
        reducers = []
        for _ in range(_integer(number, next(words), 'number of reducers', 1,
                                MAX_FLOWS)):
            port, _, size = next(words).partition(':')
            reducers.append((_integer(number, port, 'reducer', 0,
                                      n_ports - 1),
                             _number(number, size, 'number of megabytes')
                             * BYTES_PER_MB))
    except StopIteration:
        raise _invalid(number, 'fewer', 'as many words as the line announces'
                       ) from None
    rest = list(words)
    if rest:
        raise _invalid(number, rest[0], 'the end of the line')
    arrival_s = _number(number, arrival, 'arrival') / MS_PER_S
    return TraceCoflow(coflow_id, arrival_s, tuple(mappers), tuple(reducers))


def _integer(number: int, word: str, what: str, low: int, high: int) -> int:
    with contextlib.suppress(ValueError):
        if low <= (value := int(word)) <= high:
            return value
    raise _invalid(number, word, f'a {what} between {low} and {high}')


def _number(number: int, word: str, what: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (value := float(word)) < math.inf:
            return value
    raise _invalid(number, word, f'a finite {what}, at least 0')


def _invalid(number: int, value: str, limit: str) -> exception.Invalid:
    return exception.Invalid(field=f'line {number} of the trace', value=value,
                             limit=limit)
