# SPDX-License-Identifier: Apache-2.0

"""The tables of ``virtco top``, made from the API's answers. Pure."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

import msgspec
from rich import console
from rich import table
from rich import text

from virtco import units
from virtco.osc import table_columns as columns
from virtco.wire import coflow_bodies as wire
from virtco.wire import host as host_wire

#: States that are shown unless another one is asked for.
SHOWN = ('planned', 'active', 'done')
SORTS: dict[str, Callable[[wire.Coflow], Any]] = {
    'order': lambda c: (c.rank is None, c.rank),
    'left': lambda c: -c.remaining_bytes,
    'rate': lambda c: -c.rate_bps,
    'end': lambda c: (c.predicted_end is None, c.predicted_end),
    'name': lambda c: c.name,
}
_BAR_CELLS = 5
_STALE_S = 10.0
_WIDTHS = {'Coflow': 14, 'Host': 12, 'Waits For': 10, 'Health': 10}


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """Answers of the controller at one moment.

    :ivar hosts: hosts, with their ``classes`` where these were asked for;
        None: the caller may not know of hosts.
    :ivar now_s: time by the same clock as the controller's times.
    """

    coflows: Sequence[wire.Coflow]
    hosts: Sequence[host_wire.Host] | None
    now_s: float
    url: str


def screen(seen: Seen, *, sort: str = 'order', words: str = '',
           state: str | None = None, n_rows: int = 20) -> console.Group:
    """Make both tables.

    :param words: only coflows and hosts that have it in a name.
    :param n_rows: most rows of each table.
    """
    coflows = sorted(
        (c for c in seen.coflows
         if (c.state == state if state else c.state in SHOWN)
         and _has(words, c.name, c.group_name, c.project_id,
                  *c.hosts)),
        key=lambda c: (SORTS[sort](c), c.name))
    parts: list[console.RenderableType] = [
        f'{len(coflows)} coflows at {seen.url}, by {sort}',
        _coflows(coflows[:n_rows], seen.now_s), '']
    if seen.hosts is None:
        hosts = []
        parts.append('Hosts are shown to operators only.')
    else:
        hosts = [h for h in seen.hosts if _has(words, h.host,
                                               *_names(h, seen.coflows))]
        parts += [f'{len(hosts)} hosts',
                  _hosts(hosts[:n_rows], arrivals(seen.hosts), seen.now_s)]
    if max(len(coflows), len(hosts)) > n_rows:
        parts.append(f'At most {n_rows} rows are shown (--rows).')
    return console.Group(*parts)


def _has(words: str, *names: str | None) -> bool:
    return not words or any(words in name for name in names if name)


def _names(host: host_wire.Host, coflows: Sequence[wire.Coflow]
           ) -> list[str]:
    on = set(host.coflows)
    return [c.name for c in coflows if c.id in on]


def _table(*headers: str) -> table.Table:
    """Make a table that cuts names short, so that numbers fit 80 columns."""
    found = table.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0),
                        header_style='underline')
    for header in headers:
        found.add_column(
            header, no_wrap=True, overflow='ellipsis',
            max_width=_WIDTHS.get(header),
            justify='left' if header in _WIDTHS else 'right')
    return found


def _coflows(coflows: Sequence[wire.Coflow], now_s: float) -> table.Table:
    found = _table('Coflow', '#', 'State', 'Left', 'Rate', 'Ends In',
                   'CCT', 'Waits For')
    for c in coflows:
        end_s = c.predicted_end
        found.add_row(
            text.Text(columns.harmless(c.name)),
            '' if c.rank is None else str(c.rank), c.state,
            short(c.remaining_bytes, 'B'),
            short(c.rate_bps, 'b/s') if c.rate_bps else '',
            '' if end_s is None else _time(max(0.0, end_s - now_s)),
            _cct(c), text.Text(_waits(c)),
            style='bold' if c.state == 'active' else 'dim'
            if c.state == 'done' else '')
    return found


def _cct(coflow: wire.Coflow) -> str:
    """Format the planned CCT, and the measured one once it is known."""
    planned = _time(coflow.cct_s)
    measured = _time(coflow.measured_cct_s)
    return f'{planned}→{measured}' if measured else planned


def _waits(coflow: wire.Coflow) -> str:
    """Name the coflows before it where it waits, or count them."""
    if coflow.waits_for:
        return ', '.join(coflow.waits_for)
    if not coflow.n_before:
        return ''
    port = coflow.bottleneck
    return (f'{coflow.n_before} at {port.host}' if port else
            str(coflow.n_before))


def arrivals(hosts: Sequence[host_wire.Host]) -> dict[str, float]:
    """Estimate bit/s into each host: each class's observed rate, in equal
    parts to its destinations.
    """
    found: dict[str, float] = {}
    for host in hosts:
        for one in host.classes or ():
            n_destinations = len(one.destinations)
            for dst in one.destinations:
                found[dst] = found.get(dst, 0.0) + (
                    one.observed_bps or 0.0) / n_destinations
    return found


def _hosts(hosts: Sequence[host_wire.Host], into: Mapping[str, float],
           now_s: float) -> table.Table:
    found = _table('Host', 'Egress', 'Ingress*', 'Other', 'Measured', 'Lag',
                   'Report', 'Health')
    for host in hosts:
        background_bps = host.background_bps
        out_bps = background_bps + sum(
            one.observed_bps or 0.0 for one in host.classes or ())
        known = host.classes is not msgspec.UNSET
        age_s = (None if host.last_report is None
                 else now_s - host.last_report)
        lag = (None if host.generation is None
               else host.generations_behind)
        found.add_row(
            text.Text(host.host),
            _bar(out_bps if known else None, host.egress_bps),
            _bar(into.get(host.host, 0.0) if known else None,
                 host.ingress_bps),
            short(background_bps, 'b/s'), _measured(host),
            '' if lag is None else text.Text(
                str(lag), style='yellow' if lag > 0 else ''),
            '' if age_s is None else text.Text(
                _time(max(0.0, age_s)),
                style='yellow' if age_s > _STALE_S else ''),
            _health(host))
    found.caption = '* estimated. Measured: of the nominal egress rate.'
    found.caption_justify = 'left'
    return found


def _bar(used_bps: float | None, most_bps: float | None) -> text.Text:
    if used_bps is None or not most_bps:
        return text.Text('?')
    share = used_bps / most_bps
    n_full = min(_BAR_CELLS, round(share * _BAR_CELLS))
    return text.Text(
        '█' * n_full + '░' * (_BAR_CELLS - n_full) + f'{100 * share:3.0f}%',
        style='red' if share > 1.02 else '')


def _measured(host: host_wire.Host) -> str:
    measured, nominal = host.measured_egress_bps, host.link_egress_bps
    if not measured:
        return '-'
    return (short(measured, 'b/s') if not nominal
            else f'{100 * measured / nominal:.0f}%')


def _health(host: host_wire.Host) -> text.Text:
    if host.health is None:
        return text.Text('no report', style='yellow')
    if host.health == 'ok' and not host.error:
        return text.Text('ok', style='green')
    return text.Text(columns.harmless(host.error or host.health),
                     style='red')


def short(value: float, unit: str) -> str:
    """Format three digits, so that a table keeps to 80 columns."""
    return units.format_amount(float(f'{value:.3g}'), unit)


def _time(time_s: float | None) -> str:
    return '' if time_s is None else units.format_time(float(f'{time_s:.2g}'))
