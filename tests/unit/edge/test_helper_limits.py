# SPDX-License-Identifier: Apache-2.0

"""What the privileged helper refuses."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from edge_module.classify import classified as base
from edge_module.classify import nft
from edge_module.privileged import helper_limits as limits

# ``lo`` is the one device that is everywhere.
LIMITS = limits.Limits('lo', lambda dev: dev.startswith('tap'))


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


def test_a_call_has_a_size(monkeypatch):
    monkeypatch.setattr(limits, '_MOST_TEXT', 100)
    with pytest.raises(PermissionError):
        LIMITS.check_nft('list table netdev virtco\n' * 5)
