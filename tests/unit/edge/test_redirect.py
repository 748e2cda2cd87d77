# SPDX-License-Identifier: Apache-2.0

"""Filters of the receiver's side read back the same."""

import ipaddress
import socket
import struct

from hypothesis import given
from hypothesis import strategies as st
import pytest

from edge_module.classify import classified as classify
from edge_module.qdisc import receiver
from edge_module.qdisc import redirect
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from edge_module.tcplan import model
from tests.unit.edge import test_tcplan

ADDRESSES = st.one_of(
    st.tuples(st.ip_addresses(v=4), st.ip_addresses(v=4)),
    st.tuples(st.ip_addresses(v=6), st.ip_addresses(v=6)))


@given(ADDRESSES, st.integers(0, 65535))
def test_pair_reads_back(addresses, port):
    key = classify.Entry(0, str(addresses[0]), str(addresses[1]), port)
    body = redirect.match_pair(7, key, 0x10)[2]
    shown = redirect.read_pair(body)
    assert shown is not None and shown[0] == key
    assert redirect.redirect_target(body) is None


def test_redirection_is_known_as_ours():
    body = redirect.redirect_all(7, 8)[2]
    assert redirect.redirect_target(body) == 8
    assert redirect.read_pair(body) is None


def test_a_filter_of_somebody_else_is_not_ours():
    body = redirect.redirect_all(7, 8)[2]
    mirred = redirect._MIRRED.pack(0, 0, 4, 0, 0, 1, 8)
    assert mirred in body
    other_preference = bytearray(body)
    other_preference[wire.TCMSG.size - 1] = 0
    mirror = body.replace(mirred, redirect._MIRRED.pack(0, 0, 4, 0, 0, 2, 8))
    for other in (bytes(other_preference), mirror, body[:wire.TCMSG.size]):
        assert redirect.redirect_target(other) is None


@pytest.mark.parametrize('link_bps, egress_bps', [(40e6, 1e9), (1e9, 40e6)])
def test_receiver_is_slower_than_the_link(link_bps, egress_bps):
    side = receiver.Receiver(None, 'uplink0', link_bps)
    tree = side.desired_tree(test_tcplan.policy([], 1e6, egress_bps))
    limit_bps = 0.95 * min(link_bps, egress_bps)
    assert tree[minors.LINK].ceil_bps == pytest.approx(limit_bps)
    assert model.guaranteed_bps(tree) <= limit_bps
    assert tree[receiver.MANAGED_MINOR].prio < tree[
        minors.HOST].prio


# Numbers below are those of the kernel's headers: rtnetlink.h, netlink.h,
# pkt_cls.h and pkt_sched.h.
NEWLINK, DELLINK, NEWQDISC, DELQDISC = 16, 17, 36, 37
NEWTFILTER, DELTFILTER, GETTFILTER = 44, 45, 46
CREATE_NEW = 0x400 | 0x200
INGRESS, ROOT = 0xFFFF0000, 0x70000000
#: Preference 0x7c0, all protocols.
REDIRECT = 0x7c0 << 16 | socket.htons(3)


def tcmsg(*numbers):
    return struct.pack('=BxxxiIII', 0, *numbers)


def nested(*parts):
    """Attributes (number, payload), each to a multiple of four bytes."""
    return b''.join(
        struct.pack('=HH', 4 + len(payload), kind) + payload
        + bytes(-len(payload) % 4) for kind, payload in parts)


def test_the_intermediate_device_is_made_and_set_up():
    assert redirect.add_ifb('virtco-in') == (
        NEWLINK, CREATE_NEW, struct.pack('=BxHiII', 0, 0, 0, 1, 1) + nested(
            (3, b'virtco-in\0'), (18, nested((1, b'ifb\0')))))
    assert redirect.add_ifb('virtco-in', 8) == (
        NEWLINK, 0, struct.pack('=BxHiII', 0, 0, 8, 1, 1))
    assert redirect.delete_link(7) == (
        DELLINK, 0, struct.pack('=BxHiII', 0, 0, 7, 0, 0))


def test_filters_of_received_packets_hang_on_a_qdisc():
    head = tcmsg(7, INGRESS, 0xFFFFFFF1, 0)
    assert redirect.ingress_qdisc(7) == (
        NEWQDISC, CREATE_NEW, head + nested((1, b'ingress\0')))
    assert redirect.delete_ingress(7) == (DELQDISC, 0, head)


def selector(*keys):
    """Keys are (mask, value, offset); a packet that hits is done."""
    return struct.pack('=BBBxHHHHI', 1, 0, len(keys), 0, 0, 0, 0, 0) + (
        b''.join(struct.pack('>II', *key[:2]) + struct.pack('=ii', key[2], 0)
                 for key in keys))


def test_all_that_is_received_is_redirected():
    stolen = struct.pack('=IIiiiiI', 0, 0, 4, 0, 0, 1, 8)
    assert redirect.redirect_all(7, 8) == (
        NEWTFILTER, CREATE_NEW, tcmsg(7, 0, INGRESS, REDIRECT) + nested(
            (1, b'u32\0'), (2, nested(
                (7, nested((1, nested((1, b'mirred\0'), (
                    2 | 0x8000, nested((2, stolen))))))),
                (5, selector((0, 0, 0)))))))
    assert redirect.dump_redirects(7) == (
        GETTFILTER, 0, tcmsg(7, 0, INGRESS, 0))
    assert redirect.delete_redirect(7) == (
        DELTFILTER, 0, tcmsg(7, 0, INGRESS, REDIRECT))


@pytest.mark.parametrize('src, dst, version, pref, offsets', [
    ('10.0.0.1', '10.0.0.2', 4, 3, (12, 16, 20)),
    ('fd00::1', 'fd00:0:1::2', 6, 4, (8, 12, 16, 20, 24, 28, 32, 36, 40))])
@pytest.mark.parametrize('port', [0, 80])
def test_a_pair_is_matched_by_the_words_of_its_header(src, dst, version,
                                                      pref, offsets, port):
    packed = b''.join(ipaddress.ip_address(one).packed for one in (src, dst))
    words = struct.unpack(f'>{len(packed) // 4}I', packed)
    keys = [(0xF0000000, version << 28, 0), *(
        (0xFFFFFFFF, word, offset) for word, offset in zip(words, offsets))]
    if port:
        keys.append((0xFFFF, port, offsets[-1]))
    info = pref << 16 | socket.htons(3)
    message = redirect.match_pair(7, classify.Entry(0, src, dst, port), 0x12)
    assert message == (
        NEWTFILTER, CREATE_NEW, tcmsg(7, 0, ROOT, info) + nested(
            (1, b'u32\0'), (2, nested(
                (1, struct.pack('=I', 0x70000012)), (5, selector(*keys))))))
    # The kernel shows it with a handle, by which it is deleted.
    shown = tcmsg(7, 0x80000800, ROOT, info) + message[2][20:]
    assert redirect.read_pair(shown) == (
        classify.Entry(0, src, dst, port), 0x80000800, info)
    assert redirect.dump_pairs(7) == (GETTFILTER, 0, tcmsg(7, 0, ROOT, 0))
    assert redirect.delete_pair(7, 0x80000800, info) == (
        DELTFILTER, 0, tcmsg(7, 0x80000800, ROOT, info))


def test_a_filter_with_other_keys_is_no_pair():
    """Of one word less or more, without a class, or without keys."""
    def shown(*parts):
        return tcmsg(7, 5, ROOT, 1 << 16) + nested((2, nested(*parts)))

    keys = [(0xFFFFFFFF, 1, 12), (0xFFFFFFFF, 2, 16), (0xFFFFFFFF, 3, 20)]
    classid = 1, struct.pack('=I', 0x70000012)
    assert redirect.read_pair(shown(classid, (5, selector(*keys[:2])))) == (
        classify.Entry(0, '0.0.0.1', '0.0.0.2', 0), 5, 1 << 16)
    for other in (shown(classid, (5, selector(*keys[:1]))),
                  shown(classid, (5, selector(*keys))),
                  shown((5, selector(*keys[:2]))), shown(classid), shown()):
        assert redirect.read_pair(other) is None
