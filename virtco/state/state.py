# SPDX-License-Identifier: Apache-2.0

"""Reads the live state, keeps it, and tells who has to hear of a change."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Set
import functools
import logging
import math
import threading
import time
from typing import Any

from oslo_config import cfg
from sqlalchemy import orm

from virtco import periodic
from virtco.db import groups as db_groups
from virtco.db import models
from virtco.db import records
from virtco.db import session as db_session
from virtco.scheduling import endings
from virtco.state import host_state
from virtco.state import live_state
from virtco.state import measured_rates
from virtco.state import schedule_input
from virtco.state import summary
from virtco.state import transactions
from virtco.state import uplink_rates
from virtco.topology import tree
from virtco.wire import messages
from virtco.wire import reports

#: Groups that are read one by one, at most; of more, all are read: databases
#: limit the terms of a query.
MOST_GROUPS = 500
#: Time between estimates of pairs where something was measured, and between
#: deletions of old measurements.
PAIRS_S = 1.0
FORGET_S = 600.0
#: A reading is written at most so long after it was measured, with the counts,
#: unless the database is away; and how many wait for it.
LATE_S = 30.0
MOST_UNSTORED = 1000
LOG = logging.getLogger(__name__)

#: Time between writes of counted bytes, which take 4 % of a core at 2 s with
#: 1,000 hosts and 500 coflows. The last ones are not lost: edge modules count
#: on, and the next report makes up for them. Where it does not, they are
#: written earlier, but not within this time of the last write.
FLUSH_S, FLUSH_TAKES_S, FLUSH_SOON_S = 5.0, 0.1, 1.0


class State:
    """The live state, its copy in the database and its listeners.

    :param plane: returns that of the network that carries the coflows.
    :ivar tell_leader: tells the leader of a change that this process made;
        None where the leader is this process.
    :ivar has_database: whether the database answered within the last lease.
    :ivar on_load: are called before all is read from the database.
    :ivar on_change: are called when something changed; True: at once.
    :ivar on_report: are called with a host and its report.
    :ivar is_answering: see :func:`virtco.periodic.give_way`.
    :ivar on_forget: are called with the hosts that were forgotten.
    """

    def __init__(self, conf: cfg.ConfigOpts, database: db_session.Database,
                 turns: periodic.Turns,
                 plane: Callable[[], tree.Plane | None] = lambda: None,
                 clock: Callable[[], float] = time.time):
        self.database = database
        self._turns = turns
        self._clock = clock
        rules = rules_of(conf)
        self.rates = measured_rates.Rates(
            measured_rates.DEPTH, measured_rates.RETENTION_S,
            rules.uplink.max_age_s)
        self.live = live_state.LiveState(rules, self.rates, plane)
        self.live.on_last_counts = self._flush_soon
        self.tell_leader: Callable[[messages.PeerSaid], None] | None = None
        self.has_database: Callable[[], bool] = lambda: True
        self.on_load: list[Callable[[], None]] = []
        self.on_change: list[Callable[[bool], None]] = []
        self.is_answering: Callable[[float], bool] = lambda within_s: False
        self.on_report: list[Callable[[str, reports.Report], None]] = []
        self.on_forget: list[Callable[[Set[str]], None]] = []
        self._lock = threading.Lock()
        # Held while the hosts' rows are written.
        self._saving = threading.Lock()
        # Groups to be read again; None: all.
        self._stale: Set[str] | None = None
        self._is_behind = False
        self._loading = threading.Lock()
        self._forgot_s = -math.inf
        # Rows of measurements that the database has not.
        self._unstored: dict[tuple[str, str, int], dict[str, Any]] = {}
        self._flushed_s = -math.inf

    def load(self) -> None:
        """Load the state before the last stop."""
        self._read_objects()
        with self.database.reader() as session:
            hosts = records.list_hosts(session)
            self.load_readings(session)
            self.live.load_debts({
                project.project_id: project.debt_bytes
                for project in records.list_projects(session)})
        self._forgot(self.live.load_hosts(hosts))

    def _read_objects(self) -> None:
        for read in self.on_load:
            read()

    def start(self) -> None:
        """Estimate pairs, whether or not this process leads."""
        self._turns.every(PAIRS_S, 'estimate pairs', self._estimate_pairs)

    def lead(self) -> None:
        """Count from here on, and store the counts.

        :raises virtco.exception.DatabaseUnavailable: when it cannot be read.
        """
        with self._loading:
            self.tell_leader = None
            self.load()
            self._note_stale(None)
            self._is_behind = True
        # Read before edge modules report: their bytes add to the stored
        # counts.
        self.refresh()
        self._turns.every(FLUSH_S, 'flush', self.flush, is_last=True)

    def follow(self) -> None:
        """Take over the leader's stored counts."""
        with self._loading:
            if self.tell_leader is None:
                return
            self.load()
        self._note_stale(None)
        self.changed()

    def _note_stale(self, groups: Iterable[str] | None) -> None:
        with self._lock:
            self._stale = (None if groups is None or self._stale is None
                           else self._stale | set(groups))

    def generation(self) -> int:
        """Return the generation of all reservations in the database."""
        with self.database.reader() as session:
            return db_groups.generation(session)

    def changed(self, urgent: bool = True) -> None:
        for tell in self.on_change:
            tell(urgent)

    # Groups, as the database has them.

    def invalidate(self, groups: Iterable[str] | None = None) -> None:
        """Note groups that changed in the database; None: any may have."""
        self._note_stale(groups)
        self._tell(messages.Changed(
            None if groups is None else list(groups)))
        self.changed()

    def _tell(self, message: messages.PeerSaid) -> None:
        if self.tell_leader is not None:
            self.tell_leader(message)

    def forgiven(self, project_id: str) -> None:
        """Tell the leader that a project owes nothing any more."""
        self._tell(messages.Forgiven(project_id))

    def refresh(self) -> None:
        """Read the groups again that changed; the others stay.

        :raises virtco.exception.DatabaseUnavailable: and they are read later.
        """
        # An older read must not come after a newer one.
        with self._loading:
            self._refresh()

    def _refresh(self) -> None:
        with self._lock:
            only, self._stale = self._stale, frozenset()
        if only is not None and not only:
            return
        if only is not None and len(only) > MOST_GROUPS:
            only = None
        # Rows that are read may be older than a write of these ends.
        ended = self.live.ended()
        try:
            with self.database.reader() as session:
                self.live.load_groups(
                    db_groups.living_members(session, only),
                    db_groups.living_coflows(session, only), only,
                    anew=self.tell_leader is not None or self._is_behind,
                    ended=ended)
            self._is_behind = False
        except Exception:
            self._note_stale(only)
            raise

    # Hosts.

    def forget_hosts(self, hosts: Set[str]) -> None:
        """Delete all that is known of hosts, here and in the database."""
        with self._saving:
            self.database.as_leader(
                lambda session: records.forget_hosts(session, hosts))
            self.live.forget_hosts(hosts)
            self._forgot(hosts)
        self._read_objects()
        self._tell(messages.Forgotten(sorted(hosts)))
        self.invalidate()

    def _forgot(self, hosts: Set[str]) -> None:
        """Forget measurements of hosts, and tell the listeners."""
        if hosts:
            self.rates.forget(hosts)
            for key in list(self._unstored):
                if not hosts.isdisjoint(key[:2]):
                    self._unstored.pop(key, None)
            for tell in self.on_forget:
                tell(hosts)

    def _forget_quiet(self, now_s: float) -> None:
        """Forget hosts of which no measurement is left, either."""
        quiet = self.live.quiet_hosts(now_s - measured_rates.RETENTION_S)
        if quiet:
            LOG.info('%d hosts did not report for %d days and are forgotten.',
                     len(quiet), measured_rates.RETENTION_S // 86_400)
            self.forget_hosts(quiet)

    # Reports of edge modules.

    def report(self, host: str, report: reports.Report) -> None:
        urgent = self.live.intake(host, report, self._clock())
        for tell in self.on_report:
            tell(host, report)
        self.changed(urgent)

    def heard(self, hosts: Collection[str]) -> None:
        """Record that the last reports of these hosts still hold."""
        self.live.heard(hosts, self._clock())

    def measured(self, measurement: reports.Measurement) -> None:
        now_s = self._clock()
        slot = self.rates.add(measurement, now_s)
        self._unstored[measurement.src, measurement.dst, slot] = {
            'slot': slot, 'measured_at': now_s, **{
                name: getattr(measurement, name)
                for name in measured_rates.STORED}}
        if len(self._unstored) > MOST_UNSTORED:
            self._unstored.pop(next(iter(self._unstored)), None)
        if len(self._unstored) > MOST_UNSTORED // 2 and self.has_database():
            self._flush_soon()
        self.changed(False)

    def _store_readings(self) -> None:
        """Store measurements that the database has not, the oldest first."""
        rows = dict(self._unstored)
        if rows:
            self.database.as_leader(lambda session: records.save_readings(
                session, list(rows.values())))
        for key, row in rows.items():
            if self._unstored.get(key) is row:
                self._unstored.pop(key, None)

    def load_readings(self, session: orm.Session) -> None:
        """Load readings of rates that other processes stored meanwhile."""
        # A reading that was measured later may have been stored already.
        self.rates.load(records.list_readings(
            session, self.rates.newest_s() - LATE_S))

    def _estimate_pairs(self) -> None:
        began_s = time.thread_time()
        now_s = self._clock()
        self.rates.refresh(now_s)
        if (self.tell_leader is None
                and now_s - self._forgot_s >= FORGET_S):
            self._forgot_s = now_s
            self.database.as_leader(
                lambda session: records.forget_readings(
                    session, now_s - measured_rates.RETENTION_S,
                    measured_rates.DEPTH))
            self._forget_quiet(now_s)
        # No more than a tenth of a core.
        time.sleep(min(10.0, 9 * (time.thread_time() - began_s)))

    # Writes to the database.

    def _flush_soon(self) -> None:
        """Store counts that no process that takes over could find."""
        self._turns.hasten('flush', self._flushed_s + FLUSH_SOON_S)

    def flush(self) -> None:
        """Store the counts in the database."""
        self._flushed_s = time.monotonic()
        periodic.give_way(self.is_answering, FLUSH_TAKES_S)
        with self._saving:
            self._flush()
            self._store_readings()
        self.database.checkpoint()

    def _flush(self) -> None:
        unsaved = self.live.take_unsaved()
        if unsaved.is_empty():
            return
        hosts = [host_state.encoded(row, self.live.may_return)
                 for row in unsaved.hosts]

        def save(session: orm.Session, part: summary.Unsaved) -> None:
            records.save_progress(session, part.coflows, part.hosts)
            records.save_debts(session, part.debts)
            for one in part.findings:
                group = session.get(models.Group, one.group_id)
                records.add_event(
                    session, project_id=one.project_id,
                    group_name=group.name if group else '',
                    group_id=group and group.id, instance_uuid='',
                    kind=one.kind, detail=one.detail,
                    created_at=self._clock())

        try:
            for part in transactions.cut(unsaved, hosts):
                self.database.as_leader(functools.partial(save, part=part))
                self.database.checkpoint()  # before the next commit does
        except Exception:
            self.live.not_saved(unsaved)
            raise
        for one in unsaved.findings:
            LOG.warning('Coflow %s of project %s: %s.', one.coflow_id,
                        one.project_id, one.detail)
        self.live.saved(unsaved)


def rules_of(conf: cfg.ConfigOpts) -> schedule_input.Rules:
    """Return the rules by which policies are computed."""
    scheduler = conf.scheduler
    return schedule_input.Rules(
        wire_overhead_fraction=scheduler.wire_overhead_fraction,
        ending=endings.Rules(quiet_s=scheduler.quiet_s),
        uplink=uplink_rates.Rules(
            conf.placement.default_link_bps,
            max_age_s=uplink_rates.FRESH_PERIODS * conf.probe.freshness_s),
        share=schedule_input.Share(scheduler.default_share),
        max_debt_bytes=scheduler.max_debt_bytes)
