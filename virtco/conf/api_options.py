# SPDX-License-Identifier: Apache-2.0

"""Options of the REST API."""

from oslo_config import cfg

GROUP = 'api'

OPTS = [
    cfg.HostAddressOpt('host', default='127.0.0.1', help="""
Address the REST API listens on.

With ``auth_strategy = noauth`` every caller is an operator: use loopback or a
separate network.

Related options:

* ``[api] port``
* ``[api] auth_strategy``
"""),
    cfg.PortOpt('port', default=8791, help="""
TCP port the REST API listens on; 0 takes a free one and logs it.
"""),
    cfg.HostAddressOpt('service_host', help="""
Address for Nova and the edge modules when ``service_port`` is set. Default:
``host``.
"""),
    cfg.PortOpt('service_port', help="""
TCP port for Nova and the edge modules. When it is set, ``port`` serves tenants
and operators only: it answers placements, reports, policies, probes and
notifications with 404. 0 takes a free one and logs it.

Related options:

* ``[virtco] controller_url`` in nova.conf and ``[edge] controller_url``, which
  then name this port
"""),
    cfg.IntOpt('max_connections_per_address', default=1024, min=4, max=65536,
               help="""
Most simultaneous connections from one address. Further ones are closed
immediately.
"""),
    cfg.IntOpt('threads', default=64, min=4, max=4096, help="""
Most threads that serve requests, one request at a time each. They are started
on demand.
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
Serve a live page of coflows, hosts and the network at ``/ui``. It shows a
viewer the same data as the REST API. With ``auth_strategy = noauth`` the
controller refuses to start with this option unless it listens on loopback.

Related options:

* ``[api] host``
* ``[api] auth_strategy``
"""),
]
