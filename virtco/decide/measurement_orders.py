# SPDX-License-Identifier: Apache-2.0

"""Ordered measurements: any process takes orders, the leader carries them out.

Orders stand in the database, with what came of them so far. The leader takes
up those that wait, and writes their progress down; whoever leads after it
begins anew with what was under way. An order that no leader takes up in time
expires.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import json
import logging
import threading
from typing import Any
import uuid

import msgspec
from oslo_config import cfg
from sqlalchemy import orm

from virtco import exception
from virtco import periodic
from virtco.db import models
from virtco.db import orders as db_orders
from virtco.decide import asked
from virtco.decide import checks
from virtco.decide import probes
from virtco.state import state as states
from virtco.wire import check as check_wire
from virtco.wire import probe as probe_wire

LOG = logging.getLogger(__name__)

TURN, TURN_S = 'carry out orders', 0.5
CHECK, PROBE, SCHEDULE = 'check', 'probe', 'schedule'
#: Time between two writes of the schedule's state.
SCHEDULE_S = 5.0
#: No leader takes up an order that is older.
CHECK_EXPIRES_S = 1800.0
PROBE_EXPIRES_S = 120.0
#: The model knows the hosts of a group so long after its plan; at latest, if
#: the scheduler is late, so long after it.
SETTLE_S, KNOWN_S = 1.0, 60.0
NOBODY = 'no scheduler led in time to take it up'
_SCHEDULES = msgspec.json.Decoder(probe_wire.Schedule)


@dataclasses.dataclass
class _Taken:
    """An order that this process carries out, with its last stored state."""

    seen: Callable[[], tuple[str, Any]]
    written: tuple[str, str] | None = None


def to_check(hosts: Sequence[str], lately: Collection[str]) -> list[str]:
    """Choose the hosts of a launch that are to be checked.

    :param lately: hosts that were.
    """
    due = [host for host in hosts if host not in lately]
    if len(due) == 1:
        # A reading needs a second one.
        due += [host for host in hosts if host in lately][:1]
    return due


def _encoded(document: Any) -> str:
    return msgspec.json.encode(document).decode()


class Orders:
    """Orders of measurements and checks in the database."""

    def __init__(self, conf: cfg.ConfigOpts, state: states.State,
                 checks: checks.Checks, prober: probes.Prober,
                 turns: periodic.Turns, clock: Callable[[], float]):
        self._conf = conf.probe
        self._database = state.database
        self._live = state.live
        self._checks = checks
        self._prober = prober
        self._turns = turns
        self._clock = clock
        self._leads = False
        self._lock = threading.Lock()
        # A lock of its own: placements must not wait for the database here.
        self._new_lock = threading.Lock()
        self._taken: dict[str, _Taken] = {}
        self._schedule: tuple[float, str] = (-SCHEDULE_S, '')
        # Groups that were planned, and when their hosts are known.
        # When new groups are looked at, and when at last.
        self._new: dict[str, tuple[float, float]] = {}

    def start(self) -> None:
        self._turns.every(TURN_S, TURN, self.turn)

    def lead(self) -> None:
        """Carry out orders in this process from now on."""
        self._database.as_leader(db_orders.restart)
        self._leads = True

    # In every process.

    def check(self, hosts: Iterable[str],
              purpose: check_wire.Purpose = 'check',
              trigger: str = 'command') -> check_wire.Check:
        """Check these hosts as soon as no other check runs.

        :raises virtco.exception.Invalid: for too few or too many hosts, one
            that is not known, or when too many checks wait.
        """
        check = check_wire.Check(
            check_id=str(uuid.uuid4()),
            hosts=self._checks.checked(hosts, purpose), trigger=trigger,
            asked=self._clock(), purpose=purpose)
        self._add(CHECK, check.check_id, check, CHECK_EXPIRES_S,
                  checks.MOST_WAITING)
        return check

    def probe(self, request: probe_wire.ProbeRequest) -> str:
        """Measure these pairs soon; the id of the request.

        :raises virtco.exception.Invalid: when that is not possible.
        """
        if not self._conf.enabled:
            raise exception.Invalid(field='[probe] enabled', value=False,
                                    limit='true, to measure')
        asked.check(request)
        order_id = str(uuid.uuid4())
        self._add(PROBE, order_id, {
            'request': request, 'done': False, 'results': []},
            PROBE_EXPIRES_S, asked.MOST)
        return order_id

    def _add(self, kind: str, order_id: str, document: Any, expires_s: float,
             most_live: int) -> None:
        """Store an order; carry it out at once if this process leads."""
        now_s = self._clock()
        self._database.retried(lambda session: db_orders.add(
            session, models.Order(
                id=order_id, kind=kind, state=db_orders.WAITING,
                ordered_at=now_s, expires_at=now_s + expires_s,
                document=_encoded(document)), most_live))
        if self._leads:
            self._turns.attempt(TURN, self.turn)

    def find_check(self, check_id: str) -> check_wire.Check:
        """Return a check.

        :raises virtco.exception.NotFound:
        """
        return self._shown_check(self._find(check_id, CHECK, 'Check'))

    def checks(self) -> list[check_wire.Check]:
        """Return the checks, the newest last."""
        with self._database.reader() as session:
            rows = db_orders.find(session, models.Order.kind == CHECK)
        return [self._shown_check(row) for row in rows]

    def find_probe(self, order_id: str) -> probe_wire.Results:
        """Return the results of an order to probe.

        See :meth:`virtco.decide.asked.Asked.to_dict`; ``why`` tells of an
        order that was not carried out.

        :raises virtco.exception.NotFound:
        """
        row = self._find(order_id, PROBE, 'Probe')
        found: dict[str, Any] = json.loads(row.document)
        request = found.pop('request')
        if self._is_expired(row):
            found['why'] = NOBODY
        if 'why' in found:
            found |= {'done': True, 'results': [
                {'src': src, 'dst': dst} for src, dst in request['pairs']]}
        return msgspec.convert(found, probe_wire.Results)

    def schedule(self) -> probe_wire.Schedule | None:
        """Return the schedule of measurements as the leader stored it."""
        if self._leads:
            return self._prober.state()
        with self._database.reader() as session:
            row = db_orders.get(session, SCHEDULE, SCHEDULE)
        return None if row is None else _SCHEDULES.decode(row.document)

    def _find(self, order_id: str, kind: str, what: str) -> models.Order:
        with self._database.reader() as session:
            row = db_orders.get(session, order_id, kind)
        if row is None:
            raise exception.NotFound(what=what, id=order_id)
        return row

    def _shown_check(self, row: models.Order) -> check_wire.Check:
        found: dict[str, Any] = json.loads(row.document) | {
            'state': row.state}
        if self._is_expired(row):
            found |= {'state': db_orders.FAILED, 'why': NOBODY}
        return msgspec.convert(found, check_wire.Check)

    def _is_expired(self, row: models.Order) -> bool:
        return (row.state == db_orders.WAITING
                and row.expires_at <= self._clock())

    def planned(self, groups: Iterable[str]) -> None:
        """Check the hosts of new groups, once the model knows them."""
        now_s = self._clock()
        with self._new_lock:
            self._new |= dict.fromkeys(groups, (now_s + SETTLE_S,
                                                now_s + KNOWN_S))

    def _check_new(self) -> None:
        now_s = self._clock()
        with self._new_lock:
            due = {group: last_s for group, (at_s, last_s)
                   in self._new.items() if at_s <= now_s}
            for group in due:
                del self._new[group]
        for group, last_s in due.items():
            hosts = self._live.hosts_of_group(group)
            if not hosts and now_s < last_s:
                with self._new_lock:
                    self._new[group] = now_s + SETTLE_S, last_s
                continue
            try:
                due_hosts = to_check(hosts, self._checked_lately())
                if len(due_hosts) > 1:
                    self.check(due_hosts, trigger='launch')
            except exception.Invalid as error:
                LOG.warning('No check at launch: %s', error)
            except (exception.DatabaseUnavailable, exception.Conflict):
                # Groups that were checked already are not checked again.
                self.planned(due)
                raise

    def _checked_lately(self) -> set[str]:
        """Return the hosts that were checked lately or are about to be."""
        since_s = self._clock() - self._conf.freshness_s
        return {host for one in self.checks() if one.asked >= since_s
                and one.purpose == 'check'
                and one.state != db_orders.FAILED for host in one.hosts}

    # In the process that leads.

    def turn(self) -> None:
        """Take up waiting orders, and store the results of the others."""
        self._check_new()
        if not self._leads:
            return
        with self._lock:
            with self._database.reader() as session:
                waiting = db_orders.find(
                    session, models.Order.state == db_orders.WAITING)
            for row in waiting:
                if row.id not in self._taken:
                    self._take_up(row)
            self._prober.look()
            self._write()

    def _take_up(self, row: models.Order) -> None:
        """Begin to carry out a stored order, or refuse it with a reason."""
        document = json.loads(row.document)
        try:
            if self._is_expired(row):
                self._refuse(row, document, NOBODY)
            elif row.kind == CHECK:
                check = checks.Check(self._shown_check(row))
                self._checks.take(check)
                self._taken[row.id] = _Taken(lambda: (
                    check.now.state, check.now))
            else:
                one = self._prober.ask(msgspec.convert(
                    document['request'], probe_wire.ProbeRequest))
                self._taken[row.id] = _Taken(lambda: (
                    db_orders.DONE if one.is_done() else db_orders.RUNNING,
                    {'request': one.request} | one.to_dict()))
        except exception.VirtcoException as error:
            self._refuse(row, document, str(error))

    def _refuse(self, row: models.Order, document: dict[str, Any], why: str
                ) -> None:
        self._taken[row.id] = _Taken(lambda: (
            db_orders.FAILED, document | {'why': why}))

    def _write(self) -> None:
        """Store the states of orders that changed, and the schedule's."""
        changed = {}
        for order_id, one in self._taken.items():
            state, document = one.seen()
            now = state, _encoded(document)
            if now != one.written:
                changed[order_id] = now
        schedule = self._schedule_now()
        if not (changed or schedule):
            return

        def save(session: orm.Session) -> None:
            for order_id, (state, document) in changed.items():
                db_orders.save(session, order_id, state, document)
            if schedule:
                session.merge(models.Order(
                    id=SCHEDULE, kind=SCHEDULE, state=db_orders.DONE,
                    ordered_at=schedule[0], expires_at=0.0,
                    document=schedule[1]))

        self._database.as_leader(save)
        if schedule:
            self._schedule = schedule
        for order_id, now in changed.items():
            self._taken[order_id].written = now
            if now[0] in (db_orders.DONE, db_orders.FAILED):
                del self._taken[order_id]

    def _schedule_now(self) -> tuple[float, str] | None:
        """Return the time and the schedule to be stored; None if it did not
        change.
        """
        now_s = self._clock()
        before_s, before = self._schedule
        if 0 <= now_s - before_s < SCHEDULE_S:
            return None
        found = _encoded(self._prober.state())
        if found != before:
            return now_s, found
        self._schedule = now_s, found
        return None
