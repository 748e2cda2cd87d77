# SPDX-License-Identifier: Apache-2.0

"""Options of the listeners that tell how a process is."""

from oslo_config import cfg

GROUP = 'monitoring'

OPTS = [
    cfg.HostAddressOpt('host', default='127.0.0.1', help="""
Address of the separate port for ``/health`` and ``/metrics``.
"""),
    cfg.PortOpt('port', help="""
TCP port for ``/health`` and ``/metrics``; 0 chooses a free port and logs it.
When it is set, the ports of the REST API do not serve ``/metrics``, and their
``/health`` has the status and codes only. Default: ``virtco-controller`` and
``virtco-api`` serve ``/health`` on the port of the REST API without a token,
and ``/metrics`` there with ``[api] auth_strategy = noauth`` only;
``virtco-scheduler`` answers both on port 8794 and ``virtco-distributor`` on
8795. Processes that share a host and this option need a configuration file of
their own for it.

Related options:

* ``[api] auth_strategy``
"""),
    cfg.BoolOpt('names', default=False, help="""
Whether labels of ``/metrics`` name hosts, switches and projects. Without names
such a metric has one value, that of the worst host, switch or project.
"""),
]
