# SPDX-License-Identifier: Apache-2.0

"""How far coflows are, for those who ask and for the database. Pure."""

import dataclasses
import json
import math
from typing import Any

from virtco import units
from virtco.state import byte_counters
from virtco.state import host_state
from virtco.state import inflight


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """How far a coflow is.

    :ivar span: of the iteration that is or was under way.
    :ivar measured_period_s: of its iterations, None where it is not known.
    :ivar counted_compute_s: by which a job is served, None of all others.
    """

    coflow_id: str
    name: str
    state: str
    iteration: int
    sent_bytes: float
    arrival_s: float | None
    ended_s: float | None
    planned_cct_s: float | None
    span: byte_counters.Span | None
    measured_period_s: float | None = None
    counted_compute_s: float | None = None

    @classmethod
    def of(cls, tracked: inflight.Tracked) -> 'Status':
        return cls(tracked.coflow_id, tracked.name, tracked.state,
                   tracked.iteration,
                   float(tracked.progress.sent_bytes.sum()),
                   tracked.arrival_s, tracked.ended_s,
                   tracked.planned_cct_s, tracked.progress.span,
                   tracked.period.least_s
                   if tracked.period.least_s < math.inf else None,
                   tracked.compute_s or None)


@dataclasses.dataclass(frozen=True, slots=True)
class Overstating:
    """A job that claims to compute more than its iterations have time for."""

    coflow_id: str
    project_id: str
    group_id: str
    name: str
    claimed_s: float
    counted_s: float
    period_s: float

    @classmethod
    def of(cls, tracked: inflight.Tracked) -> 'Overstating':
        return cls(tracked.coflow_id, tracked.project_id, tracked.group_id,
                   tracked.name, tracked.model.compute_s or 0.0,
                   tracked.compute_s, tracked.period.least_s)

    @property
    def kind(self) -> str:
        return 'compute_overstated'

    @property
    def detail(self) -> str:
        """One line for the tenant and the operator."""
        return (f'{self.name} hints compute '
                f'{units.format_time(self.claimed_s)}, but an iteration '
                f'takes {units.format_time(self.period_s)} in all: it is '
                f'served as if it computed '
                f'{units.format_time(self.counted_s)}')


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """What a host cannot know, so it does not count.

    :ivar what: that it reported.
    """

    host: str
    coflow_id: str
    project_id: str
    group_id: str
    name: str
    what: str

    @classmethod
    def of(cls, host: str, tracked: inflight.Tracked, what: str
           ) -> 'Refused':
        return cls(host, tracked.coflow_id, tracked.project_id,
                   tracked.group_id, tracked.name, what)

    @property
    def key(self) -> tuple[str, str]:
        return self.host, self.what

    @property
    def kind(self) -> str:
        return 'report_refused'

    @property
    def detail(self) -> str:
        return f'{self.host} reports {self.what}: refused'


class Missing(Refused):
    """Bytes that a host cannot report any more."""

    @property
    def kind(self) -> str:
        return 'report_missing'

    @property
    def detail(self) -> str:
        return f'{self.host} {self.what}'


@dataclasses.dataclass(frozen=True, slots=True)
class Unsaved:
    """What the database does not know yet.

    :ivar coflows: columns of each.
    :ivar debts: bytes per project.
    :ivar ended: ids of the coflows that are over with it.
    :ivar overstating: of which an event shall tell.
    :ivar refused: likewise.
    """

    coflows: list[dict[str, Any]]
    hosts: list[host_state.Stored]
    debts: dict[str, float]
    ended: tuple[str, ...]
    overstating: tuple[Overstating, ...] = ()
    refused: tuple[Refused, ...] = ()

    @property
    def findings(self) -> tuple[Overstating | Refused, ...]:
        """Of which events shall tell."""
        return *self.overstating, *self.refused

    def is_empty(self) -> bool:
        return not (self.coflows or self.hosts or self.debts
                    or self.overstating or self.refused)


def columns(tracked: inflight.Tracked) -> dict[str, Any]:
    sent_bytes = tracked.progress.sent_bytes
    return {'id': tracked.coflow_id, 'state': tracked.state,
            'iteration': tracked.iteration, 'why': tracked.why,
            'progress': json.dumps(sent_bytes.round().tolist()),
            'sent_bytes': float(sent_bytes.sum()),
            **({'size_bytes': float(tracked.progress.sizes_bytes.sum())}
               if tracked.model.is_estimated else {}),
            'arrival': tracked.arrival_s, 'ended_at': tracked.ended_s,
            **measured(tracked.progress.span)}


def measured(span: byte_counters.Span | None) -> dict[str, float | None]:
    """As columns of a coflow."""
    values = ((None,) * 4 if span is None else
              (span.first_byte_s, span.last_byte_s, span.cct_s,
               span.cct_error_s))
    return dict(zip(('first_byte_at', 'last_byte_at', 'measured_cct_s',
                     'measured_cct_error_s'), values))
