# SPDX-License-Identifier: Apache-2.0

"""Wires the rooms together, and owns nothing else."""

from collections.abc import Callable
from collections.abc import Iterable
import contextlib
import logging
import time
from typing import Any

from oslo_config import cfg

from virtco import clock as clocks
from virtco import configuration
from virtco import exception
from virtco import metrics
from virtco import periodic
from virtco import selftest
from virtco import startup
from virtco.db import migration
from virtco.db import session as db_session
from virtco.decide import decide as decide_room
from virtco.decide import publisher
from virtco.distribute import certificates
from virtco.distribute import distribute as distribute_room
from virtco.distribute import upstream
from virtco.follow import feedback
from virtco.follow import follow as follow_room
from virtco.follow import inventory
from virtco.follow import nova
from virtco.leadership import elector as electors
from virtco.leadership import lock as locks
from virtco.objects import objects as catalogue
from virtco.place import place as places
from virtco.state import state as states
from virtco.wire import edge_policy
from virtco.wire import health

LOG = logging.getLogger(__name__)

#: Time between two reads of the model by a process that does not lead.
FOLLOW_S = 1.0
#: Time between the leader's looks for changes that no peer told of.
CHECK_S = 5.0
#: Time between two self-tests of a process.
TEST_S = 15.0
#: The leader answers another process in this time, or not at all.
ASK_S = 2.0


class App:
    """Controller: its rooms, and the threads that keep them going.

    :param schedules: whether it may lead, and listens for edge modules.
    :param plans: whether it answers Nova.
    :ivar place: room that chooses hosts of VMs.
    :ivar state: room of live coflows and hosts.
    :ivar objects: room of the objects with names.
    :ivar decide: room that computes rates and policies.
    :ivar distribute: room that sends policies to edge modules.
    :ivar follow: room that follows Nova.
    :ivar clock: clock of all rooms.
    :ivar elector: leadership among controllers.
    :ivar problems: found by the last test of the process by itself.
    :ivar on_deposed: is called when this process does not lead any more, and
        must begin anew.
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 starting: startup.Startup | None = None,
                 clock: clocks.Clock | None = None,
                 schedules: bool = True, plans: bool = True):
        self._conf = conf
        self.clock = clock = clock or clocks.Clock()
        self.plans = plans
        self.starting = starting or startup.Startup()
        self.database = database = db_session.Database.from_conf(conf)
        self.metrics = counts = metrics.Metrics(
            conf.monitoring.names)
        self.turns = turns = periodic.Turns(counts)
        self.on_deposed: Callable[[], None] = lambda: None
        lease_s = conf.leadership.lease_s
        # Who leads does not depend on how many tenants wait for an answer.
        self._apart = (database if database.is_sqlite
                       else db_session.Database.from_conf(conf))
        self.elector = electors.Elector(
            self._apart, locks.Lock(locks.url_of(conf), lease_s,
                                 locks.name_of(conf))
            if schedules else None, lease_s,
            lambda: self.distribute.address(), self._lead,
            lambda: self.on_deposed())
        self._policies = publisher.Publisher()
        self.state = states.State(
            conf, database, turns, lambda: self.objects.plane(), clock)
        self.state.on_forget.append(self._policies.forget)
        self.objects = catalogue.Objects(
            conf, self.state, counts, turns, clock)
        self.decide = decide_room.Decide(
            conf, self.state, self.objects, self._policies, counts, turns,
            clock)
        self.distribute = distribute_room.Distribute(
            conf, self.state, self.decide, self.elector, counts,
            schedules)
        self._upstream = upstream.Upstream(
            self.elector, certificates.of(conf.distributor, 'client', counts))
        self.follow = follow_room.Follow(
            conf, self.state, counts, turns, clock)
        self.place = places.Place(
            conf, self.state, self.objects.settings, counts, turns,
            self.starting, self._planned,
            inventory.Inventory(conf).free if conf.nova.auth_type else None,
            clock,
            (lambda groups: self.decide.orders.planned(groups))
            if conf.probe.check_groups == 'hinted' else None)
        self.decide.loop.is_placing = self.place.is_busy
        self.decide.loop.is_answering = self.place.needs_interpreter
        self.objects.coflows.is_answering = self.place.needs_interpreter
        self.state.is_answering = self.place.needs_interpreter
        self.state.on_report += [self.follow.reported, self.place.use]
        self._epoch: int | None = None
        self._generation = -1
        self.problems: tuple[health.Problem, ...] = ()

    def start(self) -> None:
        """Bring up the database, the stored state and the threads.

        Reports and policies are served from here on, placements when the
        planner is loaded (:meth:`virtco.place.place.Place.load_planner`). The
        schema of an embedded database is brought up to date.
        """
        if self.database.is_sqlite:
            migration.upgrade(self.database)
        with contextlib.suppress(exception.VirtcoException):
            now_s = self.database.now_s()
            if now_s is not None:
                self.clock.follow(now_s)
        self.turns.start()
        self.turns.every(CHECK_S, 'clock', self.clock.check)
        self.state.tell_leader = self._upstream.tell
        self.state.has_database = self.elector.has_database
        # Also while it takes over: all is read first.
        self.decide.loop.leads = lambda: False
        self.distribute.start()
        self.elector.start()
        if self._epoch is None:
            self.state.follow()
            self._upstream.start()
            self.turns.every(FOLLOW_S, 'follow', self._look)
        self.state.start()
        self.objects.start()
        self.decide.start()
        if self.plans:
            self.place.start()

    def test_itself(self) -> None:
        """Look for problems from now on.

        When everything is loaded: it imports what the API and the message bus
        import, and two threads that do so find half of a module.
        """
        self.turns.every(TEST_S, 'test itself', self._test_itself, first_s=0)

    def stop(self) -> None:
        self.distribute.stop()
        self._upstream.stop()
        self.decide.stop()
        self.place.stop()
        self.turns.end()
        self.elector.stop()
        # Both may wait for Nova, and the next leader does not.
        self.follow.stop()
        self.turns.stop()
        self._apart.dispose()
        self.database.dispose()

    def leads(self) -> bool:
        """Tell whether this process leads, as far as it can know."""
        return self.elector.is_current()

    def keeps(self) -> bool:
        """Tell whether the state is stored, or read again."""
        return self.turns.is_alive() and (
            self._epoch is not None or self._upstream.is_alive())

    def leadership(self) -> dict[str, Any]:
        """Describe who leads, as far as this process knows."""
        if self._epoch is None:
            return {'epoch': self._upstream.epoch, 'here': False,
                    'reached': self._upstream.is_connected}
        return {'epoch': self._epoch, 'here': True, 'reached': self.leads()}

    def n_hosts(self) -> int:
        """Count the hosts that have a policy."""
        return (self._upstream.n_hosts if self._epoch is None
                else len(self.decide.publisher.generations()))

    def policy(self, host: str) -> edge_policy.EdgePolicy | None:
        """Return the newest policy of a host, None without one.

        :raises virtco.exception.Starting: when the process that leads does
            not answer.
        """
        if self._epoch is None:
            return self._upstream.policy(host, ASK_S)
        return self.decide.publisher.get(host)

    def _lead(self, epoch: int) -> None:
        """Begin to lead: read the whole database and publish from it."""
        self._upstream.stop()
        self._policies.lead(epoch)
        self.database.fence = self.elector.check
        self.state.lead()
        self.objects.lead()
        self.decide.lead(self.leads)
        self.follow.lead()
        self.distribute.lead(epoch)
        self._epoch = epoch
        self.turns.every(CHECK_S, 'check', self._check)
        if not self._conf.nova.auth_type:
            return
        if interval_s := self._conf.reevaluation.interval_s:
            self.turns.every(interval_s, 're-evaluate', self._advise)
        if interval_s := self._conf.nova.feedback_interval_s:
            teller = feedback.Feedback(self.database, nova.Nova(self._conf))
            self.turns.every(interval_s, 'tell tenants',
                             lambda: self._tell_tenants(teller))

    def _planned(self, groups: Iterable[str]) -> None:
        """Read groups again that were planned; have their hosts checked."""
        planned = list(groups)
        self.state.invalidate(planned)
        if self._conf.probe.check_groups == 'always':
            self.decide.orders.planned(planned)

    # Periodic work.

    def _look(self) -> None:
        """Follow the leader while another process is it."""
        began_s = time.thread_time()
        self.state.follow()
        # No more than a tenth of a core.
        time.sleep(min(10.0, 9 * (time.thread_time() - began_s)))

    def _tell_tenants(self, teller: feedback.Feedback) -> None:
        """Tell tenants on their servers."""
        if self.leads():
            teller.turn()

    def _advise(self) -> None:
        """Look for moves that would pay."""
        self.place.adviser().turn(nova.Nova(self._conf))

    def _test_itself(self) -> None:
        """Find problems, and log each when it comes."""
        found = tuple(selftest.repeated(self._conf, self.database))
        configuration.tell(
            [one for one in found if one not in self.problems], LOG.log)
        self.problems = found

    def _check(self) -> None:
        """Look for commits of which no peer told, since it may have ended."""
        generation = self.state.generation()
        if generation != self._generation:
            self._generation = generation
            self.state.invalidate()
