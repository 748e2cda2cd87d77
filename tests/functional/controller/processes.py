# SPDX-License-Identifier: Apache-2.0

"""Several processes over one database, and an edge module's connection."""

import contextlib
import pathlib
import signal
import sqlite3

from tests import patience
from tests.functional.controller import harness
from tests.functional.controller import stream

MATRIX = '[[0, 0, 1e9, 1e9], [0, 0, 1e9, 1e9], [0, 0, 0, 0], [0, 0, 0, 0]]'


LEASE_S = 3
#: Of tests in which a process that leads may stand still for seconds.
LONG_LEASE_S = 6
Edge = stream.Stream


class Cloud:
    """Processes with one database.

    :param connection: of the database; None: a new SQLite database.
    :param backend_url: of the lock; None: where the database is.
    """

    def __init__(self, home, connection=None, backend_url=None,
                 lease_s=LEASE_S):
        self._home = home
        self._database = {'connection': connection or f'sqlite:///{home}/db'}
        self._leadership = {'lease_s': lease_s}
        if backend_url is not None:
            self._leadership['backend_url'] = backend_url
        self._started = []

    def start(self, program, name=None, wait=True, constants=None,
              **options):
        home = self._home / (name or program)
        home.mkdir(exist_ok=True)
        found = harness.ControllerProcess(home, {
            'database': self._database, 'leadership': self._leadership,
            **({} if program in ('controller', 'api')
               else {'monitoring': {'port': 0}}), **options},
            program=program, constants=constants)
        self._started.append(found)
        return found.start(wait)

    def halt(self, process):
        """Let it stand still, but not while it writes: nobody else can write
        to an SQLite database then.
        """
        def halted():
            process.process.send_signal(signal.SIGSTOP)
            patience.wait_for(lambda: _stands_still(process.process.pid),
                              'all threads to stand still')
            with contextlib.closing(sqlite3.connect(
                    self._home / 'db', timeout=0.2)) as connection:
                try:
                    connection.execute('BEGIN IMMEDIATE')
                    return True
                except sqlite3.OperationalError:
                    process.process.send_signal(signal.SIGCONT)
        patience.wait_for(halted, 'a moment without a write')

    def beats(self):
        """Number of times the leader wrote its beat."""
        with contextlib.closing(sqlite3.connect(self._home / 'db')) as found:
            return found.execute('SELECT beat FROM leader').fetchone()[0]

    def locked(self):
        """A connection that keeps everybody from writing until it is closed.
        """
        found = sqlite3.connect(self._home / 'db', timeout=60,
                                isolation_level=None)
        found.execute('BEGIN IMMEDIATE')
        return found

    def stop(self):
        for one in self._started:
            with contextlib.suppress(ProcessLookupError):
                one.process.send_signal(signal.SIGCONT)
            one.stop(signal.SIGKILL)


def _stands_still(pid):
    """Whether no thread runs any more; a signal takes a moment to stop all."""
    return all(stat.read_text().rpartition(')')[2].split()[0] == 'T'
               for stat in pathlib.Path(f'/proc/{pid}/task').glob('*/stat'))


def leader_of(process):
    return process.call('GET', '/health', status=None).get('leader')


def wait_leader(process, epoch):
    """Seconds until this process leads with that epoch or a later one."""
    watch = patience.Stopwatch()
    patience.wait_for(
        lambda: (found := leader_of(process)) and found['here']
        and found['epoch'] >= epoch, f'epoch {epoch}', log=process.log)
    return watch.seconds()


def edge_port(process):
    return int(process.find_in_log(r'may connect to port (\d+)'))
