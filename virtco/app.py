# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Wires the rooms together, and owns nothing else."""

from collections.abc import Callable
import dataclasses
import time

from oslo_config import cfg

from virtco.ask import room as ask_room
from virtco.db import migration
from virtco.db import session as db_session
from virtco.decide import publisher
from virtco.decide import room as decide_room
from virtco.distribute import room as distribute_room
from virtco.follow import room as follow_room
from virtco.know import room as know_room
from virtco import metrics
from virtco import startup


@dataclasses.dataclass(frozen=True, slots=True)
class App:
    """:ivar ask: where should this VM go?
    :ivar know: what is true now?
    :ivar decide: who sends when?
    :ivar distribute: how do edge modules hear of it?
    :ivar follow: what did Nova do?
    """

    database: db_session.Database
    metrics: metrics.Metrics
    starting: startup.Startup
    know: know_room.Know
    decide: decide_room.Decide
    distribute: distribute_room.Distribute
    follow: follow_room.Follow
    ask: ask_room.Ask

    @classmethod
    def of(cls, conf: cfg.ConfigOpts, starting: startup.Startup | None = None,
           clock: Callable[[], float] = time.time) -> 'App':
        """Nothing runs yet, and nothing was read."""
        starting = starting or startup.Startup()
        database = db_session.Database.from_conf(conf)
        counts = metrics.Metrics()
        policies = publisher.Publisher()
        know = know_room.Know(conf, database, counts, policies, clock)
        decide = decide_room.Decide(conf, know, policies, counts, clock)
        distribute = distribute_room.Distribute(conf, know, decide, counts)
        follow = follow_room.Follow(conf, database, counts, know.invalidate,
                                    know.live.waiting, clock)
        ask = ask_room.Ask(conf, database, know.live, know.settings, counts,
                           starting, know.invalidate, clock)
        know.on_report += [follow.reported, ask.use]
        return cls(database, counts, starting, know, decide, distribute,
                   follow, ask)

    def start(self, auto_sync: bool) -> None:
        """Bring up the database, the state of before and the threads.

        Reports and policies are served from here on, placements when the
        planner is loaded (:meth:`virtco.ask.room.Ask.load_planner`).

        :param auto_sync: bring an embedded database's schema up to date.
        """
        if auto_sync and self.database.is_sqlite:
            migration.upgrade(self.database)
        self.know.load()
        self.decide.start()
        self.know.start()
        self.ask.start()
        self.follow.start()
        self.distribute.start()

    def stop(self) -> None:
        self.distribute.stop()
        self.decide.stop()
        self.follow.stop()
        self.know.stop()
        self.ask.stop()
        self.database.dispose()
