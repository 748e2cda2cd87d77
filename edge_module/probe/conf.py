# SPDX-License-Identifier: Apache-2.0

"""Options of the packet trains, ``[probe]`` of the edge module."""

from oslo_config import cfg

GROUP = 'probe'

OPTS: list[cfg.Opt] = [
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
    cfg.BoolOpt('bypass_classes', default=True, help="""
Send trains past the classes of the uplink's HTB (as direct packets), so that
they see what the link can do and not what the policy allows. Needs
CAP_NET_ADMIN; without it trains are sent in the default class, which can
borrow as much as the link class allows when the link is idle.
"""),
    cfg.FloatOpt('timeout_s', default=5.0, min=0.2, max=60.0, help="""
Time after which a train is given up, in seconds, at both ends.

Related options:

* ``[probe] timeout_s`` of the controller, which should not be shorter
"""),
    cfg.FloatOpt('max_sending_s', default=2.5, min=0.1, max=30.0, help="""
No new burst of a train begins after this time, in seconds. Slow paths get
fewer bursts.
"""),
    cfg.IntOpt('max_bytes', default=16 * 2 ** 20, min=2 ** 16, max=2 ** 30,
               help="""
Most bytes that are sent or accepted for one measurement. It includes the
repetition with longer bursts that follows when a token bucket bent the first
train.
"""),
    cfg.IntOpt('max_trains_per_minute', default=60, min=1, max=6000, help="""
Most trains accepted from all peers together within a minute, and most that are
sent. Trains above it are refused.
"""),
    cfg.FloatOpt('foreign_share', default=0.05, min=0.0, max=1.0, help="""
A measurement during which other traffic took more than this share of what
went over the uplink, at either end, is reported as a lower bound.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[str, list[cfg.Opt]]:
    return {GROUP: OPTS}
