# SPDX-License-Identifier: Apache-2.0

"""Everything that is kept by name: who made it, who may change it."""

from collections.abc import Callable
import time

from oslo_config import cfg

from virtco import metrics
from virtco import periodic
from virtco.objects import announcements
from virtco.objects import coflows
from virtco.objects import drains
from virtco.objects import findings
from virtco.objects import group_advice
from virtco.objects import profiles
from virtco.objects import projects
from virtco.objects import proximity
from virtco.objects import settings
from virtco.objects import topologies
from virtco.state import state as states
from virtco.topology import tree

#: Changes by other processes are noticed so soon.
READ_S = 1.0


class Objects:
    """Named objects that the controller keeps.

    :param state: room that is told of changes.
    """

    def __init__(self, conf: cfg.ConfigOpts, state: states.State,
                 counts: metrics.Metrics, turns: periodic.Turns,
                 clock: Callable[[], float] = time.time):
        self._state = state
        self._turns = turns
        self.settings = settings.Settings(conf, state.database,
                                          state.invalidate, clock)
        self.coflows = coflows.Coflows(conf, state, clock)
        self.announcements = announcements.Announcements(conf, state, clock)
        self.projects = projects.Projects(state)
        self.drains = drains.Drains(state, clock)
        self.history = drains.History(state.database, clock)
        self.topology = topologies.Topology(state.database, state.invalidate,
                                            clock)
        self.findings = findings.Findings(state, counts, clock)
        self.profiles = profiles.Profiles(conf, state, clock)
        self.advice = group_advice.Advice(conf, state, clock)
        self.clusters = proximity.Clusters(state, self.plane)
        state.on_load.append(self._load)

    def plane(self) -> tree.Plane | None:
        """Return the plane of the network that carries the coflows."""
        return self.topology.get().plane(tree.FRONT_END)

    def start(self) -> None:
        """Read changes from now on, as leader or not."""
        self._turns.every(READ_S, 'read objects', self._read)

    def lead(self) -> None:
        """Raise the alerts, and store the counts of profiles."""
        self.findings.show()
        self._turns.every(profiles.FLUSH_S, 'write profiles',
                          self.profiles.flush, is_last=True)

    def _load(self) -> None:
        """Load all objects before the state is read."""
        self.settings.load()
        self.drains.load()
        self.topology.refresh()
        self.findings.refresh()

    def _read(self) -> None:
        """Read changes, since a peer that made one may have ended before it
        told the leader.
        """
        before = self.settings.get(), self._state.live.drained
        self.settings.load()
        self.drains.load()
        if before != (self.settings.get(), self._state.live.drained):
            self._state.changed()
        self.topology.refresh()
        if self.findings.refresh() and self._state.tell_leader is not None:
            # Findings of hosts are in the rates, which are read less often.
            with self._state.database.reader() as session:
                self._state.load_readings(session)
