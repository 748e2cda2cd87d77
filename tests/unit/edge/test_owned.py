# SPDX-License-Identifier: Apache-2.0

"""Which typed operations the helper makes, and which it refuses."""

import contextlib
import dataclasses
import importlib
import os
import struct
import sys
import typing

from hypothesis import given
from hypothesis import strategies as st
import msgspec
from oslo_config import cfg
import pytest

from edge_module import edge_options
from edge_module.classify import classified as classify
from edge_module.classify import nft
from edge_module.classify import nft_text
from edge_module.privileged import devices
from edge_module.privileged import guarded
from edge_module.privileged import operations
from edge_module.privileged import owned
from edge_module.qdisc import devlink
from edge_module.qdisc import shared_root
from edge_module.qdisc import wire
from edge_module.tcplan import shape
from edge_module.tcplan import vf_rates
from tests.unit.edge import test_devlink
from tests.unit.edge import test_tcplan

UPLINK, IFB, OTHER = 1, 50, 99
TREE = shape.build_tree(test_tcplan.policy([]), test_tcplan.LINK_BPS)
CLASS = next(iter(TREE.values()))
KEY = classify.Entry(0, '10.0.0.1', '10.0.0.2')


@pytest.fixture
def ours(monkeypatch):
    """``lo`` is the uplink; every root qdisc is of virtco."""
    monkeypatch.setattr(owned, '_ifb', lambda: IFB)
    monkeypatch.setattr(owned, 'has_our_tree', lambda ifindex: True)
    return owned.Owned('lo')


@given(test_tcplan.policies())
def test_every_class_of_a_policy_passes_the_decoder(wanted):
    changes = [operations.AddRoot(UPLINK)]
    for item in shape.build_tree(wanted, 1e8, ports=[4]).values():
        changes += [operations.SetClass(UPLINK, item),
                    operations.SetLeaf(UPLINK, item),
                    operations.DeleteClass(UPLINK, item.minor)]
    decoded = guarded._CALLS['tc_change'][0].decode(
        msgspec.msgpack.encode(changes))
    assert decoded == changes
    assert [change.message() for change in decoded] == [
        change.message() for change in changes]


@pytest.mark.parametrize('field, most', [
    ('minor', 2 ** 16 - 1), ('parent', 2 ** 16 - 1), ('rate_bps', 10 ** 15),
    ('ceil_bps', 10 ** 15), ('prio', 7), ('quantum_bytes', 2 ** 32 - 1),
    ('limit_bytes', 2 ** 32 - 1), ('packet_bytes', 2 ** 32 - 1),
    ('overhead_bytes', 2 ** 16 - 1), ('frame_min_bytes', 2 ** 16 - 1),
    ('burst_bytes', 2 ** 32 - 1)])
def test_parameters_fit_their_fields_of_the_kernel(field, most):
    def decoded(value):
        return guarded._CALLS['tc_change'][0].decode(msgspec.msgpack.encode(
            [operations.SetClass(UPLINK, dataclasses.replace(
                CLASS, **{field: value}))]))

    change, = decoded(most)
    assert getattr(change.wanted, field) == most
    for beyond in (most + 1, -1):
        with pytest.raises(msgspec.ValidationError, match=field):
            decoded(beyond)


def test_changes_of_the_uplink_and_its_ifb_are_made(ours):
    ours.check_tc([
        operations.AddRoot(UPLINK), operations.SetClass(UPLINK, CLASS),
        operations.SetLeaf(IFB, CLASS), operations.DeleteClass(IFB, 1),
        operations.AddIfb(), operations.AddIfb(IFB),
        operations.AddIngress(UPLINK),
        operations.Redirect(UPLINK, IFB), operations.EndRedirect(UPLINK),
        operations.MatchPair(IFB, KEY, 1), operations.DeletePair(IFB, 1, 1)])


@pytest.mark.parametrize('change', [
    operations.AddRoot(OTHER), operations.SetClass(OTHER, CLASS),
    operations.SetLeaf(OTHER, CLASS), operations.DeleteClass(OTHER, 1),
    operations.AddIngress(OTHER), operations.AddIngress(IFB),
    operations.AddIfb(OTHER), operations.AddIfb(UPLINK),
    operations.Share(OTHER, 'root'), operations.Share(IFB, 'tree'),
    operations.Redirect(OTHER, IFB), operations.Redirect(UPLINK, OTHER),
    operations.Redirect(IFB, IFB), operations.EndRedirect(OTHER),
    operations.EndRedirect(IFB), operations.MatchPair(OTHER, KEY, 1),
    operations.MatchPair(UPLINK, KEY, 1), operations.DeletePair(UPLINK, 1, 1),
], ids=str)
def test_changes_of_other_devices_are_refused(ours, change):
    with pytest.raises(operations.Refused):
        ours.check_tc([operations.AddIfb(), change])


@pytest.mark.parametrize('ifindex, sets_functions, is_right', [
    (UPLINK, True, True), (UPLINK, False, False), (IFB, True, False),
    (OTHER, True, False)])
def test_functions_of_the_uplink_have_rates_where_that_is_wanted(
        monkeypatch, ifindex, sets_functions, is_right):
    monkeypatch.setattr(owned, '_ifb', lambda: IFB)
    with contextlib.nullcontext() if is_right else pytest.raises(
            operations.Refused):
        owned.Owned('lo', (), sets_functions).check_tc(
            [operations.SetRate(vf_rates.Step('set', vf_rates.Name(
                'vf', str(ifindex), 3), 40, 50))])


@pytest.mark.parametrize('name, share_mbps, most_mbps', [
    (vf_rates.Name('vf', 'x', 3), 1, 2), (vf_rates.Name('vf', '1'), 1, 2),
    (vf_rates.Name('vf', '1', 3), None, 2),
    (vf_rates.Name('vf', '1', 3), 1, None)])
def test_a_rate_at_a_card_is_whole(ours, name, share_mbps, most_mbps):
    ours.sets_functions = True
    with pytest.raises(operations.Refused, match='at no uplink'):
        ours.check_tc([operations.SetRate(vf_rates.Step(
            'set', name, share_mbps, most_mbps))])


@pytest.mark.parametrize('make, is_right', [
    (lambda at: operations.AddRoot(at), True),
    (lambda at: operations.SetClass(at, CLASS), True),
    (lambda at: operations.DeleteClass(at, 1), True),
    (lambda at: operations.AddIngress(at), False),
    (lambda at: operations.Redirect(at, IFB), False),
    (lambda at: operations.MatchPair(at, KEY, 1), False)])
def test_a_further_uplink_has_a_tree_and_no_ingress(ours, monkeypatch, make,
                                                    is_right):
    monkeypatch.setattr(owned.devices, 'ifindex', {'lo': UPLINK, 'up2': OTHER
                                                   }.__getitem__)
    with pytest.raises(operations.Refused):
        ours.check_tc([make(OTHER)])
    with contextlib.nullcontext() if is_right else pytest.raises(
            operations.Refused):
        owned.Owned('lo', ['up2']).check_tc([make(OTHER)])


@pytest.mark.parametrize('change', [
    operations.SetClass(UPLINK, CLASS), operations.SetLeaf(UPLINK, CLASS),
    operations.DeleteClass(UPLINK, 1), operations.MatchPair(IFB, KEY, 1),
    operations.DeletePair(IFB, 1, 1)], ids=str)
def test_a_tree_of_somebody_else_is_not_changed(ours, monkeypatch, change):
    monkeypatch.setattr(owned, 'has_our_tree', lambda ifindex: False)
    with pytest.raises(operations.Refused, match="is not virtco's"):
        ours.check_tc([change])


@pytest.mark.parametrize('stands, allowed', [
    ([], {'root'}), ([wire.root_qdisc(UPLINK)], {'root', 'instead'}),
    ([shared_root.root(UPLINK)], {'root', 'link'}),
    ([wire.new_htb(UPLINK, 0x10000, 0xFFFFFFFF, 10, 1, 0)], {'root'}),
    ([wire.new_htb(UPLINK, 0x10000, 0xFFFFFFFF, 10, 1, 0),
      shared_root.link(UPLINK)], {'root', 'container', 'sieve', 'tree'}),
    ([shared_root.root(UPLINK), shared_root.link(UPLINK),
      shared_root.tree(UPLINK)],
     {'root', 'link', 'container', 'sieve', 'tree'})])
def test_others_have_a_place_and_keep_theirs(ours, monkeypatch, stands,
                                             allowed):
    def ask(message):
        kind, _flags, body = message
        _, ifindex, handle, parent, _ = wire.TCMSG.unpack_from(body)
        assert ifindex == UPLINK
        for made, _, found in stands:
            _, _, own, below, _ = wire.TCMSG.unpack_from(found)
            if (kind - 2, own if handle else below) == (
                    made, handle or parent):
                return found
        raise OSError(2, 'there is none')

    monkeypatch.setattr(owned.kernel, 'ask', ask)
    passed = set()
    for part in typing.get_args(operations.Part):
        try:
            ours.check_tc([operations.Share(UPLINK, part)])
            passed.add(part)
        except operations.Refused as error:
            assert repr(part) in str(error)
    assert passed == allowed


@pytest.mark.parametrize('call, asked', [
    ('tc_change', [operations.AddRoot(OTHER)]),
    ('nft_change', ('ingress', [operations.AttachPort(
        'lo', UPLINK, 0x7001)]))])
def test_a_call_is_held_against_the_own_devices(monkeypatch, call, asked):
    monkeypatch.setattr(owned, 'configured', lambda: owned.Owned('lo'))
    made = []
    for name in ('tc_change', 'nft_change'):
        monkeypatch.setattr(guarded.kernel, name,
                            lambda *change: made.append(change))
    with pytest.raises(operations.Refused, match=f'{OTHER}|lo'):
        guarded.perform(call, msgspec.msgpack.encode(asked))
    assert made == []
    guarded.perform('tc_change', msgspec.msgpack.encode(
        [operations.AddRoot(UPLINK)]))
    assert made == [([operations.AddRoot(UPLINK)],)]


VF = vf_rates.Name('pci', '0000:03:00.0', 128)
FREE, OURS = vf_rates.Rate(), vf_rates.Rate(1, 2, 0x10)


@pytest.mark.parametrize('rate, ifindex, flavour, is_port, passes', [
    (FREE, 7, 4, True, True), (FREE, 7, 4, False, False),
    (FREE, 7, 0, True, False), (FREE, 0, 4, True, False),
    (OURS, 7, 4, True, True), (OURS, 7, 4, False, True),
    (OURS, 0, 4, True, True), (vf_rates.Rate(0, 2), 7, 4, True, False),
    (vf_rates.Rate(1, 2, vf_rates.OTHERS), 7, 4, True, False),
    (None, 7, 4, True, False)])
def test_rates_of_others_and_of_the_host_are_not_changed(
        ours, monkeypatch, rate, ifindex, flavour, is_port, passes):
    def ask(message):
        if message == devlink.request(devlink.PORT_GET, VF):
            return test_devlink.port(VF, ifindex, flavour)
        assert message == devlink.request(devlink.RATE_GET, VF)
        if rate is None:
            raise OSError(19, 'no such rate')
        return test_devlink.rate(VF, rate)

    monkeypatch.setattr(owned.kernel, 'ask', ask)
    monkeypatch.setattr(owned.socket, 'if_indextoname', {7: 'eth7'}.get)
    monkeypatch.setattr(devices, 'look', lambda dev: _device(
        dev == 'eth7' and is_port))
    changes = [operations.SetRate(vf_rates.Step('set', VF, 1, 2)),
               operations.AddRoot(UPLINK)]
    if passes:
        ours.check_tc(changes)
    else:
        with pytest.raises(operations.Refused, match='128'):
            ours.check_tc(changes)
    # A group is virtco's by its name. What follows is looked at, too.
    group = operations.SetRate(vf_rates.Step(
        'make', VF._replace(port=None, group=0x10), 1, 2))
    ours.check_tc([group])
    with pytest.raises(operations.Refused, match=str(OTHER)):
        ours.check_tc([group, operations.AddRoot(OTHER)])


@pytest.mark.parametrize('step', [
    ['set', ['pci', 'a b', 1, 0], 1, 1, None],
    ['set', ['pci', '', 1, 0], 1, 1, None],
    ['set', ['pci', 'x' * 65, 1, 0], 1, 1, None],
    ['set', ['pci', 'x\n', 1, 0], 1, 1, None],
    ['set', ['pci', 'x', None, 'other'], 1, 1, None],
    ['set', ['pci', 'x', None, 0x10000], 1, 1, None],
    ['set', ['pci', 'x', 2 ** 32, 0], 1, 1, None],
    ['set', ['pci', 'x', 1, 0], -1, 1, None],
    ['set', ['pci', 'x', 1, 0], 1, 10 ** 8, None],
    ['set', ['pci', 'x', 1, 0], 1, 1, 'other'],
    ['set', ['pci', 'x', 1, 0], 1, 1, -1],
    ['new', ['pci', 'x', 1, 0], 1, 1, None]], ids=str)
def test_malformed_rates_are_refused(step):
    with pytest.raises(operations.Refused, match='tc_change'):
        guarded.perform('tc_change',
                        msgspec.msgpack.encode([['SetRate', step]]))


@pytest.mark.parametrize('step', [
    vf_rates.Step('set', VF, 0, 10 ** 8 - 1),
    vf_rates.Step('set', VF._replace(port=2 ** 32 - 1), group=0xffff),
    vf_rates.Step('delete', VF._replace(port=None, group=0x10)),
    vf_rates.Step('make', vf_rates.Name('a', 'x' * 64, 0), 1, 2)], ids=str)
def test_every_step_passes_the_decoder(step):
    change = operations.SetRate(step)
    decoded, = guarded._CALLS['tc_change'][0].decode(
        msgspec.msgpack.encode([change]))
    assert decoded == change and decoded.message() == devlink.change(step)


@pytest.mark.parametrize('device, index', [
    (devices.Device('ifb', '', False), 3), (devices.Device(), 0),
    (devices.Device('veth', '', False), 0)])
def test_a_device_of_our_name_is_ours_as_an_ifb_only(monkeypatch, device,
                                                     index):
    monkeypatch.setattr(devices, 'look', lambda dev: device)
    monkeypatch.setattr(devices, 'ifindex', lambda dev: 3)
    assert owned._ifb() == index


def test_lo_has_no_root_of_ours():
    assert not owned.has_our_tree(UPLINK)
    assert not owned.has_our_tree(2 ** 31 - 1)


@pytest.mark.parametrize('data', [
    [['DeleteRoot', 1]], [['AddRoot', 0]], [['AddRoot', 2 ** 31]],
    [['AddRoot', '1']], [['AddRoot', 1, b'\x08\0\x01\0bfifo\0']],
    [['DeleteClass', 1, 0x10000]], [['DeleteClass', 1]], [[16, 0, b'']],
    7, [['SetClass', 1, {'minor': 1}]]], ids=str)
def test_malformed_operations_are_refused(data):
    with pytest.raises(operations.Refused, match='tc_change'):
        guarded.perform('tc_change', msgspec.msgpack.encode(data))


class _Kernel:
    """Decodes each call as the helper does, and keeps the changes."""

    def __init__(self):
        self.changes = []

    def nft_change(self, hook, changes):
        sent = msgspec.msgpack.encode((hook, changes))
        assert guarded._CALLS['nft_change'][0].decode(sent)[1] == changes
        owned.Owned('lo').check_hooks(hook, changes)
        self.changes += changes
        assert all(change.commands(nft_text.HOOKS[hook])
                   for change in changes)

    def bpf_change(self, hook, changes):
        assert changes == [operations.DeleteTable()]

    def nft_read(self, listings):
        guarded._CALLS['nft_read'][0].decode(msgspec.msgpack.encode(listings))
        return [None for _ in listings]


addresses = st.one_of(
    st.tuples(st.ip_addresses(v=4).map(str), st.ip_addresses(v=4).map(str)),
    st.tuples(st.ip_addresses(v=6).map(str), st.ip_addresses(v=6).map(str)))
entries = st.dictionaries(
    st.builds(lambda pair, port: classify.Entry(4, *pair, port),
              addresses, st.integers(0, 65535)),
    st.integers(0x10, 0x6fff), max_size=5)


def _device(is_port):
    return devices.Device(is_tap=is_port)


@pytest.fixture(scope='module')
def ports():
    """Devices named ``tap…`` are ports, with the ifindex at their end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, 'look',
                      lambda dev: _device(dev.startswith('tap')))
        patch.setattr(devices, 'ifindex',
                      lambda dev: UPLINK if dev == 'lo' else int(dev[-1]))
        yield


@given(entries, entries)
def test_every_change_of_a_classifier_passes_the_decoder(ports, first,
                                                         second):
    kernel = _Kernel()
    classifier = nft.NftClassifier(kernel)
    for found, hooks in ((first, {('tap4', 4), ('tap-2.5', 5)}),
                         (second, {('tap4', 4)})):
        classifier.replace(classify.Table(frozenset(hooks), found, {
            'control': {classify.MapKey(ifindex): 0x9000 + ifindex
                        for _, ifindex in hooks},
            'to': {classify.MapKey(4, 'fa:16:3e:00:00:01'): 0xc102},
            'others': {classify.MapKey(4): 0xc002}}))
    classifier.destinations()
    classifier.peers()
    egress = nft.NftClassifier(kernel, 'lo')
    egress.replace(classify.Table(frozenset({('lo', UPLINK)}), {
        entry._replace(ifindex=UPLINK): minor
        for entry, minor in first.items()}))
    classifier.remove()
    assert kernel.changes


@pytest.mark.parametrize('hook, dev, ifindex', [
    ('ingress', 'eth7', 7), ('ingress', 'lo', UPLINK), ('egress', 'tap4', 4),
    ('egress', 'eth7', 7), ('ingress', 'tap4', 5)])
def test_other_devices_are_not_hooked(ports, hook, dev, ifindex):
    with pytest.raises(operations.Refused, match=dev):
        owned.Owned('lo').check_hooks(hook, [
            operations.AddTable(), operations.AttachPort(
                dev, ifindex, 0x7001)])


@pytest.mark.parametrize('dev, ifindex', [
    ('tap4', 4), ('eth7', 7), ('lo', UPLINK + 1)])
def test_the_host_is_told_at_uplinks_alone(ports, dev, ifindex):
    checks = owned.Owned('lo', ['eth7'] * (dev == 'lo'))
    checks.check_hooks('ingress', [
        operations.AttachUplink('lo', UPLINK, True)])
    with pytest.raises(operations.Refused, match=f'AttachUplink.*{dev}'):
        checks.check_hooks('ingress', [operations.AttachUplink(
            dev, ifindex, True)])


@pytest.mark.parametrize('device, is_port', [
    (devices.Device('tun', '', False, '', True), True),
    (devices.Device('tun', '', True, 'openvswitch', True), True),
    (devices.Device('veth', '', True, 'bridge'), True),
    (devices.Device('', 'pf0vf3', True, 'openvswitch'), True),
    (devices.Device('tun', '', False), False),
    (devices.Device('tun', '', True, 'bond', True), False),
    (devices.Device('veth', '', False), False),
    (devices.Device('', 'p0', True, 'openvswitch'), False),
    (devices.Device('', '', True, 'bond'), False),
    (devices.Device('openvswitch', '', True, 'openvswitch'), False)],
    ids=str)
def test_ports_are_those_that_a_vm_can_be_behind(device, is_port):
    assert device.is_port == is_port


@pytest.mark.parametrize('change', [
    ['ChangeEntries', [[1, '10.0.0.1', '10.0.0.2', 2 ** 16]], []],
    ['ChangeEntries', [], [[[1, '10.0.0.1', '10.0.0.2', 0], '7000:1']]],
    ['ChangeMap', 'frag4', [], []],
    ['ChangeMap', 'to', [], [[[1, '00:00:00:00:00:01 '], 1]]],
    ['SetRules', ['pair4 ip daddr set 10.0.0.9'], True],
    ['SetRules', ['drop'], True], ['AttachPort', 'tap1\n', 1, 1],
    ['AttachPort', 'tap1" priority 0; }', 1, 1],
    ['AttachPort', 'tap1', 1, '7000:1'], ['AttachPort', 'tap1', 1, 2 ** 16],
    ['DetachPort', '1\n'], ['DetachPort', 0],
    ['add table inet filter']], ids=str)
def test_malformed_changes_of_the_table_are_refused(change):
    with pytest.raises(operations.Refused, match='nft_change'):
        guarded.perform('nft_change',
                        msgspec.msgpack.encode(['ingress', [change]]))


@pytest.mark.parametrize('source, target', [
    ('10.0.0.1 }', '10.0.0.2'), ('a.example', '10.0.0.2'),
    ('10.0.0.1', 'fd00::1'), ('fd00::1', '10.0.0.2'), ('10.1', '10.0.0.2'),
    ('10.0.0.1\n', '10.0.0.2'), ('10.0.0.1\0', '10.0.0.2'), ('', '')])
def test_what_is_no_address_does_not_reach_nft(source, target):
    entry = classify.Entry(1, source, target, 0)
    for change in (operations.ChangeEntries([entry], []),
                   operations.ChangeEntries([], [(entry, 16)])):
        with pytest.raises(operations.Refused, match='is not of AF_INET'):
            change.commands(nft_text.INGRESS)


@pytest.mark.parametrize('listing', [
    ['ruleset'], ['table', '; flush ruleset'], ['set', 'peers4_1\n'],
    ['table inet filter'], ['set', 'other']], ids=str)
def test_only_the_own_table_is_read(listing):
    with pytest.raises(operations.Refused, match='nft_read'):
        guarded.perform('nft_read',
                        msgspec.msgpack.encode([['Listing', *listing]]))
    assert operations.Listing('set', 'peers4_1').command() == (
        'list set netdev virtco peers4_1\n')


@pytest.mark.parametrize('call', ['ask', '__import__', 'tc_send', 'nft_run'])
def test_other_calls_are_refused(call):
    with pytest.raises(operations.Refused, match=call):
        guarded.perform(call, b'')


def test_a_call_has_a_size():
    data = msgspec.msgpack.encode(['ingress', [['AddTable']] * 500_001])
    with pytest.raises(operations.Refused, match='500000'):
        guarded.perform('nft_change', data)


def test_a_sealed_helper_imports_no_further_module(monkeypatch):
    monkeypatch.setattr(sys, 'meta_path', list(sys.meta_path))
    configured = []
    monkeypatch.setattr(owned, 'configured', lambda: configured.append(1))
    guarded.context.set_client_mode(False)
    try:
        assert guarded.seal() == os.getpid()
        # Its options are read while that is possible.
        assert configured == [1]
        with pytest.raises(ModuleNotFoundError), pytest.warns(
                ImportWarning, match='empty'):
            importlib.import_module('__hello__')
    finally:
        guarded.context.set_client_mode(True)


@pytest.mark.parametrize('dev', ['lo', None])
def test_the_uplink_is_that_of_the_helpers_own_options(ours, dev):
    owned.configured.cache_clear()
    edge_options.register_opts(cfg.CONF)
    cfg.CONF.set_override('uplink_dev', dev, edge_options.EDGE)
    try:
        assert owned.configured().uplink_dev == (dev or '')
        assert owned.configured() is owned.configured()
    finally:
        cfg.CONF.clear_override('uplink_dev', edge_options.EDGE)
        owned.configured.cache_clear()


def test_the_helper_knows_the_options_by_itself(monkeypatch, tmp_path):
    """It is a process in which nothing else registered them."""
    path = tmp_path / 'edge.conf'
    path.write_text('[edge]\nuplink_dev = eth7\n'
                    'further_uplinks = eth8:0,eth9:1e9\n'
                    'set_vf_rates = true\n')
    conf = cfg.ConfigOpts()
    conf(['--config-file', str(path)], project='virtco')
    monkeypatch.setattr(owned.cfg, 'CONF', conf)
    owned.configured.cache_clear()
    try:
        found = owned.configured()
        assert found.uplink_dev == 'eth7'
        assert set(found.further) == {'eth8', 'eth9'}
        assert found.sets_functions
    finally:
        owned.configured.cache_clear()


@pytest.mark.parametrize('found, parents', [
    (wire.root_qdisc(7), [0xFFFFFFFF]),
    (shared_root.tree(7), [0xFFFFFFFF, 0x1FFFD]),
    (shared_root.root(7), [0xFFFFFFFF, 0x1FFFD])])
def test_our_qdisc_is_asked_for_where_it_may_be(monkeypatch, found, parents):
    asked = []

    def ask(message):
        asked.append(message)
        return found[2] if len(asked) == len(parents) else shared_root.root(
            7)[2]

    monkeypatch.setattr(owned.kernel, 'ask', ask)
    assert owned.has_our_tree(7) == (found != shared_root.root(7))
    # RTM_GETQDISC, with an answer to who asks; see owned.
    assert asked == [(38, 8, struct.pack('=BxxxiIII', 0, 7, 0, parent, 0))
                     for parent in parents]
