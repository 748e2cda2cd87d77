# SPDX-License-Identifier: Apache-2.0

"""Changes between two reports of an edge module. Pure.

A delta has ``set``, the fields of the report that changed, and ``rows`` of
the lists: ``{"coflows": {"set": [row, …], "gone": [key, …]}, "pairs": …}``.
Rows keep no order. The edge module shares this module.
"""

from collections.abc import Iterable
import typing
from typing import Annotated
from typing import Any
from typing import Generic
from typing import TypeVar

import msgspec

from virtco import exception
from virtco import units
from virtco.wire import fields
from virtco.wire import reports

_Row = TypeVar('_Row')
_Key = TypeVar('_Key')
#: Fields whose changed rows a delta tells.
LISTS = ('coflows', 'pairs')
SLOW = frozenset({'boot_ms', 'cpu_s', 'shared', 'uplink_sent_bytes',
                  'default_sent_bytes', 'unshaped_sent_bytes',
                  'rdma_received_bytes'})
MATTERS = 0.01

_FIELDS = tuple(name for name in reports.Report.__struct_fields__
                if name not in LISTS)
_HINTS = typing.get_type_hints(reports.Report, include_extras=True)
#: The fields of a report, of which any may be absent.
Changed = msgspec.defstruct('Changed', [
    (name, _HINTS[name] | msgspec.UnsetType, msgspec.UNSET)
    for name in _FIELDS], frozen=True, module=__name__)
_NO_CHANGE = Changed()


class Table(msgspec.Struct, Generic[_Row, _Key], frozen=True,
            forbid_unknown_fields=True, omit_defaults=True):
    """Rows of a table that changed, and keys of those that are gone.

    The bound is that of pairs; :func:`patch` checks that of each table.
    """

    set: Annotated[tuple[_Row, ...],
                   msgspec.Meta(max_length=reports.MOST_PAIRS)] = ()
    gone: Annotated[tuple[_Key, ...],
                    msgspec.Meta(max_length=reports.MOST_PAIRS)] = ()


_NOTHING: Table[Any, Any] = Table()


class Rows(msgspec.Struct, frozen=True, forbid_unknown_fields=True,
           omit_defaults=True):
    """Changed rows of the tables of a report."""

    coflows: Table[reports.CoflowCounters, tuple[fields.Id]] = _NOTHING
    pairs: Table[reports.PairCounter, tuple[
        fields.Name | None, str, str, int | None]] = _NOTHING


_NO_ROWS = Rows()


class Delta(msgspec.Struct, frozen=True, omit_defaults=True, tag='delta'):
    """Difference of a report from the one before."""

    set: Changed = _NO_CHANGE  # type: ignore[valid-type]
    rows: Rows = _NO_ROWS

    def __bool__(self) -> bool:
        return self.set != _NO_CHANGE or self.rows != _NO_ROWS


def diff(before: reports.Report, after: reports.Report) -> Delta:
    """Compare two reports; the delta is false when nothing changed but the
    time.

    Unchanged fields keep their defaults, which are not encoded.
    """
    changed = {name: value for name in _FIELDS
               if (value := getattr(after, name)) != getattr(before, name)}
    tables = (_diff_rows(before.coflows, after.coflows),
              _diff_rows(before.pairs, after.pairs))
    rows = _NO_ROWS if tables == (_NOTHING, _NOTHING) else Rows(*tables)
    if changed.keys() == {'boot_ms'} and rows is _NO_ROWS:
        changed = {}
    return Delta(Changed(**changed) if changed else _NO_CHANGE, rows)


def _diff_rows(before: tuple[Any, ...], after: tuple[Any, ...]
               ) -> Table[Any, Any]:
    """Find rows to set, and keys of rows that are gone."""
    if before is after:
        return _NOTHING
    old, new = _by_key(before), _by_key(after)
    found = Table(
        tuple(row for key, row in new.items() if old.get(key) != row),
        tuple(old.keys() - new.keys()))
    return _NOTHING if found == _NOTHING else found


def _by_key(rows: Iterable[Any]) -> dict[tuple[Any, ...], Any]:
    return {row.key: row for row in rows}


def patch(before: reports.Report, delta: Delta) -> reports.Report:
    """Apply a delta to a report, which stays as it is.

    :raises virtco.exception.Invalid: for a row that is not there, and for more
        rows than a report may have: many deltas may add no more than one.
    """
    after = {name: value for name in _FIELDS
             if (value := getattr(delta.set, name)) is not msgspec.UNSET}
    for name in LISTS:
        found = getattr(delta.rows, name)
        if not (found.set or found.gone):
            continue
        rows = _by_key(getattr(before, name))
        for key in found.gone:
            if rows.pop(key, None) is None:
                raise exception.Invalid(field=f'rows.{name}.gone', value=key,
                                        limit='a row of the previous report')
        rows.update(_by_key(found.set))
        after[name] = tuple(rows.values())
    report = msgspec.structs.replace(before, **after)
    reports.check(report)
    return report


def is_urgent(before: reports.Report, delta: Delta,
              elapsed_s: float) -> bool:
    """Tell whether a delta is sent before the next heartbeat."""
    if delta.rows != _NO_ROWS:
        return True
    changed = {name for name in _FIELDS
               if getattr(delta.set, name) is not msgspec.UNSET}
    if changed - SLOW:
        return True
    if 'uplink_sent_bytes' not in changed:
        return False
    after: Any = delta.set
    sent_bytes: float = after.uplink_sent_bytes - before.uplink_sent_bytes
    matters_bytes = MATTERS * elapsed_s * units.bps_to_bytes_per_s(
        before.link.egress_bps or 0)
    return abs(sent_bytes) > matters_bytes
