# SPDX-License-Identifier: Apache-2.0

"""Options of the choice of the scheduler that leads."""

from typing import Any

from oslo_config import cfg

GROUP = 'leadership'

OPTS = [
    cfg.StrOpt('backend_url', secret=True, help="""
URL of the tooz driver that holds the leader's lock, such as
``etcd3+http://HOST:2379``, ``redis://HOST:6379``,
``mysql://USER:PASSWORD@HOST/NAME`` or
``postgresql://USER:PASSWORD@HOST/NAME``. Unset: a lock in the database's own
server, and next to the file of an SQLite database.

The lock tells at once that a leader ended. That only one leads, and that one
that was cut off is refused, is settled in ``[database] connection``, so that a
lost lock service does no harm.

Related options:

* ``[leadership] lease_s``
"""),
    cfg.FloatOpt('lease_s', default=3.0, min=0.5, max=60, help="""
After this time of silence another scheduler takes over, in seconds; half of
it is enough for one that holds the lock. The leader writes a number to the
database six times in this time.
"""),
    cfg.HostAddressOpt('host', help="""
Address under which the scheduler's peers reach it, and on which it listens for
them: ``virtco-api``, ``virtco-distributor``, and controllers that stand by.
Unset: that of ``[api] host``.

Whoever reaches it may speak for every hypervisor, unless ``ca_file`` is set:
keep it on loopback or on a network of its own.
"""),
    cfg.PortOpt('port', default=0, help="""
TCP port on which the scheduler listens for its peers, which learn it from the
database; 0 takes a free one.
"""),
    cfg.StrOpt('cert_file', default='', help="""
File of this process's certificate chain, in PEM, for connections between
virtco's processes; empty: no TLS.

Related options:

* ``key_file``, ``ca_file``
"""),
    cfg.StrOpt('key_file', default='', help="""
File of the certificate's private key; empty: it is in ``cert_file``.
"""),
    cfg.StrOpt('ca_file', default='', help="""
File of the authorities that sign the certificates of virtco's processes. It
must be an authority that signs nothing else: whoever has such a certificate
may speak for every hypervisor.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[str, list[Any]]:
    return {GROUP: OPTS}
