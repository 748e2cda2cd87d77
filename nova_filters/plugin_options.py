# SPDX-License-Identifier: Apache-2.0

"""Options of the Nova plug-ins: group ``[virtco]`` of nova.conf.

Nothing is registered at import: the plug-ins call :func:`register_opts` when
Nova makes them.
"""

from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg

GROUP = 'virtco'

OPTS = [
    cfg.URIOpt('controller_url',
               default='http://127.0.0.1:8791',
               schemes=['http', 'https'],
               help="""
Where virtco-controller listens.

Without ``auth_type`` requests carry no credentials, which suits a controller
with ``[api] auth_strategy = noauth``. With it (see the keystoneauth options
of this group) they carry a token of that user, which needs the service role.
"""),
    cfg.IntOpt('timeout_ms', default=800, min=1, help="""
Longest time that one call to the controller may take, in milliseconds, from
name resolution to the last byte of the answer.

A call that takes longer is given up: the instance is scheduled as if virtco
were not there, and further calls are skipped for ``breaker_reset_s``.

Related options:

* ``request_budget_ms``
* ``breaker_reset_s``
"""),
    cfg.IntOpt('request_budget_ms', default=950, min=1, help="""
Longest time, in milliseconds, that all calls for one API request may take
together; a request for n servers makes n + 1 of them.

When it is used up, the rest of the request is scheduled as if virtco were
not there. Raise it where large groups are worth waiting for.

Related options:

* ``timeout_ms``: the bound on each call
"""),
    cfg.FloatOpt('breaker_reset_s', default=10.0, min=0.0, help="""
Time in seconds for which the controller is left alone after it did not
answer. Then one call at a time tries again.

Each process of nova-scheduler keeps its own count.
"""),
    cfg.StrOpt('on_bad_hint', default='ignore',
               choices=[
                   ('ignore', 'Schedule the server as if it had no hint; the '
                              'log and ``virtco coflow list`` say why'),
                   ('reject', 'Find no valid host for the request')],
               help="""
What to do with a hint that cannot be read.

``reject`` needs CoflowFilter among ``[filter_scheduler] enabled_filters``.
"""),
    cfg.BoolOpt('read_metadata', default=True, help="""
Accept the ``virtco:`` keys as server metadata too, not only as scheduler
hints.

nova-scheduler is not given a server's metadata. With this option it asks the
API database for servers that carry no scheduler hint of virtco: one indexed
query per request. Without it such servers cost nothing at all.
"""),
    cfg.FloatOpt('weight_multiplier', default=100_000.0, min=0.0, help="""
Multiplier of CoflowWeigher, whose weights run from 1 (the planned host) down
to 0 in the controller's order.

It has to be large against the sum of the other weighers' multipliers times
the number of hosts, or they override the plan. Below 1,000,000 hosts on
which builds have failed lose against others all the same.

Related options:

* ``[filter_scheduler] build_failure_weight_multiplier``
* ``[filter_scheduler] host_subset_size``: keep it at 1
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    for group, opts in list_opts():
        conf.register_opts(opts, group=group)


def list_opts() -> list[tuple[str, list[Any]]]:
    """List the options for oslo.config's generator."""
    tls = [opt for opt in loading.get_session_conf_options()
           if opt.dest in ('cafile', 'certfile', 'keyfile', 'insecure')]
    return [(GROUP, OPTS + tls + loading.get_auth_common_conf_options())]
