# SPDX-License-Identifier: Apache-2.0

"""Options of the edge module."""

import socket
from typing import Any

from keystoneauth1 import loading as ks_loading
from oslo_config import cfg
from oslo_config import types

EDGE = 'edge'
PROBE = 'probe'
AUTH = 'controller_auth'

EDGE_OPTS = [
    cfg.StrOpt('host', default=socket.gethostname(),
               sample_default='<the host name>', help="""
Name of this hypervisor in Nova: the ``host`` of its nova-compute.
"""),
    cfg.URIOpt('controller_url', default='http://127.0.0.1:8791',
               schemes=['http', 'https'], help="""
Base URL of the virtco controller, from which the edge module gets the
addresses of the distributors. Of a name with several addresses the first that
answers is used. It connects to one of the distributors for policies and
reports, by TLS with the certificates of ``[controller_auth]`` if the
distributor requires it.

Related options:

* ``[controller_auth] auth_type``
"""),
    cfg.StrOpt('uplink_dev', help="""
Network device towards the other hypervisors: the physical NIC or bond under
the virtual switch. Required. virtco owns its root qdisc, or a class in that
of OVN or Open vSwitch.
"""),
    cfg.BoolOpt('set_vf_rates', default=False, help="""
Whether virtco sets the rates of virtual functions (SR-IOV) of cards that are
not in switchdev mode: those whose device is ``uplink_dev`` or one of
``further_uplinks``, not those of a bond's members.

The rates of all virtual functions of these devices are virtco's then: those
that another program set, such as Neutron's SR-IOV agent, are taken away. A
function is known by its Ethernet address, which ``ports_file`` has.

Related options:

* ``ports_backend``, which must be ``static``
"""),
    cfg.Opt('further_uplinks', default={}, type=types.Dict(
        types.Float(min=0, max=1e13)), help="""
Other devices towards hypervisors, by which some networks of this host send:
``eth2:25e9,eth3:0``. Each has the rate of its link in bits per second, 0 uses
the speed that the device reports.

Each device has a tree of its own, in which every coflow has the same share as
on ``uplink_dev``. The controller knows and plans with ``uplink_dev`` alone.
Bytes of coflows are counted on all devices.

Related options:

* ``uplink_dev``
* ``link_margin``
"""),
    cfg.FloatOpt('link_egress_bps', default=0, min=0, max=1e13, help="""
Rate of the uplink towards the network, in bits per second. 0 uses the speed
that the device reports.

HTB shapes to this rate. Set it slightly below the real rate if another limit
applies to the link, such as a provider's policer.
"""),
    cfg.FloatOpt('link_ingress_bps', default=0, min=0, max=1e13, help="""
Rate of the uplink from the network, in bits per second. 0 uses
``link_egress_bps``.
"""),
    cfg.IntOpt('wire_overhead_bytes', default=24, min=0, max=1024, help="""
Bytes that the wire adds to a frame, by default preamble, checksum and gap of
Ethernet. The rates of all classes are rates on the wire. Add 4 for a VLAN tag
that the device inserts. Headers of tunnels are part of the counted packet. The
shortest frame takes 60 bytes more than this. Use 0 for a link whose limit
counts packets as the kernel does.

Related options:

* ``link_margin``
"""),
    cfg.FloatOpt('link_margin', default=0.02, min=0, max=0.5, help="""
Share of the uplink's speed that is left unused, in both directions. The kernel
counts ``wire_overhead_bytes`` once per super-packet, which the device sends as
many frames, so it misses 1.6 % of full frames. Without the margin the queue
would form at the bottleneck, where coflows have no classes. Use 0 for a link
whose limit does not count the bytes that the wire adds.

Related options:

* ``wire_overhead_bytes``
* ``link_egress_bps``
"""),
    cfg.BoolOpt('protect_receiver', default=False, help="""
Queue received packets of the uplink, so that coflows are served first at the
receiver, too. This costs the CPU time of a second queue and 5 % of the ingress
rate. It uses the outermost addresses only, so it does not work with VXLAN or
Geneve.

Related options:

* ``link_ingress_bps``
* ``[scheduler] protect_receivers`` of the controller, which must be set too
"""),
    cfg.StrOpt('ports_backend', default='static',
               choices=[('static', 'a JSON file that is watched'),
                        ('ovs', "Open vSwitch's database")], help="""
Source of the devices of the VMs.

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
    cfg.StrOpt('state_dir', default='/var/lib/virtco', help="""
Directory of the last policy and the counters, which are kept over a restart.
Each edge module needs a directory of its own.
"""),
    cfg.FloatOpt('report_interval_s', default=1.0, min=0.02, max=60, help="""
Longest time between two reports to the controller, in seconds. Five times as
often, but not more than ten times per second, the edge module looks whether a
class of a coflow began or ceased to send, and then reports at once.
"""),
    cfg.FloatOpt('audit_interval_s', default=30, min=0.1, max=86400, help="""
Time between two comparisons of the kernel with the policy, in seconds. It
restores changes of other programs that the kernel did not announce.
"""),
    cfg.IntOpt('leaf_min_bytes', default=128 * 1024, min=16 * 1024,
               max=64 * 1024 * 1024, help="""
Least length of the queue of a class, in bytes. A waiting coflow keeps this
number of bytes; further packets of its VMs are dropped. Where many flows share
a slow link, the sum of their windows exceeds the default.
"""),
    cfg.HostAddressOpt('metrics_address', default='127.0.0.1', help="""
Address on which the metrics are served.

Related options:

* ``metrics_port``
"""),
    cfg.PortOpt('metrics_port', default=0, help="""
TCP port of the metrics in Prometheus's text format; 0 switches them off.
"""),
    cfg.StrOpt('user', default='', help="""
User of the module after it has started a helper process that keeps
CAP_NET_ADMIN and CAP_BPF. Empty: the module keeps its user and its
capabilities, which must include CAP_NET_ADMIN, and CAP_BPF for classification
by BPF programs.

Related options:

* ``helper_user``
"""),
    cfg.StrOpt('helper_user', default='', help="""
User of the helper process, preferably another one than ``user``. The helper
carries out the operations that need capabilities, on the uplink and the VM
ports only. It keeps only its primary group, and owns the directory
/sys/fs/bpf/virtco. Empty: the same as ``user``.

Related options:

* ``user``
"""),
]

PROBE_OPTS = [
    cfg.BoolOpt('enabled', default=True, help="""
Receive packet trains of other edge modules, and send those that the controller
orders. Without them the controller plans with the speed of the links.
"""),
    cfg.StrOpt('address', help="""
IP address on which trains are received: an address of the network that carries
the traffic between VMs, which the trains measure. Default: the first IPv4
address of the uplink, else the source address of the default route.

Related options:

* ``[edge] uplink_dev``
"""),
    cfg.PortOpt('port', default=7472, help="""
TCP and UDP port on which trains are received; 0 chooses a free port. Firewalls
between hypervisors must pass both.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of :func:`list_opts`, each in its group."""
    for group, options in list_opts():
        conf.register_opts(options, group=group)


def list_opts() -> list[tuple[str, list[Any]]]:
    """Return (group, options) pairs for oslo.config's generator."""
    tls = [opt for opt in ks_loading.get_session_conf_options()
           if opt.dest in ('cafile', 'certfile', 'keyfile', 'insecure')]
    return [(EDGE, EDGE_OPTS), (PROBE, PROBE_OPTS),
            (AUTH, ks_loading.get_auth_common_conf_options() + tls)]
