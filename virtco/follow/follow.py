# SPDX-License-Identifier: Apache-2.0

"""Entry of the package: changes of instances in Nova, and their effects."""

from collections.abc import Callable
from collections.abc import Mapping
import functools
import logging
from typing import Any

from oslo_config import cfg

from virtco import exception
from virtco import metrics
from virtco import periodic
from virtco.db import records
from virtco.follow import auditor
from virtco.follow import notifications
from virtco.follow import transitions
from virtco.state import state as known

LOG = logging.getLogger(__name__)

#: Turns of the reaper from one purge of ended groups to the next.
PURGE_EVERY = 100


#: Time between looks for expired reservations and old records.
REAP_S = 5.0


class Follow:
    """Changes of instances in Nova and their consequences for groups.

    :param state: is told which groups changed.
    """

    def __init__(self, conf: cfg.ConfigOpts, state: known.State,
                 counts: metrics.Metrics, turns: periodic.Turns,
                 clock: Callable[[], float]):
        self._conf = conf
        self._state = state
        self._metrics = counts
        self._turns = turns
        self._clock = clock
        self._transitions = transitions.Transitions(state.database, clock)
        self._auditor: auditor.Auditor | None = None
        self._n_turns = 0

    def lead(self) -> None:
        """Do the work for which no notification comes."""
        self._turns.every(REAP_S, 'reap', self._turn)
        # Nova's notifications hold in any process; conclusions from its lists
        # hold only in the leader.
        self._auditor = auditor.start(
            self._conf, self._state.database,
            functools.partial(self.apply, as_leader=True), self._metrics)

    def stop(self) -> None:
        if self._auditor is not None:
            self._auditor.stop()

    def notified(self, event_type: str, payload: Mapping[str, Any],
                 timestamp: Any = None, publisher: Any = None) -> bool:
        """Apply a versioned notification; whether it changed anything.

        :param timestamp: time of the message, by its publisher's clock.
        """
        change = notifications.change_of(event_type, payload, timestamp,
                                         publisher)
        if change is None:
            return False
        self._metrics.notifications.labels(event_type).inc()
        return self.apply(change)

    def apply(self, change: notifications.Change,
              as_leader: bool = False) -> bool:
        changed = self._transitions.apply(change, as_leader)
        if changed is not None:
            self._state.invalidate([changed])
        return changed is not None

    def release(self, instance_uuid: str) -> None:
        """Release the row of a VM that Nova gave up.

        :raises virtco.exception.NotFound: when it was never placed.
        """
        if not self.apply(notifications.Gone(instance_uuid)):
            raise exception.NotFound(what='Placement', id=instance_uuid)

    def reported(self, host: str, _report: object) -> None:
        """Repair effects of lost notifications: a port shows its VM's host.

        Only a VM that no host was known to run: during a migration two hosts
        have its ports, and Nova's notification decides.
        """
        for uuid, is_planned in self._state.live.waiting(host).items():
            if not self._state.has_database():
                return  # All reports would wait.
            try:
                self.apply(notifications.Seen(uuid, host, is_planned))
            except exception.VirtcoException as error:
                LOG.warning('Cannot note that %s runs on %s: %s', uuid, host,
                            error)

    def reap(self) -> None:
        """Drop reservations whose time is over."""
        expired = self._transitions.expire()
        if expired:
            LOG.info('%d reservations expired.', len(expired))
            self._metrics.expired.inc(len(expired))
            self._state.invalidate(expired)

    def _turn(self) -> None:
        """Release expired reservations; purge old groups now and then."""
        self.reap()
        if self._n_turns % PURGE_EVERY == 0:
            before_s = self._clock() - self._conf.controller.keep_retired_s
            self._state.database.retried(
                lambda session: records.purge(session, before_s))
        self._n_turns += 1
