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
Base URL of virtco-controller.

Without ``auth_type`` requests carry no credentials, which suits a controller
with ``[api] auth_strategy = noauth``. With it (see the keystoneauth options
of this group) they carry a token of that user, which needs the service role.
"""),
    cfg.IntOpt('timeout_ms', default=800, min=1, help="""
Longest time that one call to the controller may take, in milliseconds, from
name resolution to the last byte of the answer.

A longer call is cancelled: the instance is scheduled as without virtco, and
there are no further calls for ``breaker_reset_s``.

Related options:

* ``request_budget_ms``
* ``breaker_reset_s``
"""),
    cfg.IntOpt('request_budget_ms', default=950, min=1, help="""
Longest time, in milliseconds, that all calls for one API request may take
together; a request for n servers makes n + 1 of them.

When it is used up, the rest of the request is scheduled by the answer for the
first server of the batch, or as without virtco. Raise it for large groups.

Related options:

* ``timeout_ms``: the bound on each call
"""),
    cfg.FloatOpt('breaker_reset_s', default=10.0, min=0.0, help="""
Time without calls after the controller did not answer, in seconds. Then one
call at a time tries again.

Each process of nova-scheduler keeps its own count.
"""),
    cfg.StrOpt('on_bad_hint', default='ignore',
               choices=[
                   ('ignore', 'Schedule the server as if it had no hint; the '
                              'log and ``virtco coflow list`` say why'),
                   ('reject', 'Find no valid host for the request')],
               help="""
Treatment of an invalid hint.

``reject`` needs CoflowFilter among ``[filter_scheduler] enabled_filters``.
"""),
    cfg.BoolOpt('read_metadata', default=True, help="""
Accept the ``virtco:`` keys as server metadata too, not only as scheduler
hints.

Nova does not give the metadata of a server to nova-scheduler. With this option
it reads the API database for servers without a scheduler hint of virtco, by
one indexed query per request. Without it there is no query.
"""),
    cfg.FloatOpt('weight_multiplier', default=100_000.0, min=0.0, help="""
Multiplier of CoflowWeigher, whose weights run from 1 (the planned host) down
to 0 in the controller's order.

It must be much larger than the sum of the other weighers' multipliers times
the number of hosts; else they override the plan. Below 1,000,000, hosts on
which builds have failed are still ranked behind others.

Related options:

* ``[filter_scheduler] build_failure_weight_multiplier``
* ``[filter_scheduler] host_subset_size``: keep it at 1
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of :func:`list_opts`, each in its group."""
    for group, opts in list_opts():
        conf.register_opts(opts, group=group)


def list_opts() -> list[tuple[str, list[Any]]]:
    """List the options for oslo.config's generator."""
    tls = [opt for opt in loading.get_session_conf_options()
           if opt.dest in ('cafile', 'certfile', 'keyfile', 'insecure')]
    return [(GROUP, OPTS + tls + loading.get_auth_common_conf_options())]
