# SPDX-License-Identifier: Apache-2.0

"""Options of the listeners that tell how a process is."""

from typing import Any

from oslo_config import cfg

GROUP = 'monitoring'

OPTS = [
    cfg.HostAddressOpt('host', default='127.0.0.1', help="""
Address on which ``/health`` and ``/metrics`` are answered on ports of their
own.
"""),
    cfg.PortOpt('port', help="""
TCP port of ``virtco-controller`` and ``virtco-api`` for that. When it is set,
the ports of the REST API answer no ``/metrics``, which name hosts and
projects, and in ``/health`` they say no more than whether all is well. Unset:
both are answered, to everybody, where the REST API is. 0 takes a free one and
logs it.
"""),
    cfg.PortOpt('scheduler_port', default=8794, help="""
TCP port of ``virtco-scheduler`` for that; 0 takes a free one and logs it.
"""),
    cfg.PortOpt('distributor_port', default=8795, help="""
TCP port of ``virtco-distributor`` for that; 0 takes a free one and logs it.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[str, list[Any]]:
    return {GROUP: OPTS}
