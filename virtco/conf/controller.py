# SPDX-License-Identifier: Apache-2.0

"""Options of the controller process itself."""

from typing import Any

from oslo_config import cfg

GROUP = 'controller'

OPTS = [
    cfg.StrOpt('state_dir', default='/var/lib/virtco', help="""
Directory of the embedded SQLite database.

Related options:

* ``[database] connection``, whose default is ``virtco.sqlite`` in here
"""),
    cfg.FloatOpt('db_timeout_s', default=0.4, min=0.05, max=60, help="""
Longest time, in seconds, that a statement waits for a locked SQLite database
or a free connection before it fails.

Related options:

* ``[placement] deadline_s``, which should be longer
"""),
    cfg.BoolOpt('db_auto_sync', default=True, help="""
Bring the schema up to date at start when the database is SQLite. Other
databases are upgraded by ``virtco-manage db sync`` only.
"""),
    cfg.FloatOpt('flush_interval_s', default=1.0, min=0.05, max=60, help="""
Time between writes of the counted bytes to the database, in seconds.

Losing the last ones does no harm: the counters of the edge modules are
cumulative, so the next report makes up for them.
"""),
    cfg.FloatOpt('reap_interval_s', default=5.0, min=0.1, max=3600, help="""
Time between looks for expired reservations and old records, in seconds.

Related options:

* ``[placement] reservation_ttl_s``
* ``[controller] keep_retired_s``
"""),
    cfg.IntOpt('keep_retired_s', default=86400, min=0, help="""
How long retired coflows, their placements and events are kept, in seconds.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[str, list[Any]]:
    return {GROUP: OPTS}
