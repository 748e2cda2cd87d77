# SPDX-License-Identifier: Apache-2.0

"""How far coflows are, for those who ask and for the database. Pure."""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from virtco import units
from virtco.db import codec
from virtco.model import states
from virtco.state import byte_counters
from virtco.state import inflight

if TYPE_CHECKING:
    from virtco.db import models


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """How far a coflow is.

    :ivar span: first and last byte of the iteration under way or last under
        way.
    :ivar measured_period_s: period of its iterations; None where it is
        unknown.
    :ivar counted_compute_s: computing per iteration by which a job is served;
        None for any other coflow.
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
class Finding:
    """A note about a coflow, of which an event tells its tenant once.

    :ivar detail: one line for the tenant and the operator.
    :ivar key: two findings of the same key are the same.
    """

    kind: str
    detail: str
    key: tuple[str, str]
    coflow_id: str
    project_id: str
    group_id: str

    @classmethod
    def of(cls, tracked: inflight.Tracked, kind: str, detail: str,
           key: tuple[str, str]) -> 'Finding':
        return cls(kind, detail, key, tracked.coflow_id, tracked.project_id,
                   tracked.group_id)


def overstating(tracked: inflight.Tracked) -> Finding:
    """Describe a job that claims more computing than fits its iterations."""
    claimed, period, counted = map(units.format_time, (
        tracked.model.compute_s or 0.0, tracked.period.least_s,
        tracked.compute_s))
    return Finding.of(
        tracked, 'compute_overstated',
        f'{tracked.name} hints compute {claimed}, but an iteration takes '
        f'{period} in all: it is served as if it computed {counted}',
        ('', tracked.coflow_id))


@dataclasses.dataclass(frozen=True, slots=True)
class Unsaved:
    """Changes that the database does not know yet.

    :ivar coflows: columns of each.
    :ivar hosts: columns of each, to be encoded.
    :ivar debts: bytes per project.
    :ivar ended: ids of the coflows that are over with it.
    :ivar findings: events to be written.
    :ivar projects: project of each of the coflows.
    """

    coflows: list[dict[str, Any]]
    hosts: list[dict[str, Any]]
    debts: dict[str, float]
    ended: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    projects: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def is_empty(self) -> bool:
        return not (self.coflows or self.hosts or self.debts
                    or self.findings)


def columns(tracked: inflight.Tracked) -> dict[str, Any]:
    """Return the columns of the database that change while a coflow sends."""
    sent_bytes = tracked.progress.sent_bytes
    return {'id': tracked.coflow_id, 'state': tracked.state,
            'iteration': tracked.iteration, 'why': tracked.why,
            'progress': msgspec.json.encode([
                size_bytes for one in (tracked.progress, tracked.upcoming)
                if one is not None for size_bytes in one.to_stored()]
            ).decode(),
            'sent_bytes': float(sent_bytes.sum()),
            'size_bytes': float(tracked.progress.sizes_bytes.sum())
            if tracked.model.is_estimated else tracked.model.size_bytes,
            'arrival': tracked.arrival_s, 'ended_at': tracked.ended_s,
            **measured(tracked.progress.span)}


def measured(span: byte_counters.Span | None) -> dict[str, float | None]:
    """Return a span as columns of a coflow."""
    names = ('first_byte_at', 'last_byte_at', 'measured_cct_s',
             'measured_cct_error_s')
    if span is None:
        return dict.fromkeys(names)
    return dict(zip(names, (span.first_byte_s, span.last_byte_s, span.cct_s,
                            span.cct_error_s)))


def load(stored: 'models.Coflow') -> inflight.Tracked:
    """Make a coflow in flight of its row in the database."""
    model = codec.decode_coflow(stored)
    sent_bytes = msgspec.json.decode(stored.progress)
    # The next iteration's bytes follow those of this one.
    n_own = len(model.matrix.src) + 1
    tracked = inflight.Tracked(
        coflow_id=stored.id, group_id=stored.group_id or '',
        project_id=stored.project_id, name=stored.name, state=stored.state,
        model=model,
        progress=byte_counters.Estimated(
            np.array(model.matrix.dst), sent_bytes[:n_own])
        if model.is_estimated else byte_counters.CoflowProgress(
            np.asarray(model.matrix.size_bytes), sent_bytes[:n_own]),
        iteration=stored.iteration, priority_class=stored.priority_class,
        weight=stored.weight, arrival_s=stored.arrival,
        planned_cct_s=stored.cct_s, ended_s=stored.ended_at,
        expires_s=stored.expires_at,
        deadline_s=(math.inf if stored.deadline_at is None
                    else stored.deadline_at),
        is_promised=bool(stored.is_promised), why=stored.why or '')
    if (stored.first_byte_at is not None and stored.last_byte_at is not None
            and stored.measured_cct_error_s is not None):
        tracked.progress.span = byte_counters.Span.load(
            stored.first_byte_at, stored.last_byte_at,
            stored.measured_cct_error_s)
    if tracked.state == states.CoflowState.DONE:
        tracked.rest(sent_bytes[n_own:])
    return tracked
