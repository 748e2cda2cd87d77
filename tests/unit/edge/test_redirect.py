# SPDX-License-Identifier: Apache-2.0

"""Filters of the receiver's side read back the same."""

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
    key = classify.Key('', str(addresses[0]), str(addresses[1]), port)
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
