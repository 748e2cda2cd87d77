# SPDX-License-Identifier: Apache-2.0

"""How the parts are, and the gauges that are looked up, not counted."""

import threading
import time

from virtco import app
from virtco import exception
from virtco import problems
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
        self._count_s = time.monotonic()

    def health(self) -> tuple[bool, wire.Health]:
        """Return whether the controller serves, and the state of its parts."""
        rooms = self._rooms
        if rooms.starting.what is not None:
            return False, rooms.starting.document()
        parts = {'planner': rooms.place.is_alive() or not rooms.plans,
                 'scheduler': rooms.decide.is_alive(),
                 'keeper': rooms.keeps(),
                 'distributor': rooms.distribute.is_alive(),
                 'database': rooms.elector.is_answered()}
        has_errors = any(problems.is_error(one.code)
                         for one in rooms.problems)
        status = ('failing' if not all(parts.values())
                  else 'degraded' if has_errors else 'ok')
        return status != 'failing', wire.Health(
            status=status, parts=parts, problems=list(rooms.problems),
            hosts=rooms.n_hosts(),
            mode='shadow' if rooms.objects.settings.is_shadow else 'enforce',
            leader=wire.Leadership(**rooms.leadership()))

    def gauge(self) -> None:
        """Set the gauges."""
        counts, live = self.metrics, self._rooms.state.live
        now_s = self._rooms.clock()
        generations = self._rooms.decide.publisher.generations()
        reported = [(seen, seen.last_report_s) for seen in live.views(now_s)
                    if seen.last_report_s is not None]
        counts.report_age.replace({
            (seen.host,): now_s - last_report_s
            for seen, last_report_s in reported})
        counts.measured_bps.replace({
            (seen.host, way): rate_bps for seen, _ in reported
            for way, rate_bps in (
                ('egress', seen.capacity.measured_egress_bps),
                ('ingress', seen.capacity.measured_ingress_bps))
            if rate_bps is not None})
        counts.generation_lag.replace({
            (seen.host,): publisher.lag(generations.get(seen.host),
                                        seen.report.applied_generation)
            for seen, _ in reported})
        counts.overstating.set(live.count_overstating())
        counts.debts.replace({(project_id,): debt_bytes for
                              project_id, debt_bytes in live.debts().items()})
        # Another request may replace the thread meanwhile.
        counting = self._counting
        if (counting is None or not counting.is_alive()) and (
                time.monotonic() >= self._count_s):
            counting = threading.Thread(target=self._count, daemon=True)
            counting.start()
            self._counting = counting
        if counting is not None:
            counting.join(COUNT_S)

    def _count(self) -> None:
        """Set the gauges of which the database knows: it reads whole indexes,
        so that it rests for nine times as long afterwards.
        """
        began_s = time.monotonic()
        try:
            with self._rooms.database.reader() as session:
                found = db_groups.coflows_by_state(session)
                placed = db_groups.running_by_plan(session)
        except exception.VirtcoException:
            return
        finally:
            self._count_s = 10 * time.monotonic() - 9 * began_s
        for state in states.CoflowState:
            self.metrics.coflows.labels(state).set(found.get(state, 0))
        for where, count in placed.items():
            self.metrics.running_vms.labels(where).set(count)
