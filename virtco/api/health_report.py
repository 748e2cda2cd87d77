# SPDX-License-Identifier: Apache-2.0

"""How the parts are, and the gauges that are looked up, not counted."""

import threading

from virtco import app
from virtco import exception
from virtco.db import groups as db_groups
from virtco.decide import publisher
from virtco.model import states
from virtco.wire import health as wire

#: Metrics do not wait longer for the database; those of it are older then.
COUNT_S = 0.5


class Document:
    """How a process with all rooms is."""

    def __init__(self, rooms: app.App):
        self.metrics = rooms.metrics
        self._rooms = rooms
        self._counting: threading.Thread | None = None

    def health(self) -> tuple[bool, wire.Health]:
        return document(self._rooms)

    def gauge(self) -> None:
        gauge(self._rooms, self._rooms.clock())
        if self._counting is None or not self._counting.is_alive():
            self._counting = threading.Thread(
                target=count, args=(self._rooms,), daemon=True)
            self._counting.start()
        self._counting.join(COUNT_S)


def document(rooms: app.App) -> tuple[bool, wire.Health]:
    """Return whether the controller serves, and the state of its parts."""
    if rooms.starting.what is not None:
        return False, rooms.starting.document()
    parts = {'planner': rooms.place.is_alive() or not rooms.plans,
             'scheduler': rooms.decide.is_alive(),
             'keeper': rooms.keeps(),
             'distributor': rooms.distribute.is_alive(),
             'database': rooms.elector.is_answered()}
    status = ('failing' if not all(parts.values()) else 'degraded'
              if any(one.is_error() for one in rooms.problems) else 'ok')
    return status != 'failing', wire.Health(
        status=status, parts=parts, problems=[
            wire.Problem(code=one.code, finding=one.finding)
            for one in rooms.problems], hosts=rooms.n_hosts(),
        mode='shadow' if rooms.objects.settings.is_shadow else 'enforce',
        leader=wire.Leadership(**rooms.leadership()))


def gauge(rooms: app.App, now_s: float) -> None:
    counts = rooms.metrics
    generations = rooms.decide.publisher.generations()
    ages_s: dict[tuple[str, ...], float] = {}
    rates_bps: dict[tuple[str, ...], float] = {}
    lags: dict[tuple[str, ...], float] = {}
    for host in rooms.state.live.views(now_s):
        if host.last_report_s is None:
            continue
        ages_s[host.host,] = now_s - host.last_report_s
        for way, rate_bps in (
                ('egress', host.capacity.measured_egress_bps),
                ('ingress', host.capacity.measured_ingress_bps)):
            if rate_bps is not None:
                rates_bps[host.host, way] = rate_bps
        lags[host.host,] = publisher.lag(
            generations.get(host.host), host.report.applied_generation)
    counts.report_age.replace(ages_s)
    counts.measured_bps.replace(rates_bps)
    counts.generation_lag.replace(lags)
    counts.overstating.set(rooms.state.live.count_overstating())
    counts.debts.replace({
        (project_id,): debt_bytes for project_id, debt_bytes
        in rooms.state.live.debts().items()})


def count(rooms: app.App) -> None:
    """Set the gauges of which the database knows."""
    counts = rooms.metrics
    try:
        with rooms.database.reader() as session:
            found = db_groups.coflows_by_state(session)
            placed = db_groups.running_by_plan(session)
    except exception.DatabaseUnavailable:
        return
    for state in states.CoflowState:
        counts.coflows.labels(state).set(found.get(state, 0))
    for where, count in placed.items():
        counts.running_vms.labels(where).set(count)
