# SPDX-License-Identifier: Apache-2.0

"""CSV with a line per host and a column per level. Pure.

Alibaba's Lingjun dataset of 2023 has this form (``ip,DSW,PSW,ASW``), and so
have inventories. The host is in the column ``host``, ``hostname``, ``ip``,
``node`` or ``server``, else in the first. The others are switches from the
root to the hosts; or the other way, where the first has more names than the
last. A switch whose name stands below several others is one below each.
"""

from collections.abc import Sequence
import csv

from virtco.topology import laws
from virtco.topology import tree
from virtco.topology.formats import document
from virtco.topology.formats import result
from virtco.topology.formats import switch_lists as switches

HOSTS = ('host', 'hostname', 'ip', 'node', 'server')


def begins(line: str) -> bool:
    """Tell whether a line looks like the header of such a file."""
    names = [name.strip() for name in line.split(',')]
    return len(names) > 1 and all(map(laws.NAME.fullmatch, names)) and any(
        name.lower() in HOSTS for name in names)


def load(text: str, plane: str) -> result.Read:
    """Build a plane from a table of hosts and the switches above them.

    :raises virtco.exception.TopologyInvalid: with the line as its path.
    """
    reader = csv.reader(text.splitlines(keepends=True))
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row])
                for row in reader if row]
    except csv.Error as error:
        raise document.Unreadable(reader.line_num, str(error),
                                  'lines of CSV') from None
    if len(rows) < 2:
        raise document.Unreadable(None, f'{len(rows)} lines',
                                  'a header and a line per host')
    (number, header), rows = rows[0], rows[1:]
    _check_header(number, header)
    at = next((k for k, name in enumerate(header) if name.lower() in HOSTS),
              0)
    levels = [k for k in range(len(header)) if k != at]
    for number, row in rows:
        if len(row) != len(header):
            raise laws.Wrong((number,), 'columns', len(row),
                             f'{len(header)}, as in the header')
    if len({row[levels[0]] for _number, row in rows}) <= len(
            {row[levels[-1]] for _number, row in rows}):
        levels.reverse()
    return result.Read(tree.Topology((_plane(
        plane, [header[k] for k in levels],
        [(number, row[at], [row[k] for k in levels])
         for number, row in rows]),)))


def _check_header(number: int, header: Sequence[str]) -> None:
    if not 2 <= len(header) <= laws.MAX_DEPTH + 1:
        raise laws.Wrong((number,), 'columns', len(header),
                         f'a host and 1 to {laws.MAX_DEPTH} levels')
    for name in header:
        laws.name(name, (number,), 'column')
    if len(set(header)) < len(header):
        raise laws.Wrong((number,), 'columns', ','.join(header),
                         'each name once')


def _plane(plane: str, levels: Sequence[str],
           rows: Sequence[tuple[int, str, list[str]]]) -> tree.Plane:
    """Build a plane from the rows of a table.

    :param rows: line, host, and switches, the nearest first.
    """
    parents: dict[tuple[int, str], set[tuple[str, ...]]] = {}
    for _number, _host, above in rows:
        for k, name in enumerate(above):
            parents.setdefault((k, name), set()).add(tuple(above[k + 1:]))
    level_of: dict[str, set[int]] = {}
    for k, name in parents:
        level_of.setdefault(name, set()).add(k)
    chains: list[switches.Chain] = []
    seen: set[str] = set()
    for number, host, above in rows:
        laws.name(host, (number,), 'host')
        if host in seen:
            raise laws.Wrong((number,), 'host', host,
                             'a host that no other line has')
        seen.add(host)
        names = [laws.name(
            name if len(parents[k, name]) == len(level_of[name]) == 1
            else '.'.join([*reversed(above[k + 1:]), name]),
            (number,), levels[k]) for k, name in enumerate(above)]
        chains.append((host, names, (number,)))
    return switches.plane_above(plane, chains, tuple(map(tree.Level, levels)))
