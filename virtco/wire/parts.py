# SPDX-License-Identifier: Apache-2.0

"""Parts of a report that is too long for one frame. Pure.

The rows of its tables are sent in parts, and then the report without them.
The edge module shares this module.
"""

import collections
from collections.abc import Iterator
from collections.abc import Sequence
import itertools
from typing import Annotated
from typing import Any

import msgspec

from virtco.wire import reports

#: Length of a part without its rows, at most.
_EMPTY_BYTES = 100
#: Destinations of a coflow in one row; names of 255 characters fit.
_MOST_DESTINATIONS = 500
_ENCODER = msgspec.json.Encoder()


class Part(msgspec.Struct, frozen=True, omit_defaults=True, tag='part'):
    """Rows of the whole report to come.

    A coflow of many destinations has several rows with the same counters,
    each with other destinations.
    """

    coflows: Annotated[tuple[reports.CoflowCounters, ...], msgspec.Meta(
        max_length=reports.MOST_COFLOWS)] = ()
    pairs: Annotated[tuple[reports.PairCounter, ...], msgspec.Meta(
        max_length=reports.MOST_PAIRS)] = ()
    peers: Annotated[tuple[reports.PeerCounter, ...], msgspec.Meta(
        max_length=reports.MOST_PAIRS)] = ()
    ports: Annotated[tuple[reports.Port, ...], msgspec.Meta(
        max_length=reports.MOST_PORTS)] = ()


_TABLES = Part.__struct_fields__


def cut(report: reports.Report, most_bytes: int
        ) -> tuple[list[Part], reports.Report]:
    """Cut a report; return the parts with its rows, and the report without.

    :param most_bytes: length of an encoded part; a row may be longer.
    """
    found: list[Part] = []
    rows: dict[str, list[Any]] = collections.defaultdict(list)
    size_bytes = _EMPTY_BYTES
    for name, row in _rows(report):
        row_bytes = len(_ENCODER.encode(row)) + 1
        if rows and size_bytes + row_bytes > most_bytes:
            found.append(_part(rows))
            rows.clear()
            size_bytes = _EMPTY_BYTES
        rows[name].append(row)
        size_bytes += row_bytes
    if rows:
        found.append(_part(rows))
    return found, msgspec.structs.replace(report, **dict.fromkeys(_TABLES, ()))


def _rows(report: reports.Report) -> Iterator[tuple[str, Any]]:
    """Yield the rows of all tables, each with the table's name."""
    for name in _TABLES:
        for row in getattr(report, name):
            if len(getattr(row, 'destinations', ())) <= _MOST_DESTINATIONS:
                yield name, row
                continue
            for some in _batches(row.destinations, _MOST_DESTINATIONS):
                yield name, msgspec.structs.replace(row, destinations=some)


def _batches(rows: tuple[Any, ...], size: int) -> Iterator[tuple[Any, ...]]:
    for start in range(0, len(rows), size):
        yield rows[start:start + size]


def _part(rows: dict[str, list[Any]]) -> Part:
    return Part(**{name: tuple(some) for name, some in rows.items()})


def joined(parts: Sequence[Part], rest: reports.Report) -> reports.Report:
    """Put a report together from its parts.

    :param rest: the report without the rows of the parts.
    :raises virtco.exception.Invalid: for more rows than a report may have.
    """
    found = {name: tuple(itertools.chain.from_iterable(
        getattr(one, name) for one in (*parts, rest))) for name in _TABLES}
    found['coflows'] = _merged(found['coflows'])
    report = msgspec.structs.replace(rest, **found)
    reports.check(report)
    return report


def _merged(rows: Sequence[reports.CoflowCounters]
            ) -> tuple[reports.CoflowCounters, ...]:
    """Merge the rows of each coflow."""
    last = {row.coflow_id: row for row in rows}
    if len(last) == len(rows):
        return tuple(rows)
    destinations: dict[str, list[reports.DestinationCounter]] = (
        collections.defaultdict(list))
    for row in rows:
        destinations[row.coflow_id] += row.destinations
    return tuple(msgspec.structs.replace(
        row, destinations=tuple(destinations[coflow_id]))
        for coflow_id, row in last.items())
