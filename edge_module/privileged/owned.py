# SPDX-License-Identifier: Apache-2.0

"""Checks that operations change only devices and qdiscs of virtco.

The agent may be compromised. The helper finds the uplink by its own
configuration, and changes no root qdisc that virtco did not make.
"""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import functools
import socket

from oslo_config import cfg

from edge_module.privileged import devices
from edge_module.privileged import kernel_calls as kernel
from edge_module.privileged import operations
from edge_module.qdisc import devlink
from edge_module.qdisc import redirect
from edge_module.qdisc import shared_root
from edge_module.qdisc import wire
from edge_module.tcplan import vf_rates

# Needed by older kernels, which else answer all listeners, but not the
# requesting socket.
_NLM_F_ECHO = 8
_IN_OUR_TREE = (operations.SetClass, operations.SetLeaf,
                operations.DeleteClass, operations.MatchPair,
                operations.DeletePair)


class Owned:
    """Checks of operations against the devices of the edge module.

    :param uplink_dev: the uplink by the helper's own configuration.
    :param further: the other uplinks, likewise.
    :param sets_functions: whether rates of their virtual functions are
        virtco's, likewise.
    """

    def __init__(self, uplink_dev: str, further: Collection[str] = (),
                 sets_functions: bool = False):
        self.uplink_dev = uplink_dev
        self.further = further
        self.sets_functions = sets_functions

    def check_tc(self, changes: Sequence[operations.TcOperation]) -> None:
        """Check that changes of queues concern devices of virtco only.

        :raises operations.Refused: for another device, or for a tree whose
            root qdisc is another's.
        """
        for why in self._objections(changes):
            raise operations.Refused(why)

    def _objections(self, changes: Sequence[operations.TcOperation]
                    ) -> Iterator[str]:
        """Yield why changes of queues are refused, in their order."""
        uplink, ifb = devices.ifindex(self.uplink_dev), _ifb()
        shaped = {uplink, *map(devices.ifindex, self.further)}
        # Devices of the operations that are not for every tree.
        places: dict[type, set[int]] = {
            operations.AddIngress: {uplink}, operations.Redirect: {uplink},
            operations.EndRedirect: {uplink}, operations.AddIfb: {0, ifb},
            operations.MatchPair: {ifb}, operations.DeletePair: {ifb},
            operations.Share: shaped}
        for change in changes:
            if isinstance(change, operations.SetRate):
                if change.step.name.bus != vf_rates.CARD:
                    _check_rate(change.step.name)
                elif not self.sets_functions or None in change.step[:4] or (
                        change.step.name.port is None
                        or change.step.name.card not in map(str, shaped)):
                    yield f'SetRate: {change.step} is at no uplink'
                continue
            allowed = places.get(type(change), shaped | {ifb})
            if change.ifindex not in allowed:
                yield (f'{type(change).__name__}: ifindex {change.ifindex} is '
                       f'not among {allowed}')
            if isinstance(change, operations.Redirect) and change.ifb != ifb:
                yield f'Redirect: ifb {change.ifb} is not {ifb}'
            if isinstance(change, operations.Share) and (
                    not _may_share(change)):
                yield f'Share: no place for {change.part!r}'
        for ifindex in {change.ifindex for change in changes
                        if isinstance(change, _IN_OUR_TREE)}:
            if not has_our_tree(ifindex):
                yield f"the tree of ifindex {ifindex} is not virtco's"

    def check_hooks(self, hook: operations.HookName,
                    changes: Sequence[operations.ClassifyOperation]) -> None:
        """Check that changes attach VM ports, tunnels or the uplinks only.

        :raises operations.Refused: for a device that is neither a port of a
            VM, at ingress, nor a tunnel or an uplink, at egress.
        """
        for change in changes:
            if not isinstance(change, (operations.AttachPort,
                                       operations.AttachUplink)):
                continue
            is_uplink = change.dev in (self.uplink_dev, *self.further)
            if devices.ifindex(change.dev) != change.ifindex or not (
                    is_uplink or devices.look(change.dev).is_tunnel
                    if isinstance(change, operations.AttachUplink)
                    else change.dev == self.uplink_dev if hook == 'egress'
                    else not is_uplink and devices.look(change.dev).is_port):
                raise operations.Refused(
                    f'{type(change).__name__}: device {change.dev!r} with '
                    f'ifindex {change.ifindex} may not be hooked at {hook}')


def _check_rate(name: vf_rates.Name) -> None:
    """Check that a rate is virtco's, or a VM port's that has none.

    :raises operations.Refused: otherwise. Groups are virtco's by their name.
    """
    if name.port is None:
        return
    with contextlib.suppress(OSError):
        port, rate = (kernel.ask(devlink.request(command, name)) for command
                      in (devlink.PORT_GET, devlink.RATE_GET))
        function, (_, before) = (devlink.read_function(port),
                                 devlink.read_rate(rate))
        if not before.is_others and (before.group or (
                function is not None and devices.look(
                    socket.if_indextoname(function[0])).is_port)):
            return
    raise operations.Refused(f'SetRate: {name} is no port of a VM, or has a '
                             'rate of another program')


def has_our_tree(ifindex: int) -> bool:
    """Return whether a device has this module's HTB, at its root or inside
    another.
    """
    return any(_qdisc(ifindex, parent).is_ours
               for parent in (wire.TC_H_ROOT, wire.INSIDE))


def _may_share(change: operations.Share) -> bool:
    """Return whether a part changes nothing of others that have not the
    layout of Open vSwitch.
    """
    ifindex = change.ifindex
    if change.part == 'root':
        return True  # the kernel refuses where there is one
    if change.part == 'instead':
        return _qdisc(ifindex, wire.TC_H_ROOT).is_ours
    if change.part == 'link':
        return shared_root.is_ours(_qdisc(ifindex, wire.TC_H_ROOT))
    try:
        kernel.ask(wire.tc(wire.RTM_GETTCLASS, _NLM_F_ECHO, ifindex,
                           shared_root.LINK))
    except OSError:
        return False
    return True


def _qdisc(ifindex: int, parent: int) -> wire.Qdisc:
    """Read a qdisc; one of no kind where there is none."""
    try:
        return wire.read_qdisc(kernel.ask(wire.tc(
            wire.RTM_GETQDISC, _NLM_F_ECHO, ifindex, 0, parent)))
    except OSError:
        return wire.Qdisc('', 0, parent)


def _ifb() -> int:
    """Return the ifindex of our IFB device; 0 if absent or no IFB."""
    return (devices.ifindex(redirect.IFB_DEV)
            if devices.look(redirect.IFB_DEV).kind == 'ifb' else 0)


@functools.cache
def configured() -> Owned:
    """Return the checks for the uplinks of the helper's own configuration."""
    from edge_module import edge_options as conf
    conf.register_opts(cfg.CONF)
    options = cfg.CONF.edge
    return Owned(options.uplink_dev or '', options.further_uplinks,
                 options.set_vf_rates)
