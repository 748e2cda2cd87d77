# SPDX-License-Identifier: Apache-2.0

"""What the privileged helper refuses."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from edge_module.classify import classified as base
from edge_module.classify import nft
from edge_module.privileged import helper_limits as limits
from edge_module.qdisc import redirect
from edge_module.qdisc import wire
from edge_module.tcplan import shape
from tests.unit.edge import test_tcplan

# ``lo`` is the one device that is everywhere.
LIMITS = limits.Limits('lo', lambda dev: dev.startswith('tap'))
UPLINK, OTHER = 1, 99
HTB = wire.attr(wire.KIND, b'htb\0')


class _Kernel:
    def __init__(self):
        self.commands = []

    def nft_run(self, text):
        LIMITS.check_nft(text)
        self.commands.append(text)
        return (1, '', '') if text.startswith('list') else (0, '', '')


addresses = st.one_of(
    st.tuples(st.ip_addresses(v=4).map(str), st.ip_addresses(v=4).map(str)),
    st.tuples(st.ip_addresses(v=6).map(str), st.ip_addresses(v=6).map(str)))
entries = st.dictionaries(
    st.builds(lambda pair, port: base.Key('tap1', *pair, port), addresses,
              st.integers(0, 65535)), st.integers(0x10, 0x6fff), max_size=5)


@given(entries, entries)
def test_all_that_nft_is_asked_for_is_allowed(first, second):
    kernel = _Kernel()
    classifier = nft.NftClassifier(kernel)
    for found, hooks in ((first, {('tap1', 4), ('tap-2.x', 5)}),
                         (second, {('tap1', 4)})):
        control = {minor: minor | 0x8000 for minor in found.values()}
        classifier.replace(base.Table(
            frozenset(hooks), found, control,
            {('tap1', 'fa:16:3e:00:00:01'): 0xf042}, {'tap1': 0xf002}))
    classifier.destinations()
    classifier.peers()
    egress = nft.NftEgressClassifier(kernel, 'lo')
    egress.replace(base.Table(frozenset({('lo', 1)}), {
        base.Key('', key.src_ip, key.dst_ip, key.dst_port): minor
        for key, minor in first.items()}))
    classifier.remove()
    assert kernel.commands


@pytest.mark.parametrize('command', [
    'include "/etc/shadow"', 'list ruleset', 'flush ruleset',
    'add table inet filter', 'delete table netdev other',
    'add table netdev virtco; include "/etc/shadow"',
    'add rule netdev virtco classify fwd to "eth1" comment "pair4"',
    'add rule netdev virtco classify drop comment "pair4"',
    'add rule netdev virtco classify log prefix "x" comment "pair4"',
    'add rule netdev virtco classify meta priority set 1; flush ruleset '
    'comment "pair4"',
    'add element netdev virtco ingress_pair4 { 1 } ; flush ruleset { }',
    'add map netdev virtco x { type mark : verdict; }',
    'add chain netdev virtco dev_1_lo { type filter hook ingress device '
    '"eth0" priority 0; }',
    'add chain netdev virtco dev_1_lo { type filter hook ingress device '
    '"lo" priority 0; policy drop; }',
    'add rule netdev virtco classify ' + 'ip saddr, ' * 200 + '! comment "x"',
    'list set netdev other x', 'delete set netdev virtco ingress_seen',
    'add rule netdev virtco dev_1_lo meta priority 1:7001 update @peers4_1 '
    '{ ip daddr } drop',
    'add rule netdev virtco unmanaged drop comment "to"', 'define x = 1', '',
    'add table netdev virtco\n\ninclude "x"',
    # A device that is neither the uplink nor a port.
    'add chain netdev virtco dev_7_eth7 { type filter hook ingress device '
    '"eth7" priority 0; }'])
def test_other_commands_of_nft_are_refused(command):
    with pytest.raises(PermissionError):
        LIMITS.check_nft(command)


@given(test_tcplan.policies())
def test_all_classes_are_allowed_on_the_uplink_only(wanted):
    tree = shape.build_tree(wanted, 1e8, ports=[4])
    for ifindex in (UPLINK, OTHER):
        messages = [wire.root_qdisc(ifindex, 2), wire.delete_root(ifindex)]
        for item in tree.values():
            messages += [wire.set_class(ifindex, item),
                         wire.delete_class(ifindex, item.minor)]
            if item.limit_bytes is not None:
                messages.append(wire.set_leaf(ifindex, item))
        if ifindex == UPLINK:
            LIMITS.check_tc(messages)
            continue
        for message in messages:
            with pytest.raises(PermissionError):
                LIMITS.check_tc([message])


def test_the_receiver_is_allowed_its_device_and_hook():
    LIMITS.check_tc([redirect.add_ifb(redirect.IFB_DEV),
                     redirect.ingress_qdisc(UPLINK)])


@pytest.mark.parametrize('message', [
    # Hooks of other devices.
    redirect.ingress_qdisc(OTHER), redirect.delete_ingress(OTHER),
    redirect.delete_redirect(OTHER),
    # Routes, addresses, rules, neighbours.
    *((kind, 0, bytes(40)) for kind in (20, 24, 28, 32, 64)),
    # Other devices.
    redirect.add_ifb('eth7'), redirect.set_up(UPLINK),
    redirect.delete_link(UPLINK), redirect.redirect_all(UPLINK, OTHER),
    redirect.redirect_all(OTHER, UPLINK),
    (wire.RTM_NEWQDISC, 0, wire.TCMSG.pack(0, UPLINK, 0x20000, wire.TC_H_ROOT,
                                           0)
     + wire.attr(wire.KIND, b'netem\0')),
    (wire.RTM_NEWTCLASS, 0, b''),
    (wire.RTM_NEWTCLASS, 0, wire.TCMSG.pack(0, OTHER, 0x10001, 0, 0) + HTB),
], ids=lambda message: str(message[0]))
def test_other_messages_are_refused(message):
    with pytest.raises(PermissionError):
        LIMITS.check_tc([message])


def test_a_call_has_a_size(monkeypatch):
    monkeypatch.setattr(limits, '_MOST_TEXT', 100)
    monkeypatch.setattr(limits, '_MOST_MESSAGES', 3)
    for ask in (lambda: LIMITS.check_nft('list table netdev virtco\n' * 5),
                lambda: LIMITS.check_tc([wire.delete_root(UPLINK)] * 4)):
        with pytest.raises(PermissionError):
            ask()
