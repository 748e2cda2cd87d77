# SPDX-License-Identifier: Apache-2.0

"""Options of the re-evaluation of running groups."""

from oslo_config import cfg

GROUP = 'reevaluation'

OPTS = [
    cfg.FloatOpt('interval_s', default=0, min=0, max=604800, help="""
Time between two looks for moves of running VMs that would pay, in seconds; 0
never looks. ``virtco advice list`` shows what was found.

The scheduler that leads does it, and asks placement what is free on the hosts:
it needs ``[nova] auth_type``.
"""),
    cfg.IntOpt('max_migrations', default=0, min=0, max=100, help="""
How many live migrations may be under way that the re-evaluation began; 0
proposes moves only. One that is not seen to end counts for ten minutes.

Nova is told to live-migrate a VM to the host of a move that pays; its
scheduler checks the host. The account of ``[nova] auth_type`` needs the right
to.
"""),
]
