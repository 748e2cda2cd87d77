# SPDX-License-Identifier: Apache-2.0

"""Protection of coflows where they arrive.

Senders keep to their coflows' rates, but nothing keeps other traffic off the
receiver's link. Here everything that the uplink receives passes an
intermediate device (IFB) with an HTB a little slower than the link, in which
coflows are guaranteed all but the default class's share. What the queue makes
wait or drops is the other traffic, whose senders slow down.
"""

import errno
import logging
import socket

from edge_module.classify import classified as classify
from edge_module.privileged import devices
from edge_module.privileged import helper_protocol as protocol
from edge_module.privileged import kernel_calls as kernel
from edge_module.privileged import operations
from edge_module.qdisc import htb
from edge_module.qdisc import redirect
from edge_module.tcplan import model
from edge_module.tcplan import shape
from virtco.wire import edge_policy

LOG = logging.getLogger(__name__)

IFB_DEV = redirect.IFB_DEV
MANAGED_MINOR = edge_policy.FIRST_MINOR
# The queue must form here and not in front of the link.
LINK_SHARE = 0.95
# The filters are tried one after the other (nftables is not asked about
# redirected packets): 3 to 4 microseconds for a thousand.
MOST_PAIRS = 1000


class Receiver:
    """Keeps the ingress side of one uplink as a policy wants it.

    :param is_symmetric: whether the uplink receives as fast as it sends.
    """

    def __init__(self, kernel: protocol.Kernel, dev: str, ingress_bps: float,
                 is_symmetric: bool = False):
        self.kernel = kernel
        self.dev = dev
        self.ingress_bps = ingress_bps
        self.is_symmetric = is_symmetric
        self.queue = htb.Uplink(kernel, IFB_DEV)

    def follow(self, egress_bps: float) -> None:
        """Take over the present speed of the uplink."""
        if self.is_symmetric:
            self.ingress_bps = egress_bps

    @property
    def is_down(self) -> bool:
        """Whether the intermediate device passes nothing."""
        return not devices.look(IFB_DEV).is_up

    def desired_tree(self, policy: edge_policy.EdgePolicy) -> model.Tree:
        """Link, default, and one class for all coflows together."""
        link_bps = LINK_SHARE * min(self.ingress_bps, policy.ingress_bps)
        return shape.receiver_tree(
            link_bps, min(policy.default_rate_bps, link_bps / 2),
            MANAGED_MINOR)

    def ensure(self, policy: edge_policy.EdgePolicy) -> None:
        """Create or correct devices, qdiscs and filters; packets come last."""
        ifb = devices.look(IFB_DEV)
        if not ifb.is_up:
            # A redirection to a device that is down drops all packets.
            htb.change(self.kernel, [operations.AddIfb(ifb.ifindex)],
                       f'set up {IFB_DEV}')
        current = self.queue.snapshot()
        if not current.present:
            self.queue.ensure_root()
        self.queue.set_classes(self.desired_tree(policy).values(),
                               current.tree)
        self._ensure_pairs(policy.received)
        self._ensure_redirect()

    def _ensure_pairs(self, received: tuple[edge_policy.ReceivedPair, ...]
                      ) -> None:
        """Match the pairs of VMs whose received packets are a coflow's."""
        if len(received) > MOST_PAIRS:
            LOG.warning('%d pairs are received, the first %d are protected',
                        len(received), MOST_PAIRS)
        wanted = {classify.Entry(0, pair.src_ip, pair.dst_ip,
                                 pair.dst_port or 0)
                  for pair in received[:MOST_PAIRS]}
        ifindex = socket.if_nametoindex(IFB_DEV)
        have = {shown[0]: shown[1:] for shown in map(
            redirect.read_pair, self.kernel.tc_dump(
                redirect.dump_pairs(ifindex))) if shown is not None}
        htb.change(self.kernel, [
            *(operations.MatchPair(ifindex, key, MANAGED_MINOR)
              for key in sorted(wanted - set(have))),
            *(operations.DeletePair(ifindex, *have[key])
              for key in sorted(set(have) - wanted))],
            f'classify what {self.dev} receives')

    def _ensure_redirect(self) -> None:
        ifindex = socket.if_nametoindex(self.dev)
        ifb = socket.if_nametoindex(IFB_DEV)
        targets = set(map(redirect.redirect_target, self.kernel.tc_dump(
            redirect.dump_redirects(ifindex)))) - {None}
        if targets == {ifb}:
            return
        if targets:
            # A filter towards an IFB that is gone drops all packets.
            htb.change(self.kernel, [operations.EndRedirect(ifindex)],
                       f'end redirection of {self.dev}', (errno.ENOENT,))
        htb.change(self.kernel, [operations.AddIngress(ifindex)],
                   f'prepare ingress of {self.dev}', (errno.EEXIST,))
        htb.change(self.kernel, [operations.Redirect(ifindex, ifb)],
                   f'redirect ingress of {self.dev}')


def remove(dev: str) -> bool:
    """Delete the redirection, then the queue; False when there is none.

    For root alone: the helper offers no deletion of devices and hooks.
    """
    ifb, ifindex = devices.ifindex(IFB_DEV), devices.ifindex(dev)
    if not ifindex:
        return False
    request = redirect.dump_redirects(ifindex)
    # An IFB that is gone leaves a filter that drops all packets.
    redirects = {0, ifb}.intersection(map(
        redirect.redirect_target, kernel.tc_dump(request)))
    if redirects:
        htb.check(kernel.tc_send([redirect.delete_redirect(ifindex)]),
                  f'end redirection of {dev}')
        if not kernel.tc_dump(request):
            htb.check(kernel.tc_send([redirect.delete_ingress(ifindex)]),
                      f'free ingress of {dev}')
    if ifb:
        htb.check(kernel.tc_send([redirect.delete_link(ifb)]),
                  f'delete {IFB_DEV}')
    return bool(ifb or redirects)
