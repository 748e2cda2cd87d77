# SPDX-License-Identifier: Apache-2.0

"""Policies that another process computed, as the database has them."""

from collections.abc import Callable
import json
import logging
import threading
import time

from virtco import exception
from virtco.db import leader
from virtco.db import session as db_session
from virtco.wire import edge_policy

LOG = logging.getLogger(__name__)

FRESH_S = 0.25


class Stored:
    """What was read stays for a moment, and while the database is away."""

    def __init__(self, database: db_session.Database,
                 clock: Callable[[], float] = time.monotonic):
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._read_s = -FRESH_S
        self._policies: dict[str, edge_policy.EdgePolicy] = {}

    def get(self, host: str) -> edge_policy.EdgePolicy | None:
        return self.all().get(host)

    def all(self) -> dict[str, edge_policy.EdgePolicy]:
        with self._lock:
            if self._clock() - self._read_s >= FRESH_S:
                try:
                    self._read()
                except exception.VirtcoException as error:
                    LOG.warning('The newest policies cannot be read: %s',
                                error)
                self._read_s = self._clock()
            return self._policies

    def _read(self) -> None:
        with self._database.reader() as session:
            now = leader.generations(session)
            changed = [host for host, generation in now.items()
                       if host not in self._policies
                       or self._policies[host].generation != generation]
            found = {one.host: edge_policy.EdgePolicy.from_dict(
                json.loads(one.document))
                for one in leader.policies(session, changed)}
        self._policies = {host: policy for host, policy in
                          (self._policies | found).items() if host in now}
