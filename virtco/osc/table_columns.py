# SPDX-License-Identifier: Apache-2.0

"""Titles and units for people in tables; plain numbers in all else."""

from collections.abc import Callable
from collections.abc import Iterable
import datetime
import re
from typing import Any

from cliff import columns
import msgspec

from virtco import units
from virtco.wire import fields as fields_wire
from virtco.wire import placement as placement_wire
from virtco.wire import plan as plan_wire

#: Control characters, but for the end of a line: terminals obey some.
_CONTROLS = dict.fromkeys([*range(10), *range(11, 32), *range(127, 160)],
                          '\N{REPLACEMENT CHARACTER}')


def harmless(text: str) -> str:
    """Replace the characters of a text that a terminal would obey.

    Tenants choose names, and edge modules the texts of errors.
    """
    return text.translate(_CONTROLS)


class Cell(columns.FormattableColumn):
    """A value of an answer; programs get it as the interface has it.

    :param tell: words for a value; None leaves an empty cell.
    """

    def __init__(self, value: Any, tell: Callable[[Any], Any]):
        super().__init__(value)
        self._tell = tell

    def __lt__(self, other: Any) -> bool:
        """Compare values of a column; unknown ones come last."""
        if None in (self._value, other._value):
            return self._value is not None
        return super().__lt__(other)

    def human_readable(self) -> Any:
        """Return the value in words for a table; an empty text for None."""
        told = '' if self._value is None else self._tell(self._value)
        return harmless(told) if isinstance(told, str) else told

    def machine_readable(self) -> Any:
        """Return the value as built-in types, for JSON and other formats."""
        return msgspec.to_builtins(self._value)


def _percent(value: float) -> str:
    return f'{100 * value:.1f} %'


def _error(value: float | str) -> str:
    """Write an estimate's share in percent; leave the text of a failure."""
    return value if isinstance(value, str) else _percent(value)


def _time(value: float) -> str:
    """Format seconds since the epoch as local time."""
    try:
        found = datetime.datetime.fromtimestamp(value)
    except (OSError, OverflowError, ValueError):
        # Sizes and limits of tenants may put an end into any year.
        return f'{value:.4g} s'
    return found.isoformat(' ', 'seconds')


def _names(value: Iterable[Any]) -> str:
    """Put commas between entries; None is a row without a host."""
    return ', '.join('-' if name is None else str(name) for name in value)


def _pairs(value: Iterable[fields_wire.Pair]) -> str:
    """Write ordered pairs of hosts."""
    return ', '.join(f'{pair.src} -> {pair.dst}' for pair in value)


def _lines(value: Iterable[msgspec.Struct]) -> str:
    """Write each object on a line."""
    return '\n'.join(
        ', '.join(f'{key} {cell(key, value).human_readable()}'
                  for key, value in msgspec.structs.asdict(entry).items()
                  if value not in (None, '', msgspec.UNSET))
        for entry in value)


def _fields(value: msgspec.Struct) -> str:
    """Write an object in one line."""
    return ' '.join(str(cell(key, part).human_readable())
                    for key, part in msgspec.structs.asdict(value).items()
                    if part is not None)


#: Words for fields by the unit that ends their names.
UNITS: dict[str, Callable[[Any], Any]] = {
    'bytes': units.format_size, 'bps': units.format_rate,
    's': units.format_time}
#: Words for fields whose names do not end in a unit.
KINDS: dict[str, Callable[[Any], Any]] = {
    'max_bytes_per_hour': units.format_size,
    'error': _error,
    **dict.fromkeys((
        'mean_error', 'median_error', 'worst_error', 'failed',
        'max_link_share', 'gap', 'confidence', 'loss'), _percent),
    **dict.fromkeys((
        'hour', 'first_hour', 'last_hour', 'created', 'arrival', 'ended', 'at',
        'asked', 'found', 'since', 'drain_since', 'expires', 'expires_at',
        'deadline', 'first_byte', 'last_byte', 'predicted_end',
        'last_report'), _time),
    **dict.fromkeys((
        'addresses', 'hosts', 'waits_for', 'coflows', 'vms', 'destinations',
        'reasons'), _names),
    'under_way': _pairs,
    **dict.fromkeys(('bottleneck', 'planned_bottleneck'), _fields),
    **dict.fromkeys(('launches', 'planes', 'evidence'),
                    lambda value: str(len(value))),
    **dict.fromkeys(('hours', 'members', 'events', 'findings',
                     'classes'), _lines),
}


#: Titles of fields in tables, where the name without its unit is no title.
TITLES = {
    'next_bytes': 'Next Hour', 'n_hours': 'Hours', 'app': 'Application',
    'n_launches': 'Launches', 'hosts_n': 'Hosts', 'slots': 'VMs',
    'n_vms': 'VMs', 'n_flows': 'Flows', 'n_coflows': 'Coflows', 'rank': '#',
    'n_elsewhere': 'Elsewhere', 'n_before': 'Before', 'cct_s': 'CCT',
    'measured_cct_s': 'Measured', 'measured_cct_error_s': 'Measured Within',
    'remaining_bytes': 'Left', 'rate_source': 'Source', 'id': 'ID',
    'group_name': 'Group', 'rtt_s': 'RTT', 'rtt_median_s': 'RTT Median',
    'rtt_p99_s': 'RTT p99', 'src': 'From', 'dst': 'To',
    'lower_bound_s': 'At Least', 'lower_bound': 'At Least',
    'instance_uuid': 'Instance', 'project_id': 'Project',
    'group': 'Group ID', 'dst_port': 'Port', 'coflows': 'Coflow IDs',
    'coflows_bps': 'Coflow Rate', 'beside_bps': 'Rate Beside',
}
_UNIT = re.compile('_(bps|bytes|s)$')


def title(name: str) -> str:
    """Return the heading of a field: ``size_bytes`` is "Size"."""
    return TITLES.get(name) or _UNIT.sub('', name).replace('_', ' ').title()


def cell(name: str, value: Any) -> Cell:
    """Make the cell of a field, with the words for its name or its unit."""
    return Cell(value, KINDS.get(name) or UNITS.get(
        name.rpartition('_')[2], lambda value: value))


def fields(row: msgspec.Struct | type[msgspec.Struct]) -> list[str]:
    """List the fields of a row that are set, or of a type those that are
    always set.
    """
    return [field.name for field in msgspec.structs.fields(row)
            if (field.default if isinstance(row, type)
                else getattr(row, field.name)) is not msgspec.UNSET]


def cells(names: list[str], row: msgspec.Struct) -> tuple[Any, ...]:
    """Make the cells of a row; a missing field is empty."""
    return tuple(cell(name, getattr(row, name, _count(name, row)))
                 for name in names)


def _count(name: str, row: msgspec.Struct) -> int | None:
    """Count the entries of the field ``x`` for a column ``n_x``."""
    found = getattr(row, name.removeprefix('n_'), None)
    return len(found) if isinstance(found, list) else None


def bounds(plan: plan_wire.Plan | placement_wire.Kept) -> str:
    """Tell the planned CCT, its lower bound and the gap between them."""
    cct, least, gap = (cell(name, getattr(plan, name)).human_readable()
                       for name in ('cct_s', 'lower_bound_s', 'gap'))
    return (f'CCT {cct}, at least {least} for {plan.bound_scope}, '
            f'gap {gap or "unknown"}')
