# SPDX-License-Identifier: Apache-2.0

"""A distributor in a process of its own."""

from typing import Any

from oslo_config import cfg

from virtco import exception
from virtco import metrics
from virtco.db import leader
from virtco.db import session as db_session
from virtco.distribute import feed as feeds
from virtco.distribute import room
from virtco.distribute import server


class Apart:
    """Tells edge modules what the leading scheduler says, and the other way.
    """

    def __init__(self, conf: cfg.ConfigOpts):
        self.metrics = metrics.Metrics()
        self._conf = conf
        self._database = db_session.Database.from_conf(conf)
        self._feed = feeds.Feed(
            conf, self._database, lambda hosts: self._server.published(hosts),
            lambda *train: self._server.hand_out(*train),
            lambda: self._server.last_reports().items())
        self._server: server.Distributor

    def start(self) -> None:
        """:raises virtco.exception.ConfigInvalid: when it cannot listen."""
        found = room.open_server(self._conf, self._doors(), self.metrics)
        if found is None:
            raise exception.ConfigInvalid(
                why='nobody could connect, see the line before')
        self._server = found
        self._feed.start()
        self._server.start()

    def stop(self) -> None:
        self._server.stop()
        self._feed.stop()
        self._database.dispose()

    def _doors(self) -> server.Doors:
        feed = self._feed
        return server.Doors(
            epoch=lambda: feed.epoch, policy=feed.policy, came=feed.follow,
            left=feed.leave, n_hosts=lambda: feed.n_hosts,
            report=feed.report, heard=feed.heard,
            measured=feed.measured,
            trains=lambda hosts: {})

    def health(self) -> tuple[bool, dict[str, Any]]:
        """It serves on while nobody leads."""
        parts = {'distributor': self._server.is_alive(),
                 'feed': self._feed.is_alive(),
                 'database': self._has_database()}
        return all(parts.values()), {
            'status': 'ok' if all(parts.values()) else 'failing',
            'parts': parts, 'hosts': self._feed.n_hosts,
            'leader': {'epoch': self._feed.epoch, 'here': False,
                       'reached': self._feed.is_connected}}

    def _has_database(self) -> bool:
        try:
            with self._database.reader() as session:
                leader.current(session)
            return True
        except exception.VirtcoException:
            return False

    def gauge(self) -> None:
        """All is counted as it happens."""
