# SPDX-License-Identifier: Apache-2.0

"""Options of the stream server, to which edge modules and peers connect."""

from oslo_config import cfg

GROUP = 'distributor'

OPTS = [
    cfg.HostAddressOpt('host', help="""
Address to which edge modules, relays (``virtco-distributor``) and the other
processes of the controller connect while this process leads; unset: that of
``[api] host``. The others find it in the database.

With ``[api] auth_strategy = noauth`` and no ``client_ca_file`` anyone who
reaches this address may speak for any hypervisor: keep it on loopback or on a
network of its own. With ``keystone`` and no ``client_ca_file`` each edge
module is known by its Keystone user, see the policy rule
``virtco:edge:host``, and shows a ticket of the REST API.
"""),
    cfg.PortOpt('port', default=8792, help="""
TCP port they connect to; 0 takes a free one, which edge modules learn from the
REST API and the others from the database.
"""),
    cfg.StrOpt('cert_file', default='', help="""
File of this process's certificate chain, in PEM; empty: no TLS. The process
shows it to those who connect to it, and to the leader to which it connects.

Related options:

* ``key_file``, ``ca_file``, ``client_ca_file``
"""),
    cfg.StrOpt('key_file', default='', help="""
File of the certificate's private key; empty: it is in ``cert_file``.
"""),
    cfg.StrOpt('ca_file', default='', help="""
File of the authorities that sign the certificates of stream servers, for the
connection to the leader; empty: those of the system. The leader's certificate
must name its ``host``.
"""),
    cfg.StrOpt('client_ca_file', default='', help="""
File of the authorities that sign the certificates of edge modules, relays and
the controller's other processes. When it is
set, an edge module needs a certificate one of whose DNS names
(subjectAltName) is the ``[edge] host`` for which it speaks.
"""),
    cfg.ListOpt('endpoints', default=[], help="""
Where distributors can be reached, as ``host:port``, for edge modules that ask
the REST API for it. Needed where ``virtco-distributor`` runs as a process of
its own; edge modules begin with any of them and go on to the next. Unset: the
listener of this process.
"""),
    cfg.BoolOpt('endpoints_tls', default=True, help="""
Whether those of ``endpoints`` speak TLS.
"""),
    cfg.IntOpt('max_connections_per_address', default=32, min=1,
               max=1_000_000, help="""
Connections at the same time from one address. More than a few are needed where
edge modules come through a proxy or a translation of addresses.
"""),
    cfg.FloatOpt('heartbeat_s', default=30, min=0.2, max=600, help="""
Time after which an edge module with nothing to report says that it is there,
in seconds; no more than half of ``[scheduler] policy_ttl_s``. After three
times as long a connection is closed.
"""),
]
