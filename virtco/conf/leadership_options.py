# SPDX-License-Identifier: Apache-2.0

"""Options of the choice of the scheduler that leads."""

from oslo_config import cfg

GROUP = 'leadership'

OPTS = [
    cfg.StrOpt('backend_url', secret=True, help="""
URL of the tooz driver that holds the leader's lock, such as
``etcd3+http://HOST:2379``, ``redis://HOST:6379``,
``mysql://USER:PASSWORD@HOST/NAME`` or
``postgresql://USER:PASSWORD@HOST/NAME``. Unset: a lock in the database's own
server, and next to the file of an SQLite database.

The lock tells at once that a leader ended. That only one leads, and that one
that was cut off is refused, is settled in ``[database] connection``, so that a
lost lock service does no harm.

Related options:

* ``[leadership] lease_s``
"""),
    cfg.FloatOpt('lease_s', default=5.0, min=0.5, max=60, help="""
After this time of silence another scheduler takes over, in seconds; half of
it is enough for one that holds the lock. The leader writes a number to the
database six times in this time, and stops publishing when it could not write
for as long, unless all its peers have no database either.
"""),
]
