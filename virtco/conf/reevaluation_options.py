# SPDX-License-Identifier: Apache-2.0

"""Options of the re-evaluation of running groups."""

from typing import Any

from oslo_config import cfg

GROUP = 'reevaluation'

OPTS = [
    cfg.FloatOpt('interval_s', default=0, min=0, max=604800, help="""
Time between two looks for moves of running VMs that would pay, in seconds; 0
never looks. ``virtco advice list`` shows what was found.

The scheduler that leads does it, and asks placement what is free on the hosts:
it needs ``[nova] auth_type``.
"""),
    cfg.StrOpt('migrate', default='advice', choices=[
        ('advice', 'propose moves'),
        ('live', 'have Nova migrate the VMs, too')], help="""
What is done about a move that pays.

With ``live`` Nova is told to live-migrate the VM to that host; its scheduler
checks the host. The account of ``[nova] auth_type`` needs the right to.

Related options:

* ``[reevaluation] max_migrations``
"""),
    cfg.IntOpt('max_migrations', default=1, min=1, max=100, help="""
How many migrations may be under way that the re-evaluation began. One that is
not seen to end counts for ten minutes.
"""),
    cfg.FloatOpt('dirty_bps', default=1e8, min=0, help="""
Rate at which a VM writes its memory, in bits per second. A migration copies
the memory at the rate of the link less this one. Where that is not above 0
the VM is not moved.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[str, list[Any]]:
    return {GROUP: OPTS}
