# SPDX-License-Identifier: Apache-2.0

"""Options of the listeners that tell how a process is."""

from oslo_config import cfg

GROUP = 'monitoring'

OPTS = [
    cfg.HostAddressOpt('host', default='127.0.0.1', help="""
Address on which ``/health`` and ``/metrics`` are answered on ports of their
own.
"""),
    cfg.PortOpt('port', help="""
TCP port for that; 0 takes a free one and logs it. When it is set, the ports of
the REST API answer no ``/metrics``, and in ``/health`` they say no more than
whether all is well. Unset: ``virtco-controller`` and ``virtco-api`` answer
``/health`` to everybody where the REST API is, and ``/metrics`` there with
``[api] auth_strategy = noauth`` only; ``virtco-scheduler`` answers both on
port 8794 and ``virtco-distributor`` on 8795. Processes that share a host and
this option need a configuration file of their own for it.

Related options:

* ``[api] auth_strategy``
"""),
    cfg.BoolOpt('names', default=False, help="""
Whether labels of ``/metrics`` name hosts, switches and projects. Without names
such a metric has one value, of the worst host or project.
"""),
]
