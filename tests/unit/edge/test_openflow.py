# SPDX-License-Identifier: Apache-2.0

"""Flows as ovs-ofctl takes and shows them."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from edge_module.classify import base
from edge_module.classify import openflow
from edge_module.ports import ovsdb
from virtco import exception

SHOWN = (' cookie={cookie}, duration=3.5s, table=0, n_packets=7, n_bytes=700,'
         ' idle_age=1, {match} actions={actions}')
PLACES = {'tap1': ovsdb.Place('br', 4)}


def _shown(flow, classes, cookie=f'{openflow.COOKIE:#x}'):
    return SHOWN.format(cookie=cookie, actions=openflow._actions(
        flow, openflow.Classes(*classes)),
        match=flow.match().removeprefix('table=0,'))


addresses = st.one_of(
    st.tuples(st.just(False), *[st.ip_addresses(v=4).map(str)] * 2),
    st.tuples(st.just(True), *[st.ip_addresses(v=6).map(str)] * 2))


@given(addresses, st.integers(0, 65535), st.integers(2, 0xF000),
       st.sampled_from([0, 0x8010, 0xEFFF]))
def test_flows_read_back(found, port, minor, control):
    _, source, target = found
    key = base.Key('tap1', source, target, port)
    table = base.Table(frozenset({('tap1', 3)}), {key: minor},
                       {minor: control} if control else {})
    wanted = openflow.wanted_flows(table, PLACES)
    read = {flow: classes for flow, classes, _ in (
        openflow.read_flow('br', _shown(*item)) for item in wanted.items())}
    assert read == wanted
    assert len(wanted) == (3 if port else 2) + bool(control)
    assert wanted[openflow.Flow('br', 4)] == (0x7003, 0)


def test_counters_and_other_cookies():
    flow = openflow.Flow('br', 4, 'ip', '10.0.0.1', '10.0.0.2')
    assert openflow.read_flow('br', _shown(flow, (16,)))[2] == base.Counted(
        700, 7)
    assert openflow.read_flow('br', _shown(flow, (16,), '0x77')) is None
    assert openflow.read_flow('br', 'NXST_FLOW reply (xid=0x4):') is None


def test_class_without_a_queue_is_named():
    table = base.Table(frozenset({('tap1', 3)}), {
        base.Key('tap1', '10.0.0.1', '10.0.0.2'): 0xF001})
    with pytest.raises(exception.Invalid, match='61441'):
        openflow.wanted_flows(table, PLACES)
