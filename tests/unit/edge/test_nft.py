# SPDX-License-Identifier: Apache-2.0

"""What is asked of nftables, and what its listings mean."""

import json

from msgspec import structs
import pytest

from edge_module.classify import classified as base
from edge_module.classify import nft
from edge_module.classify import nft_listing
from edge_module.classify import nft_text
from edge_module.privileged import devices
from edge_module.privileged import operations
from edge_module.tcplan import model
from tests.unit.edge import test_tcplan
from virtco import exception
from virtco.wire import edge_policy

PAIR = base.Entry(1, '10.0.0.1', '10.0.0.2')
PORT = base.Entry(1, '10.0.0.1', '10.0.0.2', 80)
SIX = base.Entry(1, 'fd00::1', 'fd00::2')
LO = frozenset({('lo', 1)})
#: It may be there, or not.
ANEW = ('add table netdev virtco\ndelete table netdev virtco\n'
        'add table netdev virtco\nadd map ')


class _Kernel:
    """Knows one listing, and keeps the commands."""

    def __init__(self, *objects):
        self.listing = json.dumps({'nftables': objects})
        self.commands = []

    def nft_change(self, hook, changes):
        at = nft_text.HOOKS[hook]
        self.commands.append(''.join(
            change.commands(at) for change in changes))

    def nft_read(self, listings):
        return [self.listing for _ in listings]

    def bpf_change(self, hook, changes):
        assert changes == [operations.DeleteTable()]
        return 'nothing is pinned'


def _map(name, elements=()):
    types = list(nft_text.INGRESS.maps()[name])
    return {'map': {'name': name, 'type': types if len(types) > 1
                    else types[0], 'elem': list(elements)}}


def _element(*parts, value='7000:11', count=5):
    return [{'elem': {'val': {'concat': list(parts)}, 'counter': {
        'bytes': count, 'packets': 1}}}, value]


def _rules(chains):
    return [{'rule': {'chain': chain, 'comment': name}}
            for chain, names in chains.items() for name in names]


def _listing(elements=(), rules=(), devs=('dev_1', 'towards_1'),
             control=(), fixed=nft_text.INGRESS.fixed(),
             unmanaged=nft_text.UNMANAGED[False], to=(),
             sets=('peers4_1', 'peers6_1', 'near_1', 'owed_1'),
             own='7000:7001 lo'):
    found = {'ingress_pair4': elements, 'ingress_control': control,
             'ingress_to': to, 'ingress_others': [['lo', '7000:c002']]
             if 'to' in unmanaged['unmanaged'] else ()}
    return [*(_map(name, found.get(name, ()))
              for name in nft_text.INGRESS.maps()),
            *({'set': {'name': f'ingress_{name}'}}
              for name in ('reached', 'reaching', 'fragmenting', 'received')),
            *({'set': {'name': name}} for name in sets),
            *_rules(fixed), *_rules(unmanaged),
            *({'chain': {'name': name}} for name in (*unmanaged, *devs)),
            *({'rule': {'chain': name, 'comment': comment}}
              for name in devs if name.startswith('dev_')
              for comment in ('', own)),
            *({'rule': {'chain': 'classify', 'comment': name}}
              for name in rules)]


def _commands(*objects, entries=None, control=None, limits=None):
    kernel = _Kernel(*objects)
    nft.NftClassifier(kernel).replace(base.Table(LO, entries or {}, {
        'control': {base.MapKey(ifindex): to for ifindex, to in (
            control or {}).items()},
        **({} if limits is None else {
            'to': limits, 'others': {base.MapKey(1): 0xc002}})}))
    return ''.join(kernel.commands)


def test_only_maps_that_hold_something_are_asked():
    text = _commands(*_listing(), entries={PAIR: 0x11})
    assert '@ingress_pair4' in text
    for name in ('port4', 'pair6', 'port6'):
        assert f'@ingress_{name}' not in text
    text = _commands(*_listing(), entries={PAIR: 0x11, PORT: 0x12, SIX: 0x13})
    places = [text.index(f'map @ingress_{name}')
              for name in ('port4', 'pair4', 'pair6')]
    assert places == sorted(places)


def test_fragments_are_looked_for_where_ports_are():
    text = _commands(*_listing(), entries={PAIR: 0x11})
    assert '@ingress_frag' not in text
    text = _commands(*_listing(), entries={PAIR: 0x11, PORT: 0x12})
    places = [text.index(f'comment "{name}"')
              for name in ('later4', 'first4', 'port4', 'pair4')]
    assert places == sorted(places) and 'later6' not in text


def test_a_port_that_no_entry_matches_has_its_own_class():
    """Whatever priority a packet brought along."""
    text = _commands(*_listing(devs=()))
    rule = 'add rule netdev virtco dev_1 '
    assert (f'{rule}jump classify\n'
            f'{rule}meta priority set 7000:7001 comment "7000:7001 lo"\n'
            in text)


@pytest.mark.parametrize('own', ['7000:7002 lo', '', '7000:7001',
                                 '7000:7001 tap1'])
def test_a_port_whose_class_changed_is_attached_again(own):
    """In one transaction, after another port left, an upgrade, or when it has
    another name.
    """
    kernel = _Kernel(*_listing(own=own))
    classifier = nft.NftClassifier(kernel)
    assert classifier.replace(base.Table(LO)) == 2
    text, = kernel.commands
    assert text.index('delete chain netdev virtco dev_1\n') < text.index(
        'add chain netdev virtco dev_1 ')
    assert 'meta priority set 7000:7001 comment' in text
    assert classifier.replace(base.Table(LO)) == 0


def test_a_table_without_the_sets_of_its_ports_is_replaced():
    """One that an older release made."""
    text = _commands(*_listing(sets=()))
    assert text.startswith(ANEW)
    assert text.index('add set netdev virtco peers4_1 ') < text.index(
        'update @peers4_1 { ip daddr }')


def test_sets_of_ports_that_are_gone_are_deleted():
    sets = [f'{name}_{port}' for name in ('peers4', 'peers6', 'near', 'owed')
            for port in (1, 9)]
    # The kernel deleted the chains, which is not known.
    assert _commands(*_listing(sets=sets)) == (
        nft_text.delete_port_chain(nft_text.INGRESS, 9))
    # The sets of an uplink are no port's.
    text = _commands(*_listing(sets=(*sets[::2], 'nearby_9')))
    assert text == nft_text.delete_uplink_chain(nft_text.INGRESS, 9, True)


def test_what_no_entry_matches_is_told_by_port():
    def listed(name, *elements):
        return {'set': {'name': name, 'elem': [
            {'elem': {'val': address, 'counter': {
                'packets': 2, 'bytes': count}}}
            for address, count in elements]}}

    kernel = _Kernel(*_listing())
    classifier = nft.NftClassifier(kernel)
    classifier.replace(base.Table(LO))
    kernel.listing = json.dumps({'nftables': [
        {'metainfo': {}}, {'set': {'name': 'ingress_seen', 'elem': [
            {'elem': {'val': MAC, 'expires': 3}}]}},
        listed('peers4_1', ('10.0.0.2', 700)),
        listed('peers6_1', ('fd00::2', 800))]})
    assert classifier.peers() == {
        ('lo', '10.0.0.2'): model.Counts(700, 2),
        ('lo', 'fd00::2'): model.Counts(800, 2)}


MAC = 'fa:16:3e:00:00:01'
FOLLOWING = nft_text.UNMANAGED[True]


def test_unmanaged_packets_are_followed_where_there_are_limits():
    limits = {base.MapKey(1, MAC): 0xc102}
    text = _commands(*_listing(), limits=limits)
    assert f'ingress_to {{ 1 . {MAC} : 7000:c102 }}' in text
    assert 'ingress_others { 1 : 7000:c002 }' in text
    places = [text.index(f'comment "{name}"')
              for name in ('to', 'known', 'seen', 'others')]
    assert places == sorted(places)
    standing = _listing(unmanaged=FOLLOWING, to=[
        [{'concat': ['lo', MAC]}, '7000:c102']])
    assert _commands(*standing, limits=limits) == ''
    text = _commands(*standing)
    assert all(f'flush chain netdev virtco {chain}\n' in text
               for chain in FOLLOWING)
    assert f'delete element netdev virtco ingress_to {{ 1 . {MAC} }}' in text


def test_limits_are_by_port_and_destination():
    """Nftables cannot add a seat to a class."""
    policy = structs.replace(
        test_tcplan.policy([]), unmanaged=edge_policy.Unmanaged(
            1e6, (MAC,), (edge_policy.DestinationLimit(
                'h3', 2, 1e6, ('m2',)),)))
    table = nft.NftClassifier(_Kernel()).build_table(policy, [
        base.VmPort('v1', 'tap1', 5), base.VmPort('v2', 'tap2', 6)],
        {base.Exit('eth1', 3, True): ()})
    assert table.maps['to'] == {
        base.MapKey(5, MAC): 0xc005, base.MapKey(5, 'm2'): 0xc205,
        base.MapKey(6, MAC): 0xc006, base.MapKey(6, 'm2'): 0xc206,
        base.MapKey(3, MAC): 0xc0fe, base.MapKey(3, 'm2'): 0xc2fe}


def test_destinations_are_told_by_port():
    kernel = _Kernel(*_listing())
    classifier = nft.NftClassifier(kernel)
    classifier.replace(base.Table(LO, maps={
        'others': {base.MapKey(1): 0xc002}}))
    assert ('update @ingress_reaching { iif limit rate 96/second burst 128 '
            'packets } add @ingress_reached { iif . ether daddr } accept'
            in kernel.commands[0])
    kernel.listing = json.dumps({'nftables': [
        {'metainfo': {}}, {'set': {'name': 'ingress_reached', 'elem': [
            {'elem': {'val': {'concat': ['lo', MAC]}, 'expires': 3}},
            {'elem': {'val': {'concat': [9, MAC]}, 'expires': 3}}]}}]})
    assert classifier.destinations() == {('lo', MAC), ('9', MAC)}


def test_data_from_other_hosts_are_counted_by_port():
    kernel = _Kernel(*_listing(devs=()))
    classifier = nft.NftClassifier(kernel)
    assert classifier.received() == {}
    classifier.replace(base.Table(LO))
    text = ''.join(kernel.commands)
    # Packets of a VM here have a class.
    places = [text.index(part) for part in (
        'meta priority & 0xffff0000 == 0x70000000 accept',
        'update @near_1 { ether saddr }',
        'update @owed_1 { ether saddr } update @ingress_received { oif }')]
    assert places == sorted(places)
    kernel.listing = json.dumps({'nftables': [
        {'metainfo': {}}, {'set': {'name': 'ingress_received', 'elem': [
            {'elem': {'val': 'lo', 'expires': 3, 'counter': {
                'packets': 2, 'bytes': 3000}}}]}}]})
    assert classifier.received() == {'lo': (3000, 2, 0)}
    kernel.listing = json.dumps({'nftables': []})
    assert classifier.received() == {}


@pytest.mark.parametrize('chain', FOLLOWING)
def test_table_that_follows_by_half_is_replaced(chain):
    text = _commands(*_listing(unmanaged=FOLLOWING | {
        chain: FOLLOWING[chain][1:]}), limits={})
    assert text.startswith(ANEW) and 'comment "seen"' in text


def test_packets_of_the_host_are_told_at_the_uplink(monkeypatch):
    """Those that are in a class stay there; what stands is left alone."""
    uplink = base.Exit('eth1', 2, True)
    table = base.Table(LO, maps={'home': {base.MapKey(2, MAC): 2}},
                       uplinks=frozenset({uplink}))
    kernel = _Kernel(*_listing())
    classifier = nft.NftClassifier(kernel)
    classifier.replace(table)
    text, = kernel.commands
    rule = 'add rule netdev virtco uplink_2 '
    assert (f'ingress_home {{ 2 . {MAC} : 7000:2 }}' in text
            and 'add chain netdev virtco uplink_2 { type filter hook '
            'egress device "eth1" priority 0; }\n'
            f'{rule}meta priority & 0xffff0000 != 0 accept\n'
            f'{rule}meta priority set oif . ether saddr map @ingress_home '
            'accept\n' in text)
    assert classifier.replace(table) == 0 and len(kernel.commands) == 1
    monkeypatch.setattr(devices, 'name', {1: 'lo', 2: 'eth1'}.get)
    devs = 'dev_1', 'towards_1', 'uplink_2', 'from_2'
    sets = 'peers4_1', 'peers6_1', 'near_1', 'owed_1', 'nearby_2'
    standing = nft.NftClassifier(_Kernel(*_listing(
        devs=devs, sets=sets))).dump()
    assert standing.uplinks == {uplink} and standing.is_whole
    assert nft.NftClassifier(_Kernel(*_listing(
        devs=devs[:3], sets=sets))).dump().uplinks == {
            uplink._replace(learns=False)}
    classifier.replace(base.Table(LO))
    assert kernel.commands[1] == (
        f'delete element netdev virtco ingress_home {{ 2 . {MAC} }}\n'
        'add chain netdev virtco uplink_2\n'
        'delete chain netdev virtco uplink_2\n'
        'add chain netdev virtco from_2\n'
        'delete chain netdev virtco from_2\n'
        'delete set netdev virtco nearby_2\n')


def test_receivers_are_not_told_apart():
    policy = structs.replace(
        test_tcplan.policy([test_tcplan.coflow(16, 1e6)]),
        unmanaged=edge_policy.Unmanaged(1e6))
    coflow, = policy.classes
    to, = coflow.destinations
    policy = structs.replace(policy, classes=(structs.replace(
        coflow, destinations=(structs.replace(to, macs=(MAC,)),)),))
    maps = nft.NftClassifier(_Kernel()).build_table(policy, [], {}).maps
    assert maps.keys() == {'control', 'home', 'to', 'others'}


@pytest.mark.parametrize('learns', [True, False])
def test_unknown_ports_are_limited_by_destination(learns):
    """Those to whom nobody near is sent to share a class, where it is known
    who is near. Distributed routers do not hear of those that they send to.
    """
    kernel = _Kernel(*_listing())
    nft.NftClassifier(kernel).replace(base.Table(
        LO, maps={'to': {base.MapKey(2, MAC): 0xc1fe},
                  'others': {base.MapKey(2): 0xc0fe}},
        uplinks=frozenset({base.Exit('eth1', 2, learns)})))
    text, = kernel.commands
    rule = 'add rule netdev virtco uplink_2 '
    unicast = 'ether daddr & 01:00:00:00:00:00 == 00:00:00:00:00:00'
    assert text.endswith(f'{rule}meta priority set 7000:6\n' + (
        f'{rule}ether daddr @nearby_2 goto unknown\n{rule}{unicast} '
        'ether saddr & ff:ff:ff:00:00:00 == fa:16:3f:00:00:00 goto unknown'
        '\n' if learns
        else f'{rule}{unicast} goto unknown\n')
        + f'{rule}meta priority set oif map @ingress_others\n')
    assert ('from_2 update @nearby_2 { ether saddr }' in text) == learns
    assert ('update @ingress_reaching { oif limit rate 1024/second burst 1024 '
            'packets } add @ingress_reached { oif . ether daddr } accept'
            in text)


def test_control_packets_have_their_class():
    text = _commands(*_listing(control=[['lo', '7000:9001'],
                                        ['12', '7000:900c']]),
                     entries={PAIR: 0x11}, control={1: 0x9001, 13: 0x900d})
    assert '{ 13 : 7000:900d }' in text
    assert 'delete element netdev virtco ingress_control { 12 }' in text
    assert '7000:9001' not in text


@pytest.mark.parametrize('chain', nft_text.INGRESS.fixed())
def test_table_without_one_of_its_fixed_rules_is_replaced(chain):
    fixed = nft_text.INGRESS.fixed()
    missing, *rest = fixed[chain]
    text = _commands(*_listing(fixed=fixed | {chain: rest}))
    assert text.startswith(ANEW)
    assert f'comment "{missing}"' in text


def test_a_port_without_the_chain_that_knows_who_is_near_is_hooked_again():
    text = _commands(*_listing(devs=('dev_1',)))
    assert text.startswith(nft_text.delete_port_chain(nft_text.INGRESS, 1))
    assert text.endswith(nft_text.port_chain(
        nft_text.INGRESS, 'lo', 1, 0x7001))


def test_packets_to_strangers_share_a_class():
    """One that the VM heard of is no stranger; the others are never limited
    by what the controller says of a destination.
    """
    text = _commands(*_listing(devs=()), limits={base.MapKey(1, MAC): 0xc102})
    places = [text.index(part) for part in (
        'towards_1 { type filter hook egress device "lo"',
        'towards_1 update @near_1 { ether saddr }',
        'jump unmanaged', 'ether daddr != @near_1 goto strangers',
        'goto further')]
    assert places == sorted(places)


def test_a_limited_host_gets_acknowledgements_of_its_own_data_alone():
    """Others share its limit: a flood of them is nobody's connection."""
    text = _commands(*_listing(devs=()), limits={base.MapKey(1, MAC): 0xc102})
    places = [text.index(part) for part in (
        'towards_1 meta l4proto tcp meta length > 140 '
        'ether saddr @owed_1 update @owed_1 { ether saddr }',
        'ether saddr != @owed_1 limit rate 768/second burst 1024 packets '
        'add @owed_1 { ether saddr }',
        'ether daddr @owed_1 jump owed', 'jump unmanaged')]
    assert places == sorted(places)
    text = text[text.index('flush chain netdev virtco unmanaged'):]
    assert text.index('comment "to"') < text.index('jump control ')


def _lengths(rule):
    inside = rule[rule.index('{') + 1:rule.index('}')]
    return {tuple(int(part, 0) for part in item.split(' . '))
            for item in inside.split(', ')}


def test_only_packets_without_data_are_control_packets():
    four = _lengths(nft_text._without_data4())
    assert (0x45, 40, 0x50) in four and (0x45, 52, 0x80) in four
    assert all(length == 4 * ((first & 15) + (tcp >> 4))
               for first, length, tcp in four)
    assert all(length == 4 * (tcp >> 4) for length, tcp
               in _lengths(nft_text._without_data6()))


def test_all_lengths_of_headers_are_control_packets():
    """Of 20 to 60 bytes each, by the words that each says it has."""
    assert _lengths(nft_text._without_data4()) == {
        (0x40 + words, 4 * words + 4 * tcp, 16 * tcp + flag)
        for words in range(5, 16) for tcp in range(5, 16) for flag in (0, 1)}
    assert _lengths(nft_text._without_data6()) == {
        (4 * tcp, 16 * tcp + flag)
        for tcp in range(5, 16) for flag in (0, 1)}


@pytest.mark.parametrize('first, last, condition', [
    (0x7000, 0x7fff, nft_text._IN_PORT),
    (0x9000, 0x9fff, nft_text._IN_CONTROL),
    (0xc000, 0xfffe, nft_text._IN_LIMITED)])
def test_masks_tell_the_kinds_of_classes(first, last, condition):
    """Those of ports, of their control packets and of limited hosts."""
    mask, value = (int(part, 16) for part in condition.removeprefix(
        'meta priority & ').split(' == '))
    told = [minor for minor in range(0xffff)
            if (0x70000000 | minor) & mask == value]
    assert told == list(range(first, last + 1))


@pytest.mark.parametrize('hook', nft_text.HOOKS.values())
@pytest.mark.parametrize('kind', nft_text.FRAGMENTS)
def test_fragments_are_told_apart_by_device(hook, kind):
    """Rules that add, and that look up, name all parts of the map's key."""
    key, types = hook._fragment(kind)
    assert hook.maps()[hook.map_name(kind)] == types
    assert len(types) == len(key.split(' . '))
    assert key.startswith(f'{hook.dev} . ') and types[0] == 'iface_index'
    text = hook.skeleton()
    assert (f'{hook.map_name(kind)} {{ typeof {key} : meta priority; '
            'size 262144; timeout 2s; ') in text
    assert (f'add set netdev virtco {hook.name}_fragmenting {{ type '
            'iface_index; size 4096; timeout 2s; ') in text
    number = kind[-1]
    rules = hook.set_rules([f'later{number}', f'first{number}'], False)
    assert (f'meta priority set {key} map @{hook.map_name(kind)} goto managed'
            in rules)
    assert (f'update @{hook.name}_fragmenting {{ {hook.dev} limit rate '
            f'1024/second burst 1024 packets }} update @{hook.map_name(kind)} '
            f'{{ {key} : meta priority }}' in rules)


@pytest.mark.parametrize(('kind', 'condition', 'key'), [
    ('pair4', '', 'ip saddr . ip daddr'),
    ('port4', 'ip frag-off & 0x1fff 0 ',
     'ip saddr . ip daddr . meta l4proto . th dport'),
    ('pair6', '', 'ip6 saddr . ip6 daddr'),
    ('port6', '', 'ip6 saddr . ip6 daddr . meta l4proto . th dport')])
def test_a_packet_is_looked_up_by_the_key_of_its_kinds_map(kind, condition,
                                                           key):
    for hook, dev in (nft_text.INGRESS, 'iif . '), (nft_text.EGRESS, 'oif . '):
        assert hook.set_rules([kind], False).startswith(
            'flush chain netdev virtco classify\n'
            f'add rule netdev virtco classify {condition}meta priority set '
            f'{dev}{key} map @{hook.name}_{kind} goto managed '
            f'comment "{kind}"\n')


def test_entries_count_and_small_maps_do_not():
    text = nft_text.INGRESS.skeleton()
    maps = {line.split()[4]: 'counter;' in line for line in text.splitlines()
            if line.startswith('add map')}
    assert maps == {f'ingress_{kind}': kind[:4] in ('port', 'pair')
                    for kind in ('port4', 'pair4', 'port6', 'pair6',
                                 'control', 'to', 'home', 'others', 'frag4',
                                 'frag6')}
    assert ('add set netdev virtco ingress_reached { type iface_index . '
            'ether_addr; size 131072; timeout 4s; flags dynamic,timeout; }'
            in text)
    assert ('add set netdev virtco ingress_reaching { type iface_index; '
            'size 4096; timeout 4s; flags dynamic,timeout; }' in text)
    for hook in nft_text.HOOKS.values():
        rules = [line for line in hook.skeleton().splitlines()
                 if '{ 0x45 . 40 . 0x50, ' in line or '{ 20 . 0x50, ' in line]
        assert [rule.rpartition(' ')[2] for rule in rules] == [
            '"control4"', '"control6"']
        assert all(f' {hook.dev} map @{hook.name}_control' in rule
                   for rule in rules)


def test_sets_of_a_port_are_bounded():
    text = _commands(*_listing(devs=()))
    for name, kept in (('near_1', 'type ether_addr; size 1024; timeout 300s'),
                       ('owed_1', 'type ether_addr; size 4096; timeout 4s'),
                       ('peers4_1', 'type ipv4_addr; size 256; timeout 300s'),
                       ('peers6_1', 'type ipv6_addr; size 256; timeout 300s')
                       ):
        assert f'add set netdev virtco {name} {{ {kept}; flags' in text
    assert 'update @peers4_1 { ip daddr }' in text
    assert 'update @peers6_1 { ip6 daddr }' in text
    assert text.count('meta length <= 140 ether daddr @owed_1 jump') == 1


@pytest.mark.parametrize('entry, kind, keys', [
    (base.Entry(5, '10.0.0.1', '10.0.0.2', 0), 'pair4',
     ['5 . 10.0.0.1 . 10.0.0.2']),
    (base.Entry(5, '10.0.0.1', '10.0.0.2', 80), 'port4',
     [f'5 . 10.0.0.1 . 10.0.0.2 . {name} . 80' for name in ('tcp', 'udp')]),
    (base.Entry(5, 'fd00::1', 'fd00::2', 0), 'pair6',
     ['5 . fd00::1 . fd00::2'])])
def test_an_entry_is_an_element_of_its_kind(entry, kind, keys):
    """One for TCP and one for UDP where it has a port."""
    for hook in nft_text.HOOKS.values():
        name = f'element netdev virtco {hook.name}_{kind}'
        assert nft_text.entry_commands(hook, [entry], []) == (
            f'delete {name} {{ {", ".join(keys)} }}\n')
        assert nft_text.entry_commands(hook, [], [(entry, 0x1a)]) == (
            'add {} {{ {} }}\n'.format(
                name, ', '.join(f'{key} : 7000:1a' for key in keys)))
    assert nft_text.minor(nft_text.classid(0x1a)) == 0x1a


FOUR, SIXES = ('ipv4_addr',) * 2, ('ipv6_addr',) * 2
PORTS = 'inet_proto', 'inet_service'
OF_ALL = {
    'port4': (*FOUR, *PORTS), 'pair4': FOUR, 'port6': (*SIXES, *PORTS),
    'pair6': SIXES, 'frag4': (*FOUR, 'integer'),
    'frag6': ('integer', 'integer')}


@pytest.mark.parametrize('hook', nft_text.HOOKS.values())
def test_the_types_of_keys_are_those_of_packets(hook):
    """They begin with the device; nftables lists the types alike."""
    assert hook.maps() == {
        f'{hook.name}_{name}': types for name, types in (
            {name: ('iface_index', *types)
             for name, types in OF_ALL.items()} | {
                'control': ('iface_index',), 'others': ('iface_index',),
                'to': ('iface_index', 'ether_addr'),
                'home': ('iface_index', 'ether_addr')}).items()}


def test_what_is_deleted_of_a_port_is_what_was_made_for_it():
    """At the uplink there are no sets, and nothing is sent to it."""
    assert nft_text.delete_port_chain(nft_text.EGRESS, 1) == (
        'add chain netdev virtco dev_1\ndelete chain netdev virtco dev_1\n')
    assert nft_text.delete_port_chain(nft_text.INGRESS, 1) == ''.join((
        *(f'{verb} chain netdev virtco {name}_1\n'
          for name in ('dev', 'towards') for verb in ('add', 'delete')),
        *(f'delete set netdev virtco {name}_1\n'
          for name in ('peers4', 'peers6', 'near', 'owed'))))


class _AtUplink(_Kernel):
    """Knows a whole table at the uplink."""

    def __init__(self, elements, rules):
        maps = [{'map': {'name': name, 'type': list(types) if len(types) > 1
                         else types[0], 'elem': elements if name.endswith(
                             rules[0]) else []}}
                for name, types in nft_text.EGRESS.maps().items()]
        super().__init__(*maps, *(
            {'chain': {'name': name}} for name in nft_text.UNMANAGED[False]),
            *_rules(nft_text.EGRESS.fixed() | nft_text.UNMANAGED[False]),
            *({'set': {'name': f'egress_{name}'}}
              for name in nft_text.SETS),
            {'chain': {'name': 'dev_1'}},
            {'rule': {'chain': 'dev_1', 'comment': '7000:7001 lo'}}, *(
            {'rule': {'chain': 'classify', 'comment': name}}
            for name in rules))


def test_what_stands_at_the_uplink_is_left_alone():
    kernel = _AtUplink([_element('lo', '10.0.0.1', '10.0.0.2')], ['pair4'])
    classifier = nft.NftClassifier(kernel, 'lo')
    assert classifier.replace(base.Table(LO, {PAIR: 0x11})) == 0
    assert kernel.commands == []
    # Its packets may come from any port.
    assert classifier.counted() == {('', PAIR): model.Counts(5, 1)}


def test_packets_of_both_protocols_count_for_an_entry():
    """And elements without a counter are entries as well."""
    kernel = _Kernel(*_listing(rules=['port4']))
    classifier = nft.NftClassifier(kernel)
    classifier.known = classifier.dump()
    kernel.listing = json.dumps({'nftables': [{'map': {
        'name': 'ingress_port4', 'type': list(
            nft_text.INGRESS.maps()['ingress_port4']), 'elem': [
            _element('lo', '10.0.0.1', '10.0.0.2', 'tcp', 80, count=7),
            _element('lo', '10.0.0.1', '10.0.0.2', 'udp', 80, count=9),
            [{'concat': ['lo', '10.0.0.3', '10.0.0.2', 'udp', 443]},
             '7000:12']]}}]})
    assert classifier.counted() == {
        ('lo', PORT): model.Counts(16, 2),
        ('lo', base.Entry(1, '10.0.0.3', '10.0.0.2', 443)): model.Counts()}


def test_a_name_of_no_device_is_no_device():
    """It came after the names were read; an ifindex stands for itself."""
    table = nft_listing.standing(nft_text.INGRESS, _listing([
        _element(dev, '10.0.0.1', '10.0.0.2')
        for dev in ('no-such', '4711', 'lo')], ['pair4']))
    assert [entry.ifindex for entry in table.entries] == [-1, 4711, 1]


def test_the_port_tells_which_of_its_destinations_are_read():
    asked = []
    kernel = _Kernel(*_listing())
    classifier = nft.NftClassifier(kernel)
    assert not classifier.ports() and classifier.peers([1]) == {}
    classifier.replace(base.Table(LO))
    kernel.nft_read = lambda listings: asked.append(listings) or [
        None for _ in listings]
    assert list(classifier.ports()) == [1]
    for ifindexes in None, [1], [2], []:
        assert classifier.peers(ifindexes) == {}
    assert asked == 2 * [[operations.Listing('set', 'peers4_1'),
                          operations.Listing('set', 'peers6_1')]]


def test_what_is_right_is_left_alone():
    listing = _listing([_element('lo', '10.0.0.1', '10.0.0.2')],
                       ['pair4'])
    assert _commands(*listing, entries={PAIR: 0x11}) == ''


def test_rules_that_somebody_changed_are_set_again():
    listing = _listing([_element('lo', '10.0.0.1', '10.0.0.2')], ['port4'])
    text = _commands(*listing, entries={PAIR: 0x11})
    assert text.startswith('flush chain') and 'element' not in text


def test_table_of_another_make_is_replaced():
    listing = _listing()
    listing[0]['map']['name'] = 'ingress_other'
    text = _commands(*listing, entries={PAIR: 0x11})
    assert text.startswith(ANEW) and 'add map' in text


@pytest.mark.parametrize('dev', ['dev_1_lo', 'towards_9_tap9', 'from_x'])
def test_table_of_an_earlier_version_is_replaced(dev):
    """Its chains would keep the sets of ports from being deleted."""
    text = _commands(*_listing(devs=('dev_1', 'towards_1', dev)))
    assert text.startswith(ANEW)


def test_entry_of_a_device_that_is_gone_is_deleted_by_its_number():
    listing = _listing([_element('4711', '10.0.0.1', '10.0.0.2')],
                       ['pair4'])
    text = _commands(*listing, entries={PAIR: 0x11})
    assert '{ 4711 . 10.0.0.1 . 10.0.0.2 }' in text
    assert '{ 1 . 10.0.0.1 . 10.0.0.2 : 7000:11 }' in text


def test_element_that_is_listed_twice_counts_once():
    element = _element('lo', '10.0.0.1', '10.0.0.2', count=7)
    kernel = _Kernel(*_listing([element, element], ['pair4']))
    classifier = nft.NftClassifier(kernel)
    table = classifier.dump()
    assert (table.hooks, table.entries, table.maps) == (LO, {PAIR: 0x11}, {})
    assert classifier.counted() == {('lo', PAIR): model.Counts(7, 1)}


def test_what_nftables_refuses_is_known_no_more():
    kernel = _Kernel(*_listing())
    classifier = nft.NftClassifier(kernel)
    classifier.replace(base.Table(LO, {PAIR: 0x11}))
    assert classifier.known is not None
    asked = []
    kernel.nft_change = lambda hook, changes: (
        asked.append(changes) or f'  Error: {"x" * 500}\n')
    kernel.nft_read = lambda listings: [None for _ in listings]
    with pytest.raises(exception.KernelRefused) as error:
        classifier.replace(base.Table(LO, {PORT: 0x11}))
    assert {name: error.value.kwargs[name] for name in ('what', 'count')} == {
        'what': 'change the classification', 'count': 1}
    assert error.value.kwargs['why'] == ('Error: ' + 'x' * 500)[:400]
    assert classifier.known is None
    # Without a port to attach there is nothing to try in parts.
    assert len(asked) == 1
    assert not classifier.remove()
    assert classifier.counted() == {} and classifier.peers() == {}
    assert classifier.destinations() == frozenset()


class _Picky(_Kernel):
    """Refuses whatever attaches one of the ports."""

    def __init__(self, *refuses):
        super().__init__(*_listing(devs=()))
        self.refuses = refuses

    def nft_change(self, hook, changes):
        for change in changes:
            if getattr(change, 'dev', None) in self.refuses:
                raise exception.KernelRefused(what='hook', count=1,
                                              why=f'not {change.dev}')
        return super().nft_change(hook, changes)


def test_a_port_that_cannot_be_hooked_leaves_the_others_classified():
    kernel = _Picky('bad0')
    classifier = nft.NftClassifier(kernel)
    table = base.Table(LO | {('bad0', 7)}, {PAIR: 0x11})
    classifier.replace(table)
    assert ['device "lo"' in text for text in kernel.commands] == [
        False, True]
    assert 'add element' in kernel.commands[0]
    assert list(classifier.refused) == [('bad0', 7)]
    assert 'not bad0' in classifier.refused['bad0', 7]
    # It is tried again after an audit, and no earlier.
    kernel.commands.clear()
    assert not classifier.replace(table) and not kernel.commands
    kernel.refuses = ()
    kernel.listing = json.dumps({'nftables': _listing(
        [_element('lo', '10.0.0.1', '10.0.0.2')], ['pair4'])})
    classifier.forget()
    assert classifier.replace(table) == 1 and not classifier.refused
    assert ['device "bad0"' in text for text in kernel.commands] == [True]


def test_a_refused_port_that_goes_is_forgotten():
    classifier = nft.NftClassifier(_Picky('lo'))
    classifier.replace(base.Table(LO))
    assert classifier.refused
    classifier.replace(base.Table())
    assert not classifier.refused


def test_a_refusal_that_is_no_ports_fault_is_raised():
    kernel = _Kernel(*_listing(devs=()))
    kernel.nft_change = lambda hook, changes: 'no such thing'
    classifier = nft.NftClassifier(kernel)
    with pytest.raises(exception.KernelRefused):
        classifier.replace(base.Table(LO, {PAIR: 0x11}))
    assert classifier.known is None and not classifier.refused


def test_at_the_uplink_no_entry_names_a_port():
    """Of the flows of VMs that are here; of two alike the first."""
    kernel = _Kernel()
    kernel.nft_read = lambda listings: [None for _ in listings]
    classifier = nft.NftClassifier(kernel, 'lo')
    flows = [edge_policy.FlowEntry('c', vm, '10.0.0.1', '10.0.0.2', minor,
                                   port)
             for vm, minor, port in (('v1', 0x11, None), ('v1', 0x12, None),
                                     ('v2', 0x13, None), ('v1', 0x14, 80))]
    # Limits are of a port's packets alone.
    policy = structs.replace(
        test_tcplan.policy([test_tcplan.coflow(0x10, 1e6, (1.0, 1.0, 1.0))]),
        flows=tuple(flows), unmanaged=edge_policy.Unmanaged(1e6))
    table = classifier.build_table(policy, [base.VmPort('v1', 'tap1', 5)],
                                   {('lo', 1): [MAC]})
    assert table.hooks == LO
    assert table.maps == {'control': {base.MapKey(1): 0x9000}}
    assert classifier.replace(table) == 3
    text, = kernel.commands
    assert ('add element netdev virtco egress_pair4 '
            '{ 1 . 10.0.0.1 . 10.0.0.2 : 7000:11 }\n') in text
    assert ('egress_port4 { 1 . 10.0.0.1 . 10.0.0.2 . tcp . 80 : 7000:14, '
            '1 . 10.0.0.1 . 10.0.0.2 . udp . 80 : 7000:14 }') in text
    assert ('dev_1 { type filter hook egress device "lo" priority 0; }\n'
            'add rule netdev virtco dev_1 goto classify '
            'comment "7000:7001 lo"\n') in text
    assert classifier.replace(table) == 0
    assert not classifier.ports() and classifier.peers() == {}
    nobody = nft.NftClassifier(kernel, 'nobody')
    with pytest.raises(exception.NotFound, match='nobody'):
        nobody.build_table(policy, [], {})
