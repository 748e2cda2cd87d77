# SPDX-License-Identifier: Apache-2.0

"""The matrix of a hint: ``virtco:tm`` as text or as decoded JSON.

Dense, sparse, a named pattern (:mod:`virtco.hint_patterns`) or a list of
named matrices; every bound of :class:`Limits` is checked before memory is
spent on what it bounds.
"""

import collections
from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import json
import reprlib
from typing import Any
from typing import NoReturn

from virtco import exception
from virtco import hint_patterns
from virtco import units
from virtco.model import coflow as coflow_model

TM = 'virtco:tm'
MAX_ITERATIONS = 10 ** 9
#: Longest time of an iteration: 30 days.
MAX_PERIOD_S = 30 * 86400.0
MIN_PERIOD_S = 1e-3
#: Keys of a named matrix that say how it recurs.
RECURRENCE = ('iterations', 'period', 'compute')

_SIZE_CHARS = 40
#: VMs with self-flows that are named.
_MOST_TOLD = 5
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60
_SHORT.maxlevel = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one hint; the defaults fit Nova's own bounds.

    :ivar max_vms: rows of a matrix.
    :ivar max_flows: non-zero entries, all matrices of the group together.
    :ivar max_bytes_per_flow: size of one entry.
    :ivar max_bytes: all entries of the group together.
    :ivar max_coflows: named matrices of one group.
    :ivar max_text_bytes: length of ``virtco:tm`` in UTF-8; Nova's whole
        request is at most 114,688 bytes long.
    :ivar max_name_chars: length of a name or a reference.
    """

    max_vms: int = 500
    max_flows: int = 50_000
    max_bytes_per_flow: float = 1e15
    max_bytes: float = 1e17
    max_coflows: int = 32
    max_text_bytes: int = 114_688
    max_name_chars: int = 255


def parse_matrix_text(text: str, name: str, limits: Limits = Limits()
                      ) -> tuple[coflow_model.Coflow, ...]:
    """Read the JSON text of ``virtco:tm`` in a hint, whose length is bounded.

    :param name: name of the coflow when the text holds one nameless matrix.
    :raises virtco.exception.HintInvalid: see :func:`parse`.
    """
    size = len(text) if len(text) > limits.max_text_bytes else len(
        text.encode('utf-8', 'replace'))
    if size > limits.max_text_bytes:
        refuse(TM, text, f'at most {limits.max_text_bytes} bytes of text')
    return parse_matrix(text, name, limits)


def parse_matrix(value: Any, name: str, limits: Limits = Limits()
                 ) -> tuple[coflow_model.Coflow, ...]:
    """Read the value of ``virtco:tm``, as JSON text of any length or decoded:
    one matrix, or a list of named ones.

    :raises virtco.exception.HintInvalid: see :func:`parse`.
    """
    if isinstance(value, str):
        value = _decoded(value)
    if not (isinstance(value, list) and value and isinstance(value[0], dict)):
        reader = _Reader(limits)
        return (reader.coflow(name, reader.matrix(TM, value)),)
    return _Reader(limits).named_matrices(value)


def _decoded(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant,
                          object_pairs_hook=_no_duplicates)
    except RecursionError:
        refuse(TM, text, 'JSON that is less deeply nested')
    except ValueError as error:
        refuse(TM, text, f'JSON text ({_why(error)})')


def self_flows(coflows: Sequence[coflow_model.Coflow]) -> str:
    """Tell which VMs send how many bytes to themselves; empty: none."""
    total: dict[int, float] = collections.defaultdict(float)
    for coflow in coflows:
        for vm, size in coflow.self_bytes:
            total[vm] += size
    told = [f'VM {vm} {units.format_size(size)}'
            for vm, size in sorted(total.items())]
    if not told:
        return ''
    more = len(told) - _MOST_TOLD
    return ('bytes of a VM to itself are ignored: '
            + ', '.join(told[:_MOST_TOLD])
            + (f' and {more} more VMs' if more > 0 else ''))


@dataclasses.dataclass(frozen=True, slots=True)
class _Matrix:
    field: str
    n_vms: int
    flows: list[tuple[int, int, float]]

    def ranked(self, order: Sequence[int] | None) -> '_Matrix':
        """Turn a matrix of ranks into one of rows.

        :param order: the row of each rank; None = rank and row are the same.
        """
        if order is None:
            return self
        return dataclasses.replace(self, flows=[
            (order[src], order[dst], size) for src, dst, size in self.flows])


class _Reader:
    """Reads decoded JSON and counts the used part of the group's limits."""

    def __init__(self, limits: Limits):
        self._limits = limits
        self._flows = 0
        self._bytes = 0.0

    def named_matrices(self, entries: list[Any]
                       ) -> tuple[coflow_model.Coflow, ...]:
        limit = self._limits.max_coflows
        if len(entries) > limit:
            refuse(TM, len(entries), f'at most {limit} matrices')
        coflows: dict[str, coflow_model.Coflow] = {}
        n_vms = None
        for i, entry in enumerate(entries):
            field = f'{TM}[{i}]'
            _keys(field, entry, {'name', 'tm'},
                  {'dst_port', *RECURRENCE, 'order', 'rank_hint'})
            name = as_name(f'{field}.name', entry['name'], self._limits)
            if name in coflows:
                refuse(f'{field}.name', name, 'a name used once in the list')
            found = self.matrix(f'{field}.tm', entry['tm'])
            if n_vms is not None and found.n_vms != n_vms:
                refuse(f'{field}.tm', found.n_vms,
                       f'{n_vms} rows, as in the first matrix')
            n_vms = found.n_vms
            port = entry.get('dst_port')
            if 'dst_port' in entry:
                port = _count(f'{field}.dst_port', port, 65535)
            wanted, order = _rank_hint(f'{field}.rank_hint',
                                       entry.get('rank_hint', False), n_vms)
            coflows[name] = dataclasses.replace(
                self.coflow(name, found.ranked(order), port),
                **_recurrence(field, entry), rank_hint=wanted)
            if 'order' in entry:
                coflows[name] = _ordered(f'{field}.order', entry['order'],
                                         coflows[name])
        return tuple(coflows.values())

    def coflow(self, name: str, found: _Matrix,
               dst_port: int | None = None) -> coflow_model.Coflow:
        coflow = coflow_model.Coflow.from_flows(
            name, found.n_vms, found.flows, dst_port)
        # Entries of one pair have been added up.
        for src, dst, size_bytes in coflow.matrix.rows():
            self._size(f'{found.field}[{src}][{dst}]', size_bytes)
        return coflow

    def matrix(self, field: str, value: Any) -> _Matrix:
        if isinstance(value, list):
            return self._dense(field, value)
        if isinstance(value, dict):
            if 'pattern' in value:
                return self._pattern(field, value)
            return self._sparse(field, value)
        refuse(field, value, 'a matrix, {"n": ..., "flows": [...]}, '
                             '{"pattern": ...} or a list of named matrices')

    def _dense(self, field: str, rows: list[Any]) -> _Matrix:
        """Read a matrix given as a list of rows."""
        n_vms = _count(f'{field} rows', len(rows), self._limits.max_vms)
        flows = []
        for src, row in enumerate(rows):
            if not isinstance(row, list) or len(row) != n_vms:
                refuse(f'{field}[{src}]', row, f'a list of {n_vms} sizes')
            for dst, size in enumerate(row):
                size_bytes = self._size(f'{field}[{src}][{dst}]', size)
                if size_bytes > 0:
                    self._take(field, 1, size_bytes)
                    flows.append((src, dst, size_bytes))
        return _Matrix(field, n_vms, flows)

    def _sparse(self, field: str, value: dict[str, Any]) -> _Matrix:
        """Read a matrix given as a list of flows."""
        _keys(field, value, {'n', 'flows'}, set())
        n_vms = _count(f'{field}.n', value['n'], self._limits.max_vms)
        if not isinstance(value['flows'], list):
            refuse(f'{field}.flows', value['flows'], 'a list of flows')
        flows = []
        for i, row in enumerate(value['flows']):
            where = f'{field}.flows[{i}]'
            if not isinstance(row, list) or len(row) != 3:
                refuse(where, row, '[sender row, receiver row, size]')
            src = _count(f'{where}[0]', row[0], n_vms - 1, least=0)
            dst = _count(f'{where}[1]', row[1], n_vms - 1, least=0)
            size_bytes = self._size(f'{where}[2]', row[2])
            self._take(field, 1, size_bytes)
            flows.append((src, dst, size_bytes))
        return _Matrix(field, n_vms, flows)

    def _pattern(self, field: str, value: dict[str, Any]) -> _Matrix:
        kind = value['pattern']
        shape = hint_patterns.SHAPES.get(kind) if isinstance(
            kind, str) else None
        if shape is None:
            refuse(f'{field}.pattern', kind,
                   'one of ' + ', '.join(hint_patterns.SHAPES))
        _keys(field, value, {'pattern'}, shape.keys)
        try:
            n_senders, n_receivers, n_vms = shape.count({
                key: _count(f'{field}.{key}', value[key],
                            self._limits.max_vms)
                for key in ('n', 'senders', 'receivers') if key in value})
        except ValueError as error:
            refuse(field, value, str(error))
        if n_vms > self._limits.max_vms:
            refuse(field, n_vms, f'at most {self._limits.max_vms} VMs')
        sized = [key for key in ('size', 'flow_size') if key in value]
        if len(sized) != 1:
            refuse(field, value, 'either size or flow_size')
        size_bytes = _size(f'{field}.{sized[0]}', value[sized[0]],
                           self._limits.max_bytes)
        skew = self._skew(f'{field}.skew', value.get('skew', 0))
        n_flows = shape.n_flows(n_senders, n_receivers)
        self._take(field, n_flows, 0.0)
        flows = shape.flows(n_senders, n_receivers, size_bytes,
                            sized[0] == 'size', skew)
        for _src, _dst, flow_bytes in flows:
            self._take(field, 0, flow_bytes)
        return _Matrix(field, n_vms, flows)

    def _size(self, field: str, value: Any) -> float:
        return _size(field, value, self._limits.max_bytes_per_flow)

    def _skew(self, field: str, value: Any) -> float:
        most = hint_patterns.MAX_SKEW
        if isinstance(value, bool) or not isinstance(value, (int, float)) or (
                not 0 <= value <= most):
            refuse(field, value, f'a number between 0 and {most}')
        return float(value)

    def _take(self, field: str, n_flows: int, size_bytes: float) -> None:
        """Count flows and bytes towards the limits of the group."""
        self._flows += n_flows
        self._bytes += size_bytes
        if self._flows > self._limits.max_flows:
            refuse(f'{field} flows', self._flows,
                   f'at most {self._limits.max_flows} flows in the group')
        if self._bytes > self._limits.max_bytes:
            refuse(f'{field} bytes', units.format_size(self._bytes),
                   f'at most {units.format_size(self._limits.max_bytes)} '
                   f'in the group')


def _size(field: str, value: Any, most: float) -> float:
    return _amount(field, value, units.parse_size_bytes, 0, most,
                   f'a size between 0 and {units.format_size(most)}')


def _amount(field: str, value: Any, parse: Callable[[str], float],
            least: float, most: float, limit: str) -> float:
    """Read a number, or text with a unit."""
    amount: Any = value
    if isinstance(value, str):
        try:  # bounded: a long run of spaces costs quadratic time
            amount = parse(value if len(value) <= _SIZE_CHARS else '?')
        except units.NotAnAmount as error:
            refuse(field, value, error.limit)
    if isinstance(amount, bool) or not isinstance(amount, (int, float)) or (
            not least <= amount <= most):
        refuse(field, value, limit)
    return float(amount)


def refuse(field: str, value: Any, limit: str) -> NoReturn:
    """Raise HintInvalid with the value shortened for a log line."""
    raise exception.HintInvalid(field=field, value=shorten(value),
                                limit=limit)


def shorten(value: Any) -> str:
    """Shorten a value for a log line; never fails."""
    if value is None:
        return 'nothing'
    try:
        return _SHORT.repr(value)
    except Exception:  # e.g. an int too long for its own repr
        return f'a {type(value).__name__}'


def as_text(field: str, value: Any) -> str:
    """Return a text or a whole number of a hint as text.

    :raises virtco.exception.HintInvalid:
    """
    if isinstance(value, int) and not isinstance(value, bool) and (
            value.bit_length() <= 64):
        return str(value)
    if not isinstance(value, str):
        refuse(field, value, 'a text')
    return value


def as_name(field: str, value: Any, limits: Limits) -> str:
    """Return a name of a hint.

    :raises virtco.exception.HintInvalid: when it is empty, too long or not
        printable.
    """
    if value is None:
        refuse(field, None, 'a name beside the other virtco: keys')
    text = as_text(field, value)
    if not (0 < len(text) <= limits.max_name_chars) or (
            not text.isprintable() or text != text.strip()):
        refuse(field, text, f'1 to {limits.max_name_chars} printable '
                            f'characters without outer spaces')
    return text


def _count(field: str, value: Any, most: int, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or (
            not least <= value <= most):
        refuse(field, value, f'a whole number between {least} and {most}')
    return value


def _recurrence(field: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Read iterations, and the times of one, as fields of the coflow."""
    iterations = _count(f'{field}.iterations', entry.get('iterations', 1),
                        MAX_ITERATIONS, least=0)
    times: dict[str, float | None] = {
        key: _time(f'{field}.{key}', entry[key], least_s)
        if key in entry else None
        for key, least_s in (('period', MIN_PERIOD_S), ('compute', 0.0))}
    for key, time_s in times.items():
        if time_s is not None and iterations == 1:
            refuse(f'{field}.{key}', entry[key],
                   'nothing where iterations is 1')
    period_s, compute_s = times['period'], times['compute']
    if period_s is not None and compute_s is not None and (
            compute_s > period_s):
        refuse(f'{field}.compute', entry['compute'],
               f'at most the period ({units.format_time(period_s)})')
    return {'iterations': iterations, 'period_s': period_s,
            'compute_s': compute_s}


def _ordered(field: str, value: Any, coflow: coflow_model.Coflow
             ) -> coflow_model.Coflow:
    """Set the order of a coflow, if it can have it."""
    if value not in coflow_model.ORDERS:
        refuse(field, value, f'one of {", ".join(coflow_model.ORDERS)}')
    if value == coflow_model.INTENSITY and not coflow.computes:
        refuse(field, value, 'mrtf where there is no compute above 0')
    return dataclasses.replace(coflow, order=value)


def _time(field: str, value: Any, least_s: float) -> float:
    return _amount(field, value, units.parse_time_s, least_s, MAX_PERIOD_S,
                   f'a time between {units.format_time(least_s)} and '
                   f'{units.format_time(MAX_PERIOD_S)}')


def _rank_hint(field: str, value: Any, n_vms: int
               ) -> tuple[bool, list[int] | None]:
    """Read whether an order of ranks is wanted, and an order to follow."""
    if isinstance(value, bool):
        return value, None
    if not isinstance(value, list) or len(value) != n_vms:
        refuse(field, value, f'true, false or the {n_vms} rows by rank')
    for rank, row in enumerate(value):
        _count(f'{field}[{rank}]', row, n_vms - 1, least=0)
    if len(set(value)) != n_vms:
        refuse(field, value, 'each row once')
    return True, value


def _keys(field: str, value: Any, required: set[str], optional: set[str]
          ) -> None:
    """Refuse an object with missing or unknown keys."""
    if not isinstance(value, dict):
        refuse(field, value, 'an object with ' + ', '.join(sorted(required)))
    for key in sorted(required - set(value)):
        refuse(f'{field}.{key}', None, 'a value')
    for key in sorted(set(value) - required - optional):
        refuse(field, key, 'one of the keys '
                           + ', '.join(sorted(required | optional)))


def _no_constant(literal: str) -> NoReturn:
    raise ValueError(f'{literal} is not JSON')


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError('a key stands twice in one object')
    return value


def _why(error: ValueError) -> str:
    text = str(error)
    return text if len(text) <= 80 else text[:77] + '...'
