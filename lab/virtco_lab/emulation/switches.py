# SPDX-License-Identifier: Apache-2.0

"""Switches between the hosts of a fabric and its core, with real rates.

::

   h0, h1 == rack0 == pod0 == fabric0      a bridge each, in the core's
   h2, h3 == rack1 ==                      namespace; the cable upwards is
                                           shaped at both of its ends
"""

from collections.abc import Iterator

from virtco.topology import tree
from virtco_lab.emulation import fabric as fabric_module
from virtco_lab.emulation import shaping

_QUEUE_BYTES = 2 ** 20
_BURST_BYTES = 2 ** 14
#: Longest name of a Linux interface, less ``-down``.
_MOST_NAME = 10


def grow(fabric: fabric_module.Fabric, plane: tree.Plane) -> None:
    """Put the switches of a plane above hosts that the fabric has.

    :param plane: each node has a short name and both rates.
    """
    links: list[str] = []
    limits: list[str] = []
    for node, above in _nodes(plane):
        assert len(node.name) <= _MOST_NAME, node.name
        links += [f'link add {node.name} up type bridge',
                  f'link add {node.name}-up up master {node.name} type veth '
                  f'peer name {node.name}-down',
                  f'link set {node.name}-down master '
                  f'{above or fabric_module.CORE_BRIDGE} up']
        links += [f'link set {host} master {node.name}'
                  for host in node.hosts]
        limits += _limits('add', node.name, node.uplink)
    shaping.run_batch(fabric.core, links, 'ip')
    shaping.run_batch(fabric.core, limits)


def set_uplink(fabric: fabric_module.Fabric, name: str,
               uplink: tree.Uplink) -> None:
    """Change the rate of a switch's uplink; nobody is told."""
    shaping.run_batch(fabric.core, _limits('replace', name, uplink))


def _nodes(plane: tree.Plane) -> Iterator[tuple[tree.Node, str | None]]:
    """Yield each switch and the name of the one above; parents come first."""
    above = {child.name: node.name for node in plane.walk()
             for child in node.children}
    for node in plane.walk():
        yield node, above.get(node.name)


def _limits(verb: str, name: str, uplink: tree.Uplink) -> list[str]:
    # Packets leave by the lower end upwards, by the upper end downwards.
    return [f'qdisc {verb} dev {name}-{way} root tbf rate {rate_bps:.0f}bit '
            f'burst {_BURST_BYTES} limit {_QUEUE_BYTES}'
            for way, rate_bps in (('up', uplink.up_bps),
                                  ('down', uplink.down_bps))]
