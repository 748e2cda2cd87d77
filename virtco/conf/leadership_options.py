# SPDX-License-Identifier: Apache-2.0

"""Options of the choice of the scheduler that leads."""

from oslo_config import cfg

GROUP = 'leadership'

OPTS = [
    cfg.StrOpt('backend_url', secret=True, help="""
URL of the tooz driver that holds the leader's lock, such as
``etcd3+http://HOST:2379``, ``redis://HOST:6379``,
``mysql://USER:PASSWORD@HOST/NAME`` or
``postgresql://USER:PASSWORD@HOST/NAME``. Default: a lock in the database's
server, or a file next to an SQLite database.

The lock shows immediately that a leader has ended. The database of
``[database] connection`` ensures that there is a single leader and refuses a
deposed one, so a failure of the lock service is harmless.

Related options:

* ``[leadership] lease_s``
"""),
    cfg.FloatOpt('lease_s', default=5.0, min=0.5, max=60, help="""
Time of silence of the leader after which another scheduler takes over, in
seconds; half of it if that scheduler holds the lock. The leader writes a
number to the database six times in this time. It stops publishing when it
could not write for this time, unless none of its peers reaches the database
either.
"""),
]
