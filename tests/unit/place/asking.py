# SPDX-License-Identifier: Apache-2.0

"""Questions of Nova's, and a placer over a database in memory."""

import contextlib
import functools
import json
import threading

import msgspec

from tests.unit import stored
from virtco import metrics
from virtco.db import session as db_session
from virtco.model import booking
from virtco.objects import settings
from virtco.place import deadline as deadlines
from virtco.place import decisions
from virtco.place import membership
from virtco.place import placer
from virtco.state import live_state
from virtco.wire import placement as wire

#: Rows and columns differ, and so do all sizes.
MATRIX = [[0, 100e9, 20e9], [0, 0, 3e9], [0, 0, 0]]
#: What each VM needs and each host has, unless a test says otherwise.
FLAVOR, FREE = (1, 512, 3), (2, 4096, 90)
NOW_S = 1000.0


def amounts(values):
    return dict(zip(booking.RESOURCES, values, strict=True))


def request(number=0, matrix=MATRIX, hosts=('h0', 'h1', 'h2'), hints=None,
            flavor=FLAVOR, **values):
    """:param hosts: names, or what is free by name."""
    offers = hosts if isinstance(hosts, dict) else dict.fromkeys(hosts, FREE)
    return msgspec.convert({
        'project_id': 'p', 'instance_uuid': f'vm-{number}',
        'launch_index': number, 'num_instances': 3, 'reservation_id': 'r',
        'display_name': f'v{number}', 'flavor': amounts(flavor),
        'hints': {'virtco:coflow': 'a'} | (
            {'virtco:tm': json.dumps(matrix)} if matrix else {})
        | (hints or {}),
        'hosts': [{'host': host, 'free': amounts(free)}
                  for host, free in offers.items()]} | values,
        wire.Placement)


_defaults = functools.cache(stored.conf)
_template = functools.cache(stored.database)


def _copy():
    """Return a database as new, faster than its tables are made."""
    found = db_session.Database('sqlite://')
    with (contextlib.closing(_template().engine.raw_connection()) as source,
          contextlib.closing(found.engine.raw_connection()) as target):
        source.driver_connection.backup(target.driver_connection)
    return found


def forgetting(live, host):
    """Let another thread forget a host as soon as it was met and the lock is
    free.
    """
    met, threads = live.meet, []

    def meet(hosts, now_s):
        met(hosts, now_s)
        threads.append(threading.Thread(target=live.forget_hosts,
                                        args=({host},)))
        threads[-1].start()
        threads[-1].join(0.1)

    live.meet = meet
    return threads


class Asking:
    """Everything that answers, its clock and its database."""

    def __init__(self, database=None, **conf):
        self.now_s = NOW_S
        self.conf = stored.conf(**conf) if conf else _defaults()
        self.database = database or _copy()
        self.state = live_state.LiveState()
        self.settings = settings.Settings(self.conf, self.database)
        self.counts = metrics.Metrics()
        self.pace = deadlines.Pace()
        self.decisions = decisions.Decisions(self.database)
        self.reader = membership.Reader(self.conf, self.clock)
        self.placer = placer.Placer(
            self.conf, stored.state(self.database, self.state), self.settings,
            self.counts, self.pace, self.decisions, self.clock)

    def another(self):
        """Return a process beside it, which remembers nothing."""
        return Asking(self.database)

    def clock(self):
        return self.now_s

    def place(self, *args, deadline=None, **values):
        return self.placer.place(request(*args, **values),
                                 deadline or deadlines.Deadline(60))

    def rows(self, model):
        """What is stored of a model, as dictionaries of its columns."""
        with self.database.reader() as session:
            return [{column.key: getattr(row, column.key)
                     for column in model.__table__.columns}
                    for row in session.query(model)]
