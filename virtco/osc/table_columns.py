# SPDX-License-Identifier: Apache-2.0

"""Titles and units for people in tables; plain numbers in all else."""

from collections.abc import Callable
import datetime
import re
from typing import Any

from cliff import columns

from virtco import units


class _Told(columns.FormattableColumn):
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


class Names(columns.FormattableColumn):
    """A list, shown with commas; None is a row without a host."""

    def human_readable(self) -> str:
        return ', '.join('-' if name is None else str(name)
                         for name in self._value or ())


class Lines(columns.FormattableColumn):
    """A list of dicts, one line each."""

    def human_readable(self) -> str:
        return '\n'.join(
            ', '.join(f'{key} {cell(key, value).human_readable()}'
                      for key, value in entry.items()
                      if value not in (None, ''))
            for entry in self._value or ())


class Fields(columns.FormattableColumn):
    """A dict, in one line."""

    def human_readable(self) -> str:
        return ' '.join(str(value) for value in (self._value or {}).values()
                        if value is not None)


class Plain(columns.FormattableColumn):
    """Anything else; what is not known leaves an empty cell."""

    def human_readable(self) -> Any:
        return '' if self._value is None else self._value


#: Kinds of fields by the unit that ends their names.
UNITS: dict[str, Any] = {'bytes': Size, 'bps': Rate, 's': Seconds}
#: Kinds of fields whose names do not end in a unit.
KINDS: dict[str, Any] = {
    'max_bytes_per_hour': Size, 'packet_bytes': Plain,
    **dict.fromkeys((
        'error', 'mean_error', 'median_error', 'worst_error', 'failed',
        'max_link_share', 'gap', 'confidence', 'loss'), Percent),
    **dict.fromkeys((
        'hour', 'first_hour', 'last_hour', 'arrival', 'ended', 'at',
        'drain_since', 'expires', 'deadline', 'first_byte', 'last_byte',
        'predicted_end', 'last_report'), Time),
    **dict.fromkeys((
        'under_way', 'addresses', 'hosts', 'waits_for', 'coflows', 'vms'),
        Names),
    **dict.fromkeys(('bottleneck', 'planned_bottleneck'), Fields),
    **dict.fromkeys(('hours', 'members', 'events'), Lines),
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
    """Heading of a field: ``size_bytes`` is "Size"."""
    return TITLES.get(name) or _UNIT.sub('', name).replace('_', ' ').title()


def cell(name: str, value: Any) -> Any:
    return KINDS.get(name, UNITS.get(name.rpartition('_')[2], Plain))(value)


def row(names: list[str], entry: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(cell(name, entry.get(name)) for name in names)


def bounds(plan: dict[str, Any]) -> str:
    """Planned CCT, its lower bound and the gap between them, in words."""
    cct, least, gap = (cell(name, plan[name]).human_readable()
                       for name in ('cct_s', 'lower_bound_s', 'gap'))
    return (f'CCT {cct}, at least {least} for {plan["bound_scope"]}, '
            f'gap {gap or "unknown"}')
