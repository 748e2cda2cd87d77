# SPDX-License-Identifier: Apache-2.0

"""Bounds on what tenants may ask for."""

from typing import Any

from oslo_config import cfg

from virtco import hint_matrix

GROUP = 'limits'

#: The limits of one hint; ``virtco hint check`` goes by the same.
HINT = hint_matrix.Limits()

OPTS = [
    cfg.IntOpt('max_vms_per_group', default=HINT.max_vms, min=1, help="""
Largest number of VMs, which is rows of the matrices, of one group.
"""),
    cfg.IntOpt('max_flows_per_group', default=HINT.max_flows, min=1, help="""
Largest number of flows in all matrices of one group.
"""),
    cfg.IntOpt('max_coflows_per_group', default=HINT.max_coflows,
               min=1, help="""
Largest number of named matrices of one group.
"""),
    cfg.FloatOpt('max_bytes_per_flow', default=HINT.max_bytes_per_flow,
                 min=1, help="""
Largest size of one flow, in bytes.
"""),
    cfg.FloatOpt('max_bytes_per_group', default=HINT.max_bytes, min=1, help="""
Largest size of all flows of one group together, in bytes.
"""),
    cfg.IntOpt('max_text_bytes', default=HINT.max_text_bytes, min=64, help="""
Longest text of one matrix, in bytes. Nova lets no more through.
"""),
    cfg.IntOpt('max_groups_per_project', default=100, min=1, help="""
Largest number of live groups of one project.
"""),
    cfg.IntOpt('max_registered_per_project', default=1000, min=1, help="""
Largest number of matrices one project keeps registered.
"""),
    cfg.IntOpt('max_flows_per_project', default=200_000, min=1, help="""
Largest number of flows in all live groups of one project.
"""),
    cfg.FloatOpt('max_bytes_per_project', default=1e18, min=1, help="""
Largest size of all live groups of one project together, in bytes.
"""),
    cfg.FloatOpt('requests_per_s', default=50.0, min=0, help="""
Requests per second that one project's users may send to one API process in the
long run; 0: any number. One too many is answered with 429 and ``Retry-After``.
The roles ``admin`` and ``service`` are not counted, and nobody is where
``[api] auth_strategy`` is ``noauth``.

Related options:

* ``requests_at_once``
"""),
    cfg.IntOpt('requests_at_once', default=200, min=1, help="""
Requests that one project's users may send at once after a silence.
"""),
    cfg.IntOpt('max_events_per_project', default=1000, min=10, help="""
Number of events kept for one project; the oldest are dropped.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[str, list[Any]]:
    return {GROUP: OPTS}
