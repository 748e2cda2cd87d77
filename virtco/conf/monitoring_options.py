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
the REST API answer no ``/metrics``, which name hosts and projects, and in
``/health`` they say no more than whether all is well. Unset:
``virtco-controller`` and ``virtco-api`` answer both, to everybody, where the
REST API is, ``virtco-scheduler`` on port 8794 and ``virtco-distributor`` on
8795. Processes that share a host and this option need a configuration file of
their own for it.
"""),
]
