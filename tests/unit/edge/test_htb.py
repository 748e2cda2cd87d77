# SPDX-License-Identifier: Apache-2.0

"""What is sent to the kernel, and which of its refusals are failures."""

import dataclasses
import errno

import pytest

from edge_module.privileged import operations
from edge_module.qdisc import htb
from edge_module.tcplan import shape
from tests.unit.edge import test_tcplan
from virtco import exception

TREE = shape.build_tree(test_tcplan.policy(
    [test_tcplan.coflow(0x10, 40e6)]), test_tcplan.LINK_BPS)


class Kernel:
    """Refuses messages by their number."""

    def __init__(self, refused=()):
        self.refused, self.sent = list(refused), []

    def tc_change(self, changes):
        self.sent += changes
        return self.refused

    def tc_dump(self, message):
        return []


def test_refusals_are_counted_but_those_that_are_tolerated():
    kernel = Kernel([errno.ENOENT, errno.EINVAL, errno.EPERM])
    with pytest.raises(exception.KernelRefused) as caught:
        htb.change(kernel, ['a', 'b', 'c'], 'try', (errno.ENOENT,))
    assert caught.value.kwargs == {'what': 'try', 'count': 2,
                                   'why': 'Invalid argument'}
    htb.change(kernel, ['d'], 'try',
               (errno.ENOENT, errno.EINVAL, errno.EPERM))
    assert kernel.sent == ['a', 'b', 'c', 'd']
    htb.change(Kernel(), ['a'], 'try')


def test_only_what_differs_is_sent():
    kernel = Kernel()
    uplink = htb.Uplink(kernel, 'lo')
    uplink.set_classes(TREE.values(), TREE)
    assert kernel.sent == []
    leaf = dataclasses.replace(TREE[0x11], limit_bytes=7000)
    rate = dataclasses.replace(TREE[0x11], rate_bps=8000)
    for item, sent in ((leaf, [operations.SetLeaf(1, leaf)]),
                       (rate, [operations.SetClass(1, rate)]),
                       (TREE[0x10], [])):
        uplink.set_classes([item], TREE)
        assert kernel.sent == sent
        kernel.sent.clear()
    uplink.set_classes([TREE[0x10], TREE[0x11]], {})
    assert kernel.sent == [
        operations.SetClass(1, TREE[0x10]),
        operations.SetClass(1, TREE[0x11]),
        operations.SetLeaf(1, TREE[0x11])]


def test_a_class_that_is_gone_already_is_deleted():
    htb.Uplink(Kernel([errno.ENOENT]), 'lo').delete_classes([0x11])
    with pytest.raises(exception.KernelRefused):
        htb.Uplink(Kernel([errno.EBUSY]), 'lo').delete_classes([0x11])


def test_without_our_qdisc_there_is_nothing():
    uplink = htb.Uplink(Kernel(), 'lo')
    assert uplink.stats() == {} and not uplink.delete_root()
    found = uplink.snapshot()
    assert (found.present, found.foreign, found.tree) == (False, None, {})
    assert uplink.kernel.sent == []


def test_without_descriptors_it_is_unknown_whether_a_device_is_there(
        monkeypatch):
    def none(*_args):
        raise OSError(errno.EMFILE, 'too many')

    monkeypatch.setattr(htb.socket, 'if_nametoindex', none)
    with pytest.raises(exception.NotFound):
        htb.Uplink(Kernel(), 'lo').ifindex()
    monkeypatch.setattr(htb.socket, 'socket', none)
    with pytest.raises(OSError, match='too many'):
        htb.Uplink(Kernel(), 'lo').ifindex()
