# SPDX-License-Identifier: Apache-2.0

"""Titles and units for people in tables; plain numbers in all else."""

import datetime
import re
from typing import Any

from cliff import columns

from virtco import units


class Size(columns.FormattableColumn):
    def human_readable(self) -> str:
        return '' if self._value is None else units.format_size(self._value)


class Rate(columns.FormattableColumn):
    def human_readable(self) -> str:
        return '' if self._value is None else units.format_rate(self._value)


class Seconds(columns.FormattableColumn):
    def human_readable(self) -> str:
        return '' if self._value is None else units.format_time(self._value)


class Percent(columns.FormattableColumn):
    def human_readable(self) -> str:
        return '' if self._value is None else f'{100 * self._value:.1f} %'


class Time(columns.FormattableColumn):
    """Seconds since the epoch, shown as local time."""

    def human_readable(self) -> str:
        if self._value is None:
            return ''
        return datetime.datetime.fromtimestamp(self._value).isoformat(
            ' ', 'seconds')


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


KINDS: dict[str, Any] = {
    'next_bytes': Size, 'error': Percent, 'hours': Lines, 'hour': Time,
    'first_hour': Time, 'last_hour': Time,
    'size_bytes': Size, 'sent_bytes': Size, 'remaining_bytes': Size,
    'train_bytes': Size, 'mean_error': Percent, 'median_error': Percent,
    'worst_error': Percent, 'failed': Percent, 'path_bps': Rate,
    'alone_bps': Rate, 'beside_bps': Rate,
    'last_hour_bytes': Size, 'max_bytes_per_hour': Size,
    'max_link_share': Percent, 'under_way': Names, 'freshness_s': Seconds,
    'backlog_bytes': Size, 'debt_bytes': Size,
    'rate_bps': Rate, 'observed_bps': Rate,
    'egress_bps': Rate, 'ingress_bps': Rate, 'background_bps': Rate,
    'link_egress_bps': Rate, 'link_ingress_bps': Rate,
    'measured_egress_bps': Rate, 'measured_ingress_bps': Rate,
    'ceil_bps': Rate, 'cct_s': Seconds, 'lower_bound_s': Seconds,
    'measured_cct_s': Seconds, 'measured_cct_error_s': Seconds,
    'saved_s': Seconds, 'cost_s': Seconds, 'then_cct_s': Seconds,
    'before_s': Seconds, 'after_s': Seconds, 'instead_of_s': Seconds,
    'saved_objective_s': Seconds,
    'objective_s': Seconds, 'age_s': Seconds, 'measured_age_s': Seconds,
    'rtt_s': Seconds, 'rtt_median_s': Seconds, 'rtt_p99_s': Seconds,
    'period_s': Seconds, 'compute_s': Seconds,
    'measured_period_s': Seconds, 'counted_compute_s': Seconds,
    'gap': Percent, 'confidence': Percent,
    'loss': Percent, 'arrival': Time, 'ended': Time, 'at': Time,
    'drain_since': Time,
    'expires': Time, 'deadline': Time, 'addresses': Names,
    'first_byte': Time, 'last_byte': Time, 'predicted_end': Time,
    'last_report': Time, 'hosts': Names,
    'bottleneck': Fields, 'planned_bottleneck': Fields,
    'waits_for': Names, 'coflows': Names, 'vms': Names, 'members': Lines,
    'events': Lines,
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
    return KINDS.get(name, Plain)(value)


def row(names: list[str], entry: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(cell(name, entry.get(name)) for name in names)
