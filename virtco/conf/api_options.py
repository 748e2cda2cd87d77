# SPDX-License-Identifier: Apache-2.0

"""Options of the REST API."""

from oslo_config import cfg

GROUP = 'api'

OPTS = [
    cfg.HostAddressOpt('host', default='127.0.0.1', help="""
Address the REST API listens on.

With ``auth_strategy = noauth`` anyone who reaches this address is an
operator: keep it on loopback or on a network of its own.

Related options:

* ``[api] port``
* ``[api] auth_strategy``
"""),
    cfg.PortOpt('port', default=8791, help="""
TCP port the REST API listens on; 0 takes a free one and logs it.
"""),
    cfg.HostAddressOpt('service_host', help="""
Address on which Nova and the edge modules are served when ``service_port`` is
set; unset: that of ``host``.
"""),
    cfg.PortOpt('service_port', help="""
TCP port for Nova and the edge modules. When it is set, ``port`` serves tenants
and operators only: placements, reports, policies, probes and notifications are
not found there. 0 takes a free one and logs it.

Related options:

* ``[virtco] controller_url`` in nova.conf and ``[edge] controller_url``, which
  then name this port
"""),
    cfg.IntOpt('max_connections_per_address', default=1024, min=4, max=65536,
               help="""
Connections at the same time from one address; more are closed at once.
"""),
    cfg.IntOpt('threads', default=64, min=4, max=4096, help="""
Most threads that serve requests, each one at a time. They are started as they
are needed.
"""),
    cfg.StrOpt('auth_strategy', default='noauth',
               choices=[('noauth', 'every caller is an operator'),
                        ('keystone', 'tokens are checked with keystone')],
               help="""
How callers are identified.

With ``keystone`` the rules of ``[oslo_policy] policy_file`` decide: a tenant
sees the coflows of its own project, an operator everything, and the role
``service`` belongs to Nova and the edge modules.

Related options:

* all of ``[keystone_authtoken]``
* ``[oslo_policy] policy_file``
"""),
    cfg.BoolOpt('ui', default=False, help="""
Serve a live page of coflows, hosts and the network at ``/ui``, which shows
each viewer no more than the REST API does. A controller with
``auth_strategy = noauth`` that listens beyond loopback refuses to start with
it.

Related options:

* ``[api] host``
* ``[api] auth_strategy``
"""),
]
