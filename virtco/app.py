# SPDX-License-Identifier: Apache-2.0

"""Wires the rooms together, and owns nothing else."""

from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import math
import socket
import time
from typing import Any

import msgspec
from oslo_config import cfg

from virtco import clock as clocks
from virtco import exception
from virtco import metrics
from virtco import periodic
from virtco import startup
from virtco.ask import room as ask_room
from virtco.db import leader
from virtco.db import migration
from virtco.db import models
from virtco.db import session as db_session
from virtco.decide import publisher
from virtco.decide import room as decide_room
from virtco.decide import stored
from virtco.distribute import feed as feeds
from virtco.distribute import room as distribute_room
from virtco.distribute import source as sources
from virtco.follow import feedback
from virtco.follow import inventory
from virtco.follow import nova
from virtco.follow import room as follow_room
from virtco.know import room as know_room
from virtco.leadership import elector as electors
from virtco.leadership import lock as locks

#: A process that does not lead reads the model again so often.
FOLLOW_S = 1.0
#: The leader looks so often for what no peer told.
CHECK_S = 5.0
STORE_S = 0.5
#: Policies that are stored at once: what bounds the database's load.
MOST_STORED = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """What of it a process does.

    :ivar schedules: it may lead.
    :ivar distributes: it listens for edge modules.
    :ivar plans: it answers Nova.
    """

    schedules: bool = True
    distributes: bool = True
    plans: bool = True


class App:
    """:ivar ask: where should this VM go?
    :ivar know: what is true now?
    :ivar decide: who sends when?
    :ivar distribute: how do edge modules hear of it?
    :ivar follow: what did Nova do?
    :ivar clock: of all of them.
    :ivar feed: from the scheduler that leads, if that is another process.
    :ivar elector: None where this process never leads.
    :ivar on_deposed: is called when this process does not lead any more, and
        must begin anew.
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 starting: startup.Startup | None = None,
                 clock: clocks.Clock | None = None,
                 parts: Parts = Parts()):
        self._conf = conf
        self._parts = parts
        self.clock = clock = clock or clocks.Clock()
        self.plans = parts.plans
        self.starting = starting or startup.Startup()
        self.database = database = db_session.Database.from_conf(conf)
        self.metrics = counts = metrics.Metrics()
        self._policies = publisher.Publisher()
        self.know = know_room.Know(conf, database, counts, self._policies,
                                   clock)
        self.decide = decide_room.Decide(conf, self.know, self._policies,
                                         counts, clock)
        self.feed = feeds.Feed(
            conf, database, lambda hosts: self.distribute.policies_came(hosts),
            lambda *train: self.distribute.train_came(*train),
            lambda: self.distribute.last_reports().items())
        self.distribute = distribute_room.Distribute(
            conf, self.know, self.decide, self.feed, counts)
        self.follow = follow_room.Follow(
            conf, database, counts, self.know.invalidate,
            self.know.live.waiting, clock)
        self.ask = ask_room.Ask(
            conf, database, self.know.live, self.know.settings, counts,
            self.starting, self._planned,
            inventory.Inventory(conf) if conf.nova.auth_type else None,
            clock, self.know.pairs,
            (lambda groups: self.decide.orders.planned(groups))
            if conf.probe.check_groups == 'hinted' else None)
        self.know.on_report += [self.follow.reported, self.ask.use]
        self.on_deposed: Callable[[], None] = lambda: None
        self.elector: electors.Elector | None = None
        self._source: sources.Source | None = None
        self._epoch: int | None = None
        self._generation = -1
        self._follower = periodic.Periodic('follow', FOLLOW_S, self._look,
                                           counts)
        self._storer = periodic.Periodic('store', STORE_S, self._store,
                                         counts)
        self._watch = periodic.Periodic('clock', CHECK_S, clock.check, counts)
        self._feedback = periodic.Periodic(
            'tell tenants', conf.nova.feedback_interval_s or math.inf,
            self._tell_tenants, counts)
        self._teller: feedback.Feedback | None = None
        self._adviser = periodic.Periodic(
            're-evaluate', conf.reevaluation.interval_s or math.inf,
            self._advise, counts)
        self._checker = periodic.Periodic('check', CHECK_S, self._check,
                                          counts)

    @classmethod
    def of(cls, conf: cfg.ConfigOpts, starting: startup.Startup | None = None,
           clock: clocks.Clock | None = None) -> 'App':
        """Nothing runs yet, and nothing was read."""
        return cls(conf, starting, clock)

    def start(self) -> None:
        """Bring up the database, the state of before and the threads.

        Reports and policies are served from here on, placements when the
        planner is loaded (:meth:`virtco.ask.room.Ask.load_planner`). The
        schema of an embedded database is brought up to date.
        """
        if self.database.is_sqlite:
            migration.upgrade(self.database)
        self._watch.start()
        self._stand_by()
        if self._parts.schedules:
            self._source = distribute_room.open_source(
                self._conf, self._doors(), self.metrics)
            self._source.start()
            self.elector = electors.Elector(
                self.database,
                locks.Lock(locks.url_of(self._conf),
                           self._conf.leadership.lease_s,
                           locks.name_of(self._conf)),
                self._conf.leadership.lease_s, self._address, self._lead,
                lambda: self.on_deposed())
            self.elector.start()
        if self._epoch is None:
            self.know.load()
            self.feed.start()
            self._follower.start()
        self.know.start()
        self.decide.start()
        if self.plans:
            self.ask.start()
        if self._parts.distributes:
            self.distribute.start()

    def stop(self) -> None:
        self.distribute.stop()
        if self._source is not None:
            self._source.stop()
        self.feed.stop()
        self.decide.stop()
        self.follow.stop()
        for turns in (self._follower, self._storer, self._checker,
                      self._watch, self._adviser, self._feedback):
            turns.stop()
        self.know.stop()
        if self.elector is not None:
            self.elector.stop()
        self.ask.stop()
        self.database.dispose()

    def leads(self) -> bool:
        return self.elector is not None and self.elector.is_current()

    def keeps(self) -> bool:
        """Whether what is known is written down, or read again."""
        if self._epoch is None:
            return self._follower.is_alive() and self.feed.is_alive()
        return self.know.is_alive() and self.follow.is_alive()

    def epoch(self) -> int:
        """The newest that this process heard of."""
        return self.feed.epoch if self._epoch is None else self._epoch

    def leadership(self) -> dict[str, Any]:
        """Who leads, as far as this process knows."""
        here = self._epoch is not None
        return {'epoch': self.epoch(), 'here': here,
                'reached': self.leads() if here else self.feed.is_connected}

    def _stand_by(self) -> None:
        """Another process leads, as far as is known."""
        self.know.peer = self.feed
        self.decide.elsewhere = stored.Stored(self.database)
        # Also while it takes over: numbers of policies are read first.
        self.decide.loop.leads = lambda: False

    def _lead(self, epoch: int) -> None:
        """All that was written down is read, and holds from here on."""
        assert self._source is not None and self.elector is not None
        self._epoch = epoch
        self._follower.stop(wait=False)
        self.feed.stop()
        self._policies.lead(epoch)
        self.know.fence = self.follow.fence = self.elector.check
        self.know.lead()
        self._source.lead(epoch)
        self.decide.on_publish.append(self._source.published)
        self.decide.prober.on_ordered.append(self._source.trains_ordered)
        self.decide.lead(self.leads)
        self.follow.lead()
        self.distribute.lead(epoch)
        self._storer.start()
        self._checker.start()
        if self._conf.reevaluation.interval_s and self._conf.nova.auth_type:
            self._adviser.start()
        if self._conf.nova.feedback_interval_s and self._conf.nova.auth_type:
            self._teller = feedback.Feedback(self.database,
                                             nova.Nova(self._conf))
            self._feedback.start()

    def _address(self) -> str:
        assert self._source is not None
        host = str(self._conf.leadership.host or self._conf.api.host)
        if host in ('0.0.0.0', '::'):
            host = socket.gethostname()
        return (f'[{host}]' if ':' in host else host) + (
            f':{self._source.port}')

    def _doors(self) -> sources.Doors:
        """What peers may ask of this process while it leads."""
        return sources.Doors(
            policy=self._document, overtake=self.decide.overtake,
            n_hosts=lambda: len(self.decide.generations()),
            report=self.know.report, heard=self.know.heard,
            measured=self.distribute.measured, trains=self.distribute.trains,
            changed=self.know.peer_changed, forgiven=self.know.live.forgive)

    def _document(self, host: str) -> tuple[int, bytes] | None:
        found = self.decide.policy_of(host)
        return (None if found is None else
                (found.generation, msgspec.json.encode(found)))

    def _planned(self, groups: Iterable[str]) -> None:
        planned = list(groups)
        self.know.invalidate(planned)
        if self._conf.probe.check_groups == 'always':
            self.decide.orders.planned(planned)

    # What is done again and again.

    def _look(self) -> None:
        """Follow the leader."""
        began_s = time.thread_time()
        self.know.follow()
        # No more than a tenth of a core.
        time.sleep(min(10.0, 9 * (time.thread_time() - began_s)))

    def _store(self) -> None:
        """Write the policies down for those who cannot reach this process."""
        if self.database.is_sqlite and not self._has_peers():
            return
        assert self.elector is not None
        epoch, fence = self._epoch or 0, self.elector.check
        found = self._policies.take_unstored(MOST_STORED)
        if not found:
            return
        rows = [models.Policy(
            host=policy.host, epoch=epoch, generation=policy.generation,
            document=msgspec.json.encode(policy).decode())
            for policy in found]

        def save(session: Any) -> None:
            fence(session)
            leader.save_policies(session, rows)

        try:
            self.database.retried(save)
        except exception.VirtcoException:
            self._policies.not_stored([policy.host for policy in found])
            raise

    def _tell_tenants(self) -> None:
        """Tell tenants on their servers."""
        if self._teller is not None and self.leads():
            self._teller.turn()

    def _advise(self) -> None:
        """Look for moves that would pay."""
        assert self.elector is not None
        self.ask.adviser().turn(nova.Nova(self._conf), self.elector.check)

    def _check(self) -> None:
        """A peer may have ended between a commit and telling it."""
        if self.database.is_sqlite and not self._has_peers():
            return
        generation = self.know.generation()
        if generation != self._generation:
            self._generation = generation
            self.know.invalidate()

    def _has_peers(self) -> bool:
        return self._source is not None and self._source.has_had_peers
