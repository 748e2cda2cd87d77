# SPDX-License-Identifier: Apache-2.0

"""Options of the stream server, to which edge modules and peers connect."""

import urllib.parse

from oslo_config import cfg
from oslo_config import types

GROUP = 'distributor'


class _Address(types.String):
    """A ``host:port``, whose port may be left out."""

    def __call__(self, text: str) -> str:
        end = urllib.parse.urlsplit(f'//{text}')
        if not end.hostname or end.port == 0 or end.netloc != text:
            raise ValueError(f'expected host:port, got {text!r}')
        return text


OPTS = [
    cfg.HostAddressOpt('host', help="""
Address to which edge modules, relays (``virtco-distributor``) and the other
processes of the controller connect while this process is the leader. Default:
``[api] host``. The other processes find the address in the database.

With ``[api] auth_strategy = noauth`` and no ``client_ca_file`` every program
that reaches this address can speak for any hypervisor: use loopback or a
separate network. With ``keystone`` and no ``client_ca_file`` an edge module is
identified by its Keystone user (policy rule ``virtco:edge:host``) and shows a
ticket of the REST API.
"""),
    cfg.PortOpt('port', default=8792, help="""
TCP port of these connections. 0 chooses a free port, which edge modules learn
from the REST API and the other processes from the database.
"""),
    cfg.StrOpt('cert_file', default='', help="""
File of this process's certificate chain, in PEM. Empty: no TLS. The process
shows it to its peers, as server and as client of the leader.

Related options:

* ``key_file``, ``ca_file``, ``client_ca_file``
"""),
    cfg.StrOpt('key_file', default='', help="""
File of the certificate's private key. Empty: the key is in ``cert_file``.
"""),
    cfg.StrOpt('ca_file', default='', help="""
File of the authorities that sign the certificates of stream servers, for the
connection to the leader. Empty: the authorities of the system. The leader's
certificate must name its ``host``.
"""),
    cfg.StrOpt('client_ca_file', default='', help="""
File of the authorities that sign the certificates of edge modules, relays and
the controller's other processes. When it is set, an edge module needs a
certificate with its ``[edge] host`` as a DNS name (subjectAltName).
"""),
    cfg.ListOpt('endpoints', default=[], item_type=_Address(), help="""
Addresses of relays (``virtco-distributor``), as ``host:port``, which the REST
API gives to edge modules. An edge module begins with any of them, tries the
next one after a failure, and the process that leads when none is there.
"""),
    cfg.BoolOpt('endpoints_tls', default=True, help="""
Whether the relays of ``endpoints`` use TLS.
"""),
    cfg.IntOpt('max_connections_per_address', default=32, min=1,
               max=1_000_000, help="""
Most simultaneous connections from one address; four times as many may begin
at once, and a quarter as many a second in the long run. Raise it where edge
modules connect through a proxy or address translation.
"""),
    cfg.FloatOpt('heartbeat_s', default=30, min=0.2, max=600, help="""
Time after which an edge module with nothing to report sends a heartbeat, in
seconds; at most half of ``[scheduler] policy_ttl_s``. A connection without a
message for three times as long is closed.
"""),
]
