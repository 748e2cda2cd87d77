# SPDX-License-Identifier: Apache-2.0

"""Findings of ``virtco doctor`` in the API's answers. Pure.

The chain from a hint to a class has these links: the controller, Nova's
question, the notification, the hypervisor, its rate, the policy, the class.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

import msgspec

from virtco import units
from virtco.wire import coflow_bodies as coflow_wire
from virtco.wire import health as health_wire
from virtco.wire import host as host_wire

OK, WARNING, ERROR = 'ok', 'warning', 'error'
_SILENT_S = 30.0
_LAG = 5
_UNPLUGGED_S = 600.0
_RECENT_S = 86_400.0
#: Below this share of the nominal rate a link is suspicious.
_SLOW = 0.7
#: Above this ratio of measured and planned CCT, a coflow is.
_LATE = 1.5


class Finding(msgspec.Struct, frozen=True):
    """Verdict on one link of the chain, with advice where it is broken."""

    link: str
    state: str
    finding: str
    action: str = ''


@dataclasses.dataclass(frozen=True, slots=True)
class Answers:
    """Answers of the controller at one moment.

    :ivar health: of the controller, with ``parts``.
    :ivar hosts: None where the caller may not know of hosts.
    :ivar now_s: of the same clock as the controller's times.
    """

    health: health_wire.Health
    coflows: Sequence[coflow_wire.Coflow]
    events: Sequence[coflow_wire.Event]
    hosts: Sequence[host_wire.Host] | None
    now_s: float


def examine(answers: Answers) -> list[Finding]:
    """Findings of all links in their order; one that is fine has one too."""
    found: list[Finding] = []
    for link, look in _LINKS.items():
        findings = [Finding(link, *rest) for rest in look(answers)]
        found += findings or [Finding(link, OK, _FINE[link])]
    return found


def examine_coflow(coflow: coflow_wire.Coflow,
                   classes: Mapping[str, Sequence[host_wire.Class]]
                   ) -> list[Finding]:
    """Findings about one coflow.

    :param classes: host -> its classes, for hosts of its members.
    """
    return [Finding(f'coflow {coflow.name}', *rest)
            for rest in _coflow(coflow, classes)]


_Rest = tuple[str, str, str]


def _controller(answers: Answers) -> Iterator[_Rest]:
    if answers.health.status == 'starting':
        yield (WARNING, f'starting: {answers.health.what}',
               'Wait; its log names each step.')
    if answers.health.mode == 'shadow':
        yield (WARNING, 'is in shadow mode: it decides, and changes nothing',
               'Remove [placement] mode to let it act.')
    for part, works in (answers.health.parts or {}).items():
        if not works:
            yield (ERROR, f'its {part} does not work',
                   "The controller's log has the reason.")


def _nova(answers: Answers) -> Iterator[_Rest]:
    if not answers.coflows and not answers.events:
        yield (WARNING, 'has asked for no group yet',
               'Enable CoflowFilter and CoflowWeigher in nova.conf, and '
               'check [virtco] controller_url; nova-scheduler logs why it '
               'goes without virtco.')
    recent = [event for event in answers.events
              if answers.now_s - event.at < _RECENT_S]
    ignored = [e for e in recent if e.kind == 'hint_ignored']
    if ignored:
        newest = max(ignored, key=lambda event: event.at)
        yield (WARNING, f'{len(ignored)} hints ignored in a day, at last: '
               f'{newest.detail}',
               'Tell the tenant of virtco hint check.')
    elsewhere = [e for e in recent if e.kind == 'other_host']
    if elsewhere:
        yield (WARNING, f'built {len(elsewhere)} VMs on other hosts than '
               'planned in a day',
               'Look for failing builds, for weighers with larger '
               'multipliers, and for host_subset_size above 1.')


def _notifications(answers: Answers) -> Iterator[_Rest]:
    waiting = [c.name for c in answers.coflows
               if c.state == 'planned' and c.arrival is not None
               and answers.now_s - c.arrival > _UNPLUGGED_S]
    if waiting:
        yield (WARNING, f'{_few(waiting)} planned for '
               f'{units.format_time(_UNPLUGGED_S)} and not running',
               'If the VMs are active, notifications do not arrive: check '
               "Nova's [oslo_messaging_notifications] driver and the "
               "controller's transport_url.")


def _hypervisors(answers: Answers) -> Iterator[_Rest]:
    if answers.hosts is None:
        yield WARNING, 'shown to operators only', 'Ask with their account.'
        return
    if not answers.hosts:
        yield (ERROR, 'none has reported',
               'Start virtco-edge; virtco-edge --check tells what is '
               'wrong on a hypervisor.')
    silent = [h.host for h in answers.hosts if h.last_report is None
              or answers.now_s - h.last_report > _SILENT_S]
    if silent:
        yield (ERROR, f'{_few(silent)} silent for '
               f'{units.format_time(_SILENT_S)}',
               'systemctl status virtco-edge on the host.')
    for host in answers.hosts:
        if host.health in ('error', 'degraded') and (
                host.host not in silent):
            yield (ERROR if host.health == 'error' else WARNING,
                   f'{host.host}: {host.error or host.health}',
                   f'virtco host show {host.host}')


def _rates(answers: Answers) -> Iterator[_Rest]:
    hosts = answers.hosts or ()
    unknown = [h.host for h in hosts if h.rate_source == 'unknown']
    if unknown:
        yield (WARNING, f'{_few(unknown)} of unknown speed',
               'Set [edge] link_egress_bps.')
    slow = [h.host for h in hosts if h.measured_egress_bps
            and h.link_egress_bps
            and h.measured_egress_bps < _SLOW * h.link_egress_bps]
    if slow:
        yield (WARNING, f'{_few(slow)} measured below '
               f'{_SLOW:.0%} of the nominal rate',
               'virtco rates; look for errors and for other traffic on '
               'the link.')


def _policies(answers: Answers) -> Iterator[_Rest]:
    behind = [h.host for h in answers.hosts or ()
              if h.generations_behind > _LAG]
    if behind:
        yield (WARNING, f'{_few(behind)} behind by more than {_LAG}',
               'virtco host show HOST names what the edge module refused.')


def _completion(answers: Answers) -> Iterator[_Rest]:
    late = [c.name for c in answers.coflows
            if c.measured_cct_s and c.cct_s
            and c.measured_cct_s > _LATE * c.cct_s]
    if late:
        yield (WARNING, f'{_few(late)} took more than {_LATE:g} times the '
               'planned time',
               'virtco coflow show NAME; compare hints with sent bytes, and '
               'rates with virtco edge show HOST.')


_LINKS = {'controller': _controller, 'nova-scheduler': _nova,
          'notifications': _notifications, 'hypervisors': _hypervisors,
          'rates': _rates, 'policies': _policies, 'completion': _completion}
_FINE = {'controller': 'every part works',
         'nova-scheduler': 'asks, and takes the answers',
         'notifications': 'no planned group waits for its VMs',
         'hypervisors': 'all report, all are healthy',
         'rates': 'known, and as large as nominal',
         'policies': 'applied everywhere',
         'completion': 'as planned'}


def _coflow(coflow: coflow_wire.Coflow,
            classes: Mapping[str, Sequence[host_wire.Class]]
            ) -> Iterator[_Rest]:
    if coflow.state != 'active':
        yield (OK if coflow.state in ('done', 'retired') else WARNING,
               f'is {coflow.state}', '')
        return
    missing = [str(m.row) for m in coflow.members or () if not m.host]
    if missing:
        yield (WARNING, f'rows {_few(missing)} without a host',
               'Their VMs were not built yet, or have gone.')
    if coflow.in_debt:
        yield (WARNING, 'its project owes bytes: no size is believed',
               'virtco project set PROJECT --forgive')
    with_class = [host for host, rows in classes.items()
                  if any(row.coflow_id == coflow.id for row in rows)]
    if classes and not with_class:
        yield (ERROR, 'no hypervisor has a class for it',
               'Its VMs may all be on one host; else virtco host list.')
    for host in with_class:
        row = next(row for row in classes[host]
                   if row.coflow_id == coflow.id)
        rate, seen = row.rate_bps, row.observed_bps or 0.0
        if row.backlog_bytes and seen < _SLOW * rate:
            yield (WARNING, f'{host}: sends {units.format_rate(seen)} of '
                   f'{units.format_rate(rate)} and packets wait',
                   'The link carries less than the controller believes.')
        else:
            yield (OK, f'{host}: {units.format_rate(seen)} of '
                   f'{units.format_rate(rate)}', '')


def _few(names: Sequence[str], most: int = 3) -> str:
    shown = ', '.join(names[:most])
    return shown if len(names) <= most else (
        f'{shown} and {len(names) - most} more')
