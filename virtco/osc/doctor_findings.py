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

from virtco import problems
from virtco import units
from virtco.wire import coflow_bodies as coflow_wire
from virtco.wire import health as health_wire
from virtco.wire import host as host_wire

OK, ERROR = problems.OK, problems.ERROR
_SILENT_S = 30.0
_LAG = 5
_UNPLUGGED_S = 600.0
_RECENT_S = 86_400.0
#: Below this share of the nominal rate a link is suspicious.
_SLOW = 0.7
#: Above this ratio of measured and planned CCT, a coflow is.
_LATE = 1.5
_MOST_NAMED = 3


class Finding(msgspec.Struct, frozen=True):
    """Verdict on one link of the chain.

    :ivar code: code of the problem, see :mod:`virtco.problems`; empty without
        one.
    """

    link: str
    state: str
    finding: str
    action: str = ''
    code: str = ''


def of_problem(code: str, finding: str, link: str = '') -> Finding:
    """Make the finding of a code.

    :param link: instead of the one that the code has.
    """
    kind = problems.KINDS[code]
    return Finding(link or kind.link, kind.state, finding or kind.title,
                   kind.action, code)


@dataclasses.dataclass(frozen=True, slots=True)
class Answers:
    """Answers of the controller at one moment.

    :ivar health: health of the controller, with ``parts``.
    :ivar hosts: None where the caller may not know of hosts.
    :ivar now_s: time by the same clock as the controller's times.
    """

    health: health_wire.Health
    coflows: Sequence[coflow_wire.Coflow]
    events: Sequence[coflow_wire.Event]
    hosts: Sequence[host_wire.Host] | None
    now_s: float


def examine(answers: Answers) -> list[Finding]:
    """List findings of all links in their order, also of those that work.

    A controller that does not serve is the only finding: the other links would
    show its consequences.
    """
    found: list[Finding] = []
    for link, (look, fine) in _LINKS.items():
        findings = [of_problem(*rest, link=link) for rest in look(answers)]
        found += findings or [Finding(link, OK, fine)]
        if not serves(answers.health):
            break
    return found


def serves(health: health_wire.Health) -> bool:
    """Tell whether the other answers of a controller mean something."""
    return health.status not in ('starting', 'failing')


def examine_coflow(coflow: coflow_wire.Coflow,
                   classes: Mapping[str, Sequence[host_wire.Class] | None]
                   ) -> list[Finding]:
    """List findings about one coflow.

    :param classes: host -> its classes, for hosts of its members; None: its
        edge module never reported.
    """
    link = f'coflow {coflow.name}'
    return [of_problem(code, finding, link) if code
            else Finding(link, OK, finding)
            for code, finding in _coflow(coflow, classes)]


#: Code, empty where all is well, and finding, empty for the code's title.
_Rest = tuple[str, str]


def _controller(answers: Answers) -> Iterator[_Rest]:
    if answers.health.status == 'starting':
        yield 'VC-051', f'starting: {answers.health.what}'
    if answers.health.mode == 'shadow':
        yield 'VC-052', ''
    told = [(one.code, one.finding)
            for one in answers.health.problems or ()]
    yield from told
    for part, works in (answers.health.parts or {}).items():
        code = _PARTS.get(part, 'VC-053')
        if not works and not any(other[:5] == code[:5] for other, _ in told):
            yield code, f'its {part} does not work'


_PARTS = {'database': 'VC-020', 'distributor': 'VC-054'}


def _nova(answers: Answers) -> Iterator[_Rest]:
    if not answers.coflows and not answers.events:
        yield 'VC-060', ''
    recent = [event for event in answers.events
              if answers.now_s - event.at < _RECENT_S]
    ignored = [e for e in recent if e.kind == 'hint_ignored']
    if ignored:
        newest = max(ignored, key=lambda event: event.at)
        yield ('VC-061', f'{len(ignored)} hints ignored in a day, at last: '
               f'{newest.detail}')
    elsewhere = [e for e in recent if e.kind == 'other_host']
    # In shadow mode Nova is told no host.
    if elsewhere and answers.health.mode != 'shadow':
        yield ('VC-062', f'built {len(elsewhere)} VMs on other hosts than '
               'planned in a day')


def _notifications(answers: Answers) -> Iterator[_Rest]:
    return _some('VC-063', [
        c.name for c in answers.coflows
        if c.state == 'planned' and c.created is not None
        and answers.now_s - c.created > _UNPLUGGED_S],
        f'planned for {units.format_time(_UNPLUGGED_S)} and not running')


def _hypervisors(answers: Answers) -> Iterator[_Rest]:
    if answers.hosts is None:
        yield 'VC-064', ''
        return
    if all(h.last_report is None for h in answers.hosts):
        yield 'VC-065', ''
        return
    silent = [h.host for h in answers.hosts if h.last_report is None
              or answers.now_s - h.last_report > _SILENT_S]
    yield from _some('VC-066', silent,
                     f'silent for {units.format_time(_SILENT_S)}')
    for host in answers.hosts:
        if host.health in _HEALTH and host.host not in silent:
            yield (_HEALTH[host.health],
                   f'{host.host}: {host.error or host.health}')


_HEALTH = {'error': 'VC-067', 'degraded': 'VC-068'}


def _rates(answers: Answers) -> Iterator[_Rest]:
    hosts = answers.hosts or ()
    # Hosts that never reported are silent already.
    yield from _some('VC-069', [
        h.host for h in hosts if h.rate_source == 'unknown'
        and h.last_report is not None], 'of unknown speed')
    yield from _some('VC-070', [
        h.host for h in hosts if h.measured_egress_bps and h.link_egress_bps
        and h.measured_egress_bps < _SLOW * h.link_egress_bps],
        f'measured below {_SLOW:.0%} of the nominal rate')


def _policies(answers: Answers) -> Iterator[_Rest]:
    return _some('VC-071', [h.host for h in answers.hosts or ()
                            if h.generations_behind > _LAG],
                 f'behind by more than {_LAG}')


def _completion(answers: Answers) -> Iterator[_Rest]:
    return _some('VC-072', [
        c.name for c in answers.coflows if c.measured_cct_s and c.cct_s
        and c.measured_cct_s > _LATE * c.cct_s],
        f'took more than {_LATE:g} times the planned time')


#: The links in their order, each with the finding where it works.
_LINKS = {
    'controller': (_controller, 'every part works'),
    'nova-scheduler': (_nova, 'asks, and takes the answers'),
    'notifications': (_notifications, 'no planned group waits for its VMs'),
    'hypervisors': (_hypervisors, 'all report, all are healthy'),
    'rates': (_rates, 'known, and as large as nominal'),
    'policies': (_policies, 'applied everywhere'),
    'completion': (_completion, 'as planned')}


def _coflow(coflow: coflow_wire.Coflow,
            classes: Mapping[str, Sequence[host_wire.Class] | None]
            ) -> Iterator[_Rest]:
    if coflow.state != 'active':
        yield ('' if coflow.state in ('done', 'retired') else 'VC-080',
               f'is {coflow.state}')
        return
    missing = [str(m.row) for m in coflow.members or () if not m.host]
    if missing:
        yield 'VC-081', f'rows {_few(missing)} without a host'
    if coflow.in_debt:
        yield 'VC-082', 'its project owes bytes: no size is believed'
    yield from _some('VC-066', [
        host for host, rows in classes.items() if rows is None],
        'never reported')
    with_class = {host: row for host, rows in classes.items()
                  for row in rows or () if row.coflow_id == coflow.id}
    if classes and not with_class:
        yield 'VC-083', ''
    for host, row in with_class.items():
        rate, seen = row.rate_bps, row.observed_bps or 0.0
        if row.backlog_bytes and seen < _SLOW * rate:
            yield ('VC-084', f'{host}: sends {units.format_rate(seen)} of '
                   f'{units.format_rate(rate)} and packets wait')
        else:
            yield ('', f'{host}: {units.format_rate(seen)} of '
                   f'{units.format_rate(rate)}')


def _some(code: str, names: Sequence[str], told: str) -> Iterator[_Rest]:
    """Tell of these hosts or coflows, where there are any."""
    if names:
        yield code, f'{_few(names)} {told}'


def _few(names: Sequence[str]) -> str:
    """Name the first, and count the others."""
    shown = ', '.join(names[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else (
        f'{shown} and {len(names) - _MOST_NAMED} more')
