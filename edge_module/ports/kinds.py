# SPDX-License-Identifier: Apache-2.0

"""Notes on VM ports whose traffic is not, or not all, managed here."""

from edge_module.classify import classified as classify
from edge_module.privileged import devices

OFFLOAD = ('hardware offload: flows that the card switches by itself are not '
           'managed')
REPRESENTOR = ('VF representor: what the card switches by itself has a rate, '
               'but no order, no limit by destination and no counter')
PASSED_THROUGH = 'SR-IOV or passthrough: it goes past the host, unmanaged'
MACVTAP = 'macvtap: it goes past the virtual switch, unmanaged'
VHOST_USER = 'vhost-user: it goes past the kernel, unmanaged'
ROUTED = 'no port of a switch: what the host routes is not managed'
ODD_NAME = 'the name of its device may not be in a rule: not classified'
DVR = 'DVR: what the host routes for this port is not managed'
TAGGED = ('userspace datapath: packets reach the uplink with a VLAN tag or '
          'encapsulated, and are not classified')

_DIRECT = ('direct', 'direct-physical', 'accelerator-direct',
           'accelerator-direct-physical')


def of_device(dev: str, found: devices.Device, is_switched: bool
              ) -> tuple[str, ...]:
    """Return the notes that follow from a port's device.

    :param is_switched: whether the device is known to be a switch's port.
    """
    if found.kind in ('macvtap', 'macvlan'):
        return MACVTAP,
    return tuple(note for note, holds in (
        (ODD_NAME, not classify.may_name(dev)),
        (REPRESENTOR, found.is_representor),
        (ROUTED, not is_switched and not found.has_master)) if holds)


def of_vnic_type(vnic_type: str) -> tuple[str, ...]:
    """Return the notes that follow from Neutron's vNIC type of a port."""
    if vnic_type in _DIRECT:
        return PASSED_THROUGH,
    return (MACVTAP,) if vnic_type == 'macvtap' else ()


def of_switch(interface_type: str, offloads: bool, routes: bool,
              is_tagged: bool) -> tuple[str, ...]:
    """Return the notes that follow from Open vSwitch's database.

    :param offloads: whether ``other_config:hw-offload`` is set.
    :param routes: whether the switch has a distributed router's ports.
    :param is_tagged: see :func:`is_tagged`.
    """
    is_vhost = interface_type.startswith('dpdkvhostuser')
    return tuple(note for note, holds in (
        (VHOST_USER, is_vhost), (OFFLOAD, offloads), (DVR, routes),
        (TAGGED, is_tagged)) if holds)


def is_tagged(datapath: str, network_type: str, has_tag: bool,
              has_tunnels: bool) -> bool:
    """Return whether packets reach the uplink tagged or encapsulated, which
    a classifier there does not see through.

    :param datapath: datapath of the bridge; only ``netdev`` is classified
        there.
    :param network_type: type that Neutron's agent writes; '' without that
        agent, whose tags are local to the host.
    :param has_tag: whether the port has a VLAN tag.
    :param has_tunnels: whether packets leave the bridge by tunnels alone.
    """
    if datapath != 'netdev':
        return False
    if network_type:
        return network_type not in ('flat', 'local')
    return has_tag or has_tunnels
