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
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[str, list[cfg.Opt]]:
    return {GROUP: OPTS}
