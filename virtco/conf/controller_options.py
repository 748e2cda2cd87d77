# SPDX-License-Identifier: Apache-2.0

"""Options of the controller process itself."""

from oslo_config import cfg

GROUP = 'controller'

OPTS = [
    cfg.StrOpt('state_dir', default='/var/lib/virtco', help="""
Directory of the embedded SQLite database.

Related options:

* ``[database] connection``, by default ``virtco.sqlite`` in this directory
"""),
    cfg.FloatOpt('db_timeout_s', default=0.4, min=0.05, max=60, help="""
Longest time, in seconds, that a statement waits for a locked SQLite database
or a free connection before it fails.

Related options:

* ``[placement] deadline_s``, which should be longer
"""),
    cfg.IntOpt('keep_retired_s', default=86400, min=0, help="""
Time for which retired coflows, their placements and events are kept, in
seconds.
"""),
]
