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

"""The leader's lock, in whatever tooz has a driver for."""

import logging
import os
import pathlib
import socket
import sys
from typing import Any
import urllib.parse
import uuid

from oslo_config import cfg
import sqlalchemy as sa

from virtco.db import session as db_session
from virtco import exception

LOG = logging.getLogger(__name__)

NAME = b'virtco-scheduler'
#: Drivers of tooz by SQLAlchemy's name of a database.
_OF_DATABASE = {'mysql': 'mysql', 'mariadb': 'mysql',
                'postgresql': 'postgresql'}
#: Whose locks expire; see virtco.conf.leadership.
_EXPIRING = ('etcd3', 'redis')


def url_of(conf: cfg.ConfigOpts) -> str:
    """``[leadership] backend_url``, or a lock where the database is."""
    if conf.leadership.backend_url:
        return str(conf.leadership.backend_url)
    url = sa.make_url(db_session.default_connection(conf))
    backend = url.get_backend_name()
    if backend in _OF_DATABASE:
        return url.set(drivername=_OF_DATABASE[backend], query={}
                       ).render_as_string(hide_password=False)
    path = pathlib.Path(url.database or '').absolute()
    path = path.with_name(f'leader-of-{path.name}')
    return f'file://{urllib.parse.quote(str(path))}'


class Lock:
    """Nothing here raises, for nothing depends on it: without the lock service
    the leader goes on, and its successor only takes longer.
    """

    def __init__(self, url: str, lease_s: float):
        self._url = _with_lease(url, lease_s)
        self._shown = urllib.parse.urlsplit(url).scheme
        self.is_file = self._shown == 'file'
        self._coordinator: Any | None = None
        self._lock: Any | None = None
        self._is_away = False

    def is_held(self) -> bool:
        return self._lock is not None and bool(self._lock.acquired)

    def hold(self) -> bool:
        """Get the lock or keep it, without waiting; whether it is held."""
        try:
            self._connect()
            assert self._coordinator is not None
            assert self._lock is not None
            if self._lock.acquired:
                self._keep()
            else:
                self._lock.acquire(blocking=False)
            self._is_away = False
        except exception.Invalid:
            raise
        except Exception as error:
            # Each driver has exceptions of its own, besides tooz's.
            if not self._is_away:
                LOG.warning('The lock service %s does not work: %s',
                            self._shown, error)
            self._is_away = True
            self._forget()
        return self.is_held()

    def _connect(self) -> None:
        if self._lock is not None:
            return
        # Nothing here uses it, and tooz's libraries load it if it is there.
        sys.modules.setdefault('eventlet', None)  # type: ignore[arg-type]
        import tooz
        from tooz import coordination
        try:
            self._coordinator = coordination.get_coordinator(
                self._url, f'{socket.gethostname()}-{uuid.uuid4()}'.encode())
        except (tooz.ToozError, RuntimeError, ImportError) as error:
            raise exception.Invalid(
                field='[leadership] backend_url', value=self._shown,
                limit='a driver of tooz that is installed') from error
        self._coordinator.start()
        self._lock = self._coordinator.get_lock(NAME)

    def _keep(self) -> None:
        """Tell the service that we are there."""
        assert self._coordinator is not None
        if self._shown.startswith(_EXPIRING):
            self._coordinator.heartbeat()
        connection = getattr(self._lock, '_conn', None)
        if connection is not None and hasattr(connection, 'ping'):
            # MySQL ends connections, and with them locks, that are silent.
            connection.ping(reconnect=False)

    def _forget(self) -> None:
        lock, self._lock = self._lock, None
        coordinator, self._coordinator = self._coordinator, None
        for end in (getattr(lock, 'release', None),
                    getattr(coordinator, 'stop', None)):
            try:
                if end is not None:
                    end()
            except Exception as error:
                LOG.debug('Of the lock service: %s', error)

    def close(self) -> None:
        self._forget()


def _with_lease(url: str, lease_s: float) -> str:
    """Those locks that expire do so in time."""
    if not url.startswith(_EXPIRING):
        return url
    parts = urllib.parse.urlsplit(url)
    given = dict(urllib.parse.parse_qsl(parts.query))
    lease = str(max(1, round(lease_s)))
    options = {'lock_timeout': lease, 'membership_timeout': lease,
               'timeout': lease} | given
    return parts._replace(query=urllib.parse.urlencode(options)).geturl()


def name_of_process() -> str:
    return f'{socket.gethostname()}:{os.getpid()}'
