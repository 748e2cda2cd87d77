# SPDX-License-Identifier: Apache-2.0

"""Options of the edge module."""

import socket
from typing import Any

from keystoneauth1 import loading as ks_loading
from oslo_config import cfg

EDGE = 'edge'
PROBE = 'probe'
AUTH = 'controller_auth'

EDGE_OPTS = [
    cfg.StrOpt('host', default=socket.gethostname(),
               sample_default='<the host name>', help="""
Name of this hypervisor as Nova knows it: the ``host`` of its nova-compute.
"""),
    cfg.URIOpt('controller_url', default='http://127.0.0.1:8791',
               schemes=['http', 'https'], help="""
Base URL of the virtco controller, which says where its distributors are. Over
a connection to one of them policies come and reports go, by TLS with the
certificates of ``[controller_auth]`` where it asks for that.

Related options:

* ``[controller_auth] auth_type``
"""),
    cfg.StrOpt('uplink_dev', help="""
Network device towards the other hypervisors: the physical NIC or bond under
the virtual switch. Required. virtco owns its root qdisc.
"""),
    cfg.FloatOpt('link_egress_bps', default=0, min=0, max=1e13, help="""
Rate of the uplink towards the network, in bits per second. 0 takes the speed
the device reports.

HTB shapes to this rate: set it a little below the real one when something
else, such as a provider's policer, limits the link.
"""),
    cfg.FloatOpt('link_ingress_bps', default=0, min=0, max=1e13, help="""
Rate of the uplink from the network, in bits per second. 0 takes
``link_egress_bps``.
"""),
    cfg.IntOpt('wire_overhead_bytes', default=24, min=0, max=1024, help="""
What the wire adds to a frame, in bytes: preamble, checksum and gap of
Ethernet by default. The rates of all classes are rates of the wire. Add 4 for
a VLAN tag that the device inserts. Headers of tunnels are in the packet
already when it is counted. The shortest frame takes 60 bytes more than this; 0
suits a link whose limit counts packets as the kernel does.

Related options:

* ``link_margin``
"""),
    cfg.FloatOpt('link_margin', default=0.02, min=0, max=0.5, help="""
Share of the uplink's speed that is not used, both ways. The kernel counts
``wire_overhead_bytes`` once per super-packet, which the device sends as many
frames: 1.6 % of full frames are not seen. Without the margin the queue forms
in front of a bottleneck that knows no coflows. 0 suits a link whose limit does
not count what the wire adds.

Related options:

* ``wire_overhead_bytes``
* ``link_egress_bps``
"""),
    cfg.BoolOpt('protect_receiver', default=False, help="""
Queue what the uplink receives, so that coflows come before everything else
also where they arrive. Costs the CPU of a second queue and 5 % of the ingress
rate; sees the outermost addresses only, so it is of no use with VXLAN or
Geneve.

Related options:

* ``link_ingress_bps``
* ``[scheduler] protect_receivers`` of the controller, which must be set too
"""),
    cfg.StrOpt('ports_backend', default='static',
               choices=[('static', 'a JSON file that is watched'),
                        ('ovs', "Open vSwitch's database")], help="""
How the edge module learns which device belongs to which VM.

Related options:

* ``ports_file`` (static)
* ``ovsdb_connection`` (ovs)
"""),
    cfg.StrOpt('ports_file', default='/var/lib/virtco/ports.json', help="""
File that lists the VM ports when ``ports_backend`` is ``static``:
``{"ports": [{"vm": "<instance uuid>", "dev": "tap1", "mac": "...",
"ips": ["10.1.0.2"]}]}``. It is read again when it changes; a missing file
means no ports.
"""),
    cfg.StrOpt('ovsdb_connection',
               default='unix:/var/run/openvswitch/db.sock', help="""
Connection to Open vSwitch's database when ``ports_backend`` is ``ovs``.
"""),
    cfg.StrOpt('classifier', default='auto',
               choices=[('auto', 'what fits the virtual switch'),
                        ('nft', 'nftables at ingress of the VM ports'),
                        ('nft-egress', 'nftables at egress of the uplink, '
                                       'for the userspace datapath of Open '
                                       'vSwitch')], help="""
Where packets are put into the class of their coflow.

``auto`` takes ``nft-egress`` when the uplink is in a bridge of Open vSwitch's
userspace datapath, and ``nft`` otherwise. Another one may be chosen at any
time; the next start puts it in the place of the one before.

Related options:

* ``ports_backend``
"""),
    cfg.StrOpt('state_dir', default='/var/lib/virtco', help="""
Directory of the last policy and the counters, which outlive a restart. It
must belong to one edge module alone.
"""),
    cfg.FloatOpt('report_interval_s', default=1.0, min=0.02, max=60, help="""
Time between two reports to the controller, in seconds. The end of a coflow is
noticed that much later on average.
"""),
    cfg.FloatOpt('audit_interval_s', default=30, min=0.1, max=86400, help="""
Time between two comparisons of the kernel with the policy, in seconds. What
somebody else changed is put right then, if it was not announced before.
"""),
    cfg.IntOpt('leaf_min_bytes', default=128 * 1024, min=16 * 1024,
               max=64 * 1024 * 1024, help="""
Least length of the queue of a class, in bytes. A coflow that waits for its
turn keeps so much; what its VMs send beyond it is dropped. Where many flows
share a slow link, the sum of their windows is more than the default.
"""),
    cfg.HostAddressOpt('metrics_address', default='127.0.0.1', help="""
Address the metrics are served on.

Related options:

* ``metrics_port``
"""),
    cfg.PortOpt('metrics_port', default=0, help="""
TCP port of the metrics in Prometheus's text form; 0 serves none.
"""),
    cfg.StrOpt('user', default='', help="""
User the module runs as after it has started one helper process that keeps
CAP_NET_ADMIN. Empty: it keeps the user and the capabilities it was started
with, which must include this one.

Related options:

* ``helper_user``
"""),
    cfg.StrOpt('helper_user', default='', help="""
User of the helper process, better not the module's own: it does for the module
what needs CAP_NET_ADMIN, on the uplink and the VM ports alone. Of its groups
only the first one counts. Empty: the same as ``user``.

Related options:

* ``user``
"""),
]

PROBE_OPTS = [
    cfg.BoolOpt('enabled', default=True, help="""
Answer packet trains of other edge modules, and send those that the controller
asks for. Without them the controller plans with the speed of the links.
"""),
    cfg.StrOpt('address', help="""
IP address on which trains are received: an address of the network that
carries the traffic between VMs, because that is what is measured. Default:
the first IPv4 address of the uplink, else the address from which the
controller is reached.

Related options:

* ``[edge] uplink_dev``
"""),
    cfg.PortOpt('port', default=7472, help="""
TCP and UDP port on which trains are received; 0 takes a free one. Firewalls
must let both through between hypervisors.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(EDGE_OPTS, group=EDGE)
    conf.register_opts(PROBE_OPTS, group=PROBE)
    ks_loading.register_auth_conf_options(conf, AUTH)
    conf.register_opts(_tls_opts(), group=AUTH)


def _tls_opts() -> list[Any]:
    return [opt for opt in ks_loading.get_session_conf_options()
            if opt.dest in ('cafile', 'certfile', 'keyfile', 'insecure')]


def list_opts() -> list[tuple[str, list[Any]]]:
    """Return (group, options) pairs for oslo.config's generator."""
    return [(EDGE, EDGE_OPTS), (PROBE, PROBE_OPTS),
            (AUTH, ks_loading.get_auth_common_conf_options()
             + _tls_opts())]
