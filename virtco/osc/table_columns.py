# SPDX-License-Identifier: Apache-2.0

"""Titles and units for people in tables; plain numbers in all else."""

from collections.abc import Callable
import datetime
import re
from typing import Any

from cliff import columns
import msgspec

from virtco import units
from virtco.wire import placement as placement_wire
from virtco.wire import plan as plan_wire


class _Cell(columns.FormattableColumn):
    """A value of an answer; programs get it as the interface has it."""

    def machine_readable(self) -> Any:
        return msgspec.to_builtins(self._value)


class _Told(_Cell):
    """A value in the words of ``told``; None leaves an empty cell."""

    told: Callable[[Any], str]

    def human_readable(self) -> str:
        return '' if self._value is None else type(self).told(self._value)


class Size(_Told):
    told = staticmethod(units.format_size)


class Rate(_Told):
    told = staticmethod(units.format_rate)


class Seconds(_Told):
    told = staticmethod(units.format_time)


class Percent(_Told):
    told = staticmethod(lambda value: f'{100 * value:.1f} %')


class Time(_Told):
    """Seconds since the epoch, shown as local time."""

    told = staticmethod(lambda value: datetime.datetime.fromtimestamp(
        value).isoformat(' ', 'seconds'))


class Names(_Cell):
    """A list, shown with commas; None is a row without a host."""

    def human_readable(self) -> str:
        return ', '.join('-' if name is None else str(name)
                         for name in self._value or ())


class Lines(_Cell):
    """A list of objects, one line each."""

    def human_readable(self) -> str:
        return '\n'.join(
            ', '.join(f'{key} {cell(key, value).human_readable()}'
                      for key, value in msgspec.structs.asdict(entry).items()
                      if value not in (None, ''))
            for entry in self._value or ())


class Count(_Cell):
    """A list, shown by the number of its entries."""

    def human_readable(self) -> str:
        return '' if self._value is None else str(len(self._value))


class Fields(_Cell):
    """An object, in one line."""

    def human_readable(self) -> str:
        return '' if self._value is None else ' '.join(
            str(value) for value in msgspec.structs.astuple(self._value)
            if value is not None)


class Plain(_Cell):
    """Anything else; what is not known leaves an empty cell."""

    def human_readable(self) -> Any:
        return '' if self._value is None else self._value


#: Kinds of fields by the unit that ends their names.
UNITS: dict[str, Any] = {'bytes': Size, 'bps': Rate, 's': Seconds}
#: Kinds of fields whose names do not end in a unit.
KINDS: dict[str, Any] = {
    'max_bytes_per_hour': Size,
    **dict.fromkeys((
        'error', 'mean_error', 'median_error', 'worst_error', 'failed',
        'max_link_share', 'gap', 'confidence', 'loss'), Percent),
    **dict.fromkeys((
        'hour', 'first_hour', 'last_hour', 'arrival', 'ended', 'at',
        'drain_since', 'expires', 'deadline', 'first_byte', 'last_byte',
        'predicted_end', 'last_report'), Time),
    **dict.fromkeys((
        'under_way', 'addresses', 'hosts', 'waits_for', 'coflows', 'vms',
        'destinations', 'reasons'), Names),
    **dict.fromkeys(('bottleneck', 'planned_bottleneck'), Fields),
    **dict.fromkeys(('launches', 'planes'), Count),
    **dict.fromkeys(('hours', 'members', 'events', 'findings'), Lines),
}


#: Titles of fields in tables, where the name without its unit is no title.
TITLES = {
    'next_bytes': 'Next Hour', 'n_hours': 'Hours', 'app': 'Application',
    'n_launches': 'Launches', 'last_hour': 'Last Hour',
    'hosts_n': 'Hosts', 'slots': 'VMs',
    'n_vms': 'VMs', 'n_flows': 'Flows', 'n_coflows': 'Coflows', 'rank': '#',
    'n_elsewhere': 'Elsewhere', 'n_before': 'Before', 'cct_s': 'CCT',
    'measured_cct_s': 'Measured', 'measured_cct_error_s': 'Measured Within',
    'remaining_bytes': 'Left', 'sent_bytes': 'Sent', 'id': 'ID',
    'rate_source': 'Source', 'group_name': 'Group', 'rtt_s': 'RTT',
    'rtt_median_s': 'RTT Median', 'rtt_p99_s': 'RTT p99',
    'src': 'From', 'dst': 'To', 'prio': 'Prio', 'lower_bound_s': 'At Least',
    'lower_bound': 'At Least', 'instance_uuid': 'Instance',
    'project_id': 'Project', 'group': 'Group ID', 'dst_port': 'Port',
}
_UNIT = re.compile('_(bps|bytes|s)$')


def title(name: str) -> str:
    """Return the heading of a field: ``size_bytes`` is "Size"."""
    return TITLES.get(name) or _UNIT.sub('', name).replace('_', ' ').title()


def cell(name: str, value: Any) -> Any:
    return KINDS.get(name, UNITS.get(name.rpartition('_')[2], Plain))(value)


def fields(row: msgspec.Struct | type[msgspec.Struct]) -> list[str]:
    """List the fields of a row that are set, or of a type those that are
    always set.
    """
    return [field.name for field in msgspec.structs.fields(row)
            if (field.default if isinstance(row, type)
                else getattr(row, field.name)) is not msgspec.UNSET]


def cells(names: list[str], row: msgspec.Struct) -> tuple[Any, ...]:
    """Make the cells of a row; a missing field is empty."""
    return tuple(cell(name, getattr(row, name, None)) for name in names)


def bounds(plan: plan_wire.Plan | placement_wire.Kept) -> str:
    """Tell the planned CCT, its lower bound and the gap between them."""
    cct, least, gap = (cell(name, getattr(plan, name)).human_readable()
                       for name in ('cct_s', 'lower_bound_s', 'gap'))
    return (f'CCT {cct}, at least {least} for {plan.bound_scope}, '
            f'gap {gap or "unknown"}')
