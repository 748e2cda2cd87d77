# SPDX-License-Identifier: Apache-2.0

"""Options of the re-evaluation of running groups."""

from oslo_config import cfg

GROUP = 'reevaluation'

OPTS = [
    cfg.FloatOpt('interval_s', default=0, min=0, max=604800, help="""
Time between two searches for moves of running VMs that would shorten coflows,
in seconds; 0 switches them off. ``virtco advice list`` shows the last result.

The leading scheduler searches, and asks placement for the free resources of
the hosts: it needs ``[nova] auth_type``.
"""),
    cfg.IntOpt('max_migrations', default=0, min=0, max=100, help="""
Most simultaneous live migrations of the re-evaluation; 0 proposes moves only.
A migration whose end is not noticed counts for ten minutes.

Nova's scheduler checks the host of each move. The account of ``[nova]
auth_type`` needs the right to live-migrate servers.
"""),
]
