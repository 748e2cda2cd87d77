# SPDX-License-Identifier: Apache-2.0

"""What is asked of the maps and programs, and what they are read to be."""

import dataclasses
import errno
import os
import time

import msgspec
from msgspec import structs
import pytest

from edge_module.classify import bpf
from edge_module.classify import bpf_maps
from edge_module.classify import classified as base
from edge_module.classify import nft
from edge_module.privileged import bpf as executor
from edge_module.privileged import devices
from edge_module.privileged import guarded
from edge_module.privileged import operations
from edge_module.privileged import pinned
from edge_module.tcplan import minors
from edge_module.tcplan import model
from tests.unit.edge import test_tcplan
from virtco import exception
from virtco.wire import edge_policy

PAIR = base.Entry(5, '10.0.0.1', '10.0.0.2')
PORT = base.Entry(5, '10.0.0.1', '10.0.0.2', 80)
SIX = base.Entry(5, 'fd00::1', 'fd00::2', 80)
TAP1, TAP2 = ('tap1', 5), ('tap2', 6)
WIRE = base.Exit('eth0', 2, False)
TUNNEL = base.Exit('vxlan0', 3, True)
NAMES = {1: 'lo', **{ifindex: dev for dev, ifindex, *_ in (
    TAP1, TAP2, WIRE, TUNNEL)}}
MAC, OTHER = 'fa:16:3e:00:00:01', 'fa:16:3e:00:00:02'
N_PROCESSORS = 3


class Pins:
    """In place of ``pinned.Tables``: what its methods leave behind.

    :ivar attached: (program, ifindex) in the order in which they came.
    :ivar lost: those of them that the kernel let go, as with a device.
    :ivar most: room in each map.
    :ivar others: directories of other versions of the program.
    """

    def __init__(self):
        self.maps = None
        self.attached, self.lost, self.calls = [], set(), []
        self.most = 1000
        self.others = 0
        self.refuses = {}

    def _map(self, name):
        if self.maps is None or name not in self.maps:
            raise FileNotFoundError(errno.ENOENT, f'open {name}')
        return self.maps[name]

    def load(self):
        self.calls.append('load')
        self.maps = {name: {} for name in bpf_maps.MAPS}
        self.maps['settings'][bpf_maps.IFINDEX.pack(0)] = bytes(8)
        self.attached, self.lost = [], set()

    def remove(self, but_these=False):
        if self.others or not but_these:
            self.calls.append('remove others' if but_these else 'remove')
        found = self.others + (self.maps is not None and not but_these)
        self.others = 0
        if not but_these:
            self.maps, self.attached = None, []
        return bool(found)

    def links(self):
        self._map('settings')
        return [(bpf_maps.PROGRAMS.index(program), ifindex)
                for program, ifindex in self.attached
                if (program, ifindex) not in self.lost]

    def attach(self, ifindex, programs, among=None):
        if among is not None:
            self._map(among)[bpf_maps.IFINDEX.pack(ifindex)] = b''
        for program in programs:
            if program in self.refuses.get(ifindex, ()):
                raise OSError(errno.ENODEV, f'attach {program} to ifindex '
                              f'{ifindex}: {os.strerror(errno.ENODEV)}')
            self.lost.discard((program, ifindex))
            if (program, ifindex) not in self.attached:
                self.calls.append(f'attach {program} {ifindex}')
                self.attached.append((program, ifindex))

    def detach(self, ifindex):
        self.unlink(ifindex, bpf_maps.PROGRAMS)
        key = bpf_maps.IFINDEX.pack(ifindex)
        for name in bpf_maps.BUCKETS:
            self._map(name).pop(key, None)
        self.replace('devices', [key], {})

    def unlink(self, ifindex, programs):
        for program in programs:
            if (program, ifindex) in self.attached:
                self.calls.append(f'detach {program} {ifindex}')
                self.attached.remove((program, ifindex))

    def set_device(self, ifindex, fields, is_new=True):
        devices, key = self._map('devices'), bpf_maps.IFINDEX.pack(ifindex)
        if key not in devices and not is_new:
            return
        before = (bpf_maps.device(devices[key]) if key in devices
                  else bpf_maps.Device(seed=7))
        self.replace('devices', (), {key: before._replace(**fields).pack()})

    def replace(self, name, stale, fresh):
        found = self._map(name)
        for key in stale:
            if key not in fresh and found.pop(key, None) is not None:
                self.calls.append(f'delete {name}')
        for key, value in fresh.items():
            if key not in found and len(found) == self.most:
                raise OSError(errno.E2BIG, f'change {name}')
            self.calls.append(f'set {name}')
            found[key] = value

    def items(self, name, key_bytes, value_bytes):
        for key, value in self._map(name).items():
            assert (len(key), len(value)) == (key_bytes, value_bytes), name
            yield key, value

    def count(self, entry, *values):
        """Let packets of an entry come: (bytes, packets) by processor."""
        for key in bpf_maps.flow_keys(entry):
            classid, *_ = bpf_maps.FLOW.unpack_from(self.maps['flows'][key])
            self.maps['flows'][key] = b''.join(
                bpf_maps.FLOW.pack(classid, 0, *seen) for seen in values)

    def took(self):
        """What was done since the last time."""
        calls, self.calls = self.calls, []
        return calls


@pytest.fixture
def pins(monkeypatch):
    made = Pins()
    monkeypatch.setattr(pinned, 'Tables', lambda: made)
    monkeypatch.setattr(pinned, 'processors', lambda: N_PROCESSORS)
    monkeypatch.setattr(devices, 'name', lambda number: NAMES.get(number, ''))
    return made


def _table(*hooks, entries=None, uplinks=(), follows=False, **maps):
    if follows:
        maps['others'] = {(5,): 0xc001}
    return base.Table(frozenset(hooks or [TAP1]), entries or {}, {
        kind: {base.MapKey(*key): minor for key, minor in found.items()}
        for kind, found in maps.items()}, frozenset(uplinks))


FULL = _table(TAP1, TAP2, entries={PAIR: 0x11, PORT: 0x12, SIX: 0x13},
              uplinks=[WIRE, TUNNEL], follows=True,
              control={(5,): 0x9001, (6,): 0x9002},
              to={(5, MAC): 0xc102, (3, MAC): 0xc1fe},
              home={(2, OTHER): 2})


def _classifier(table=None, uplink_dev=None):
    classifier = bpf.BpfClassifier(_Kernel(), uplink_dev)
    if table is not None:
        classifier.replace(table)
    return classifier


@pytest.mark.parametrize('table', [_table(), FULL])
def test_what_was_written_is_read_back(pins, table):
    classifier = _classifier(table)
    known = classifier.known
    found = classifier.dump()
    assert known.own == {number: found.own[number]
                         for _, number in table.hooks}
    assert dataclasses.replace(found, own=known.own) == known
    pins.took()
    for _ in range(2):
        assert classifier.replace(table) == 0
        classifier.forget()
    assert _classifier().replace(table) == 0
    assert pins.took() == []


def test_the_first_table_is_made_of_nothing(pins):
    classifier = _classifier()
    assert classifier.dump() == base.Standing()
    assert classifier.counted() == {} and classifier.received() == {}
    assert classifier.destinations() == frozenset()
    assert classifier.peers() == {} and not classifier.remove()
    pins.took()
    pins.others = 1
    assert classifier.replace(_table(entries={PAIR: 0x11})) == 2
    calls = pins.took()
    assert calls[0] == 'load' and calls[-1] == 'remove others'
    # The class is set before the programs that need it are there.
    assert calls.index('set devices') < calls.index('attach from_vm 5')
    assert classifier.remove() and not classifier.remove()


def test_only_differences_are_changed(pins):
    classifier = _classifier(FULL)
    pins.count(PAIR, (7, 1), (0, 0), (0, 0))
    pins.took()
    moved = dataclasses.replace(FULL, entries={PAIR: 0x11, PORT: 0x14})
    # One that is deleted and one that is changed.
    assert classifier.replace(moved) == 3
    assert pins.took() == [*2 * ['delete flows'], *2 * ['set flows'],
                           'set settings']
    assert classifier.counted()['tap1', PAIR] == model.Counts(7, 1)
    assert classifier.counted()['tap1', PORT] == model.Counts()
    alone = dataclasses.replace(moved, entries={PAIR: 0x11})
    classifier.replace(alone)
    settings, = pins.maps['settings'].values()
    assert bpf_maps.SETTINGS.unpack(settings) == (bpf_maps.HAS_PAIRS, 1)
    pins.took()
    classifier.replace(dataclasses.replace(alone, maps={
        **FULL.maps, 'to': {base.MapKey(5, OTHER): 0xc102}}))
    assert pins.took() == 2 * ['delete macs'] + ['set macs']
    classifier.replace(dataclasses.replace(alone, maps={
        'control': {base.MapKey(5): 0x9001}}))
    settings, = pins.maps['settings'].values()
    assert bpf_maps.SETTINGS.unpack(settings) == (bpf_maps.HAS_PAIRS, 0)
    assert classifier.dump().maps == {'control': {base.MapKey(5): 0x9001}}
    assert not pins.maps['macs']


def test_a_port_that_leaves_takes_all_of_its_own(pins):
    classifier = _classifier(FULL)
    pins.took()
    classifier.replace(dataclasses.replace(
        FULL, hooks=frozenset([TAP1]), maps={
            kind: {key: minor for key, minor in found.items()
                   if key.number != 6} for kind, found in FULL.maps.items()}))
    assert pins.took()[-3:] == ['detach from_vm 6', 'detach to_vm 6',
                                'delete devices']
    assert all(ifindex != 6 for _, ifindex in pins.attached)
    assert all(bpf_maps.IFINDEX.pack(6) not in pins.maps[name]
               for name in ('devices', *bpf_maps.BUCKETS))


@pytest.mark.parametrize('ifindex', [6, 3])
def test_a_device_that_went_meanwhile_leaves_nothing(pins, monkeypatch,
                                                     ifindex):
    """Also one whose going nobody saw, such as before a start."""
    _classifier(FULL)
    pins.lost.update((program, ifindex) for program in bpf_maps.PROGRAMS)
    monkeypatch.delitem(NAMES, ifindex)
    left = dataclasses.replace(
        FULL, hooks=frozenset({TAP1, TAP2} - {('tap2', ifindex)}),
        uplinks=FULL.uplinks - {TUNNEL._replace(ifindex=ifindex)}, maps={
            kind: {key: minor for key, minor in found.items()
                   if key.number != ifindex}
            for kind, found in FULL.maps.items()})
    _classifier().replace(left)
    assert all(found != ifindex for _, found in pins.attached)
    assert all(bpf_maps.IFINDEX.pack(ifindex) not in pins.maps[name]
               for name in ('devices', *bpf_maps.BUCKETS))
    assert _classifier().replace(left) == 0


def test_a_port_whose_class_changed_stays_attached(pins):
    """What it learned is not lost, and no packet passes unseen."""
    classifier = _classifier(FULL)
    pins.set_device(5, {'own': 0x70007009, 'received_bytes': 9})
    classifier.forget()
    pins.took()
    assert classifier.replace(FULL) == 2
    assert pins.took() == ['set devices']
    device = bpf_maps.device(pins.maps['devices'][bpf_maps.IFINDEX.pack(5)])
    assert (device.own, device.received_bytes, device.seed) == (
        0x70007005, 9, 7)


@pytest.mark.parametrize('program, ifindex', [
    ('from_vm', 5), ('to_vm', 6), ('to_wire', 2), ('from_wire', 3)])
def test_a_program_that_the_kernel_let_go_is_attached_again(
        pins, program, ifindex):
    classifier = _classifier(FULL)
    pins.lost.add((program, ifindex))
    pins.took()
    assert classifier.replace(FULL) == 0
    classifier.forget()
    classifier.replace(FULL)
    assert not pins.lost
    assert all('load' != call for call in pins.took())
    assert classifier.dump().uplinks == FULL.uplinks


def test_an_exit_that_no_longer_learns_stays_attached(pins):
    classifier = _classifier(FULL)
    pins.took()
    plain = dataclasses.replace(
        FULL, uplinks=frozenset([WIRE, TUNNEL._replace(learns=False)]))
    classifier.replace(plain)
    assert pins.took() == ['detach from_wire 3', 'set devices']
    assert classifier.dump().uplinks == plain.uplinks
    classifier.replace(FULL)
    assert pins.took() == ['set devices', 'attach from_wire 3']
    classifier.replace(dataclasses.replace(FULL, uplinks=frozenset([WIRE])))
    assert pins.took() == ['detach to_wire 3', 'detach from_wire 3',
                           'delete devices']


def test_what_a_port_left_that_could_not_be_attached_is_deleted(pins):
    pins.refuses = {6: ['from_vm']}
    classifier = _classifier(FULL)
    assert [*classifier.refused] == [TAP2]
    classifier.replace(_table(TAP1))
    classifier.forget()
    classifier.replace(_table(TAP1))
    assert [*pins.maps['devices']] == [bpf_maps.IFINDEX.pack(5)]


def test_counters_of_tcp_and_udp_are_added(pins):
    classifier = _classifier(FULL)
    pins.count(PAIR, (100, 1), (0, 0), (20, 2))
    pins.count(PORT, (7, 1), (8, 2), (9, 3))
    assert classifier.counted() == {
        ('tap1', PAIR): model.Counts(120, 3),
        ('tap1', PORT): model.Counts(48, 12),
        ('tap1', SIX): model.Counts()}


def test_an_entry_of_a_device_that_is_gone_belongs_to_no_port(pins):
    """It has the number, and is deleted with the next table."""
    classifier = _classifier(FULL)
    gone = PAIR._replace(ifindex=99)
    executor.bpf_change('ingress', [
        operations.ChangeEntries([], [(gone, 0x11)])])
    assert classifier.counted()['(99)', gone] == model.Counts()
    classifier.forget()
    assert classifier.replace(FULL) == 1
    assert ('(99)', gone) not in classifier.counted()


def test_what_no_entry_matches_is_told_by_port(pins):
    classifier = _classifier(FULL)
    for ifindex, ip in (5, '10.0.0.2'), (6, 'fd00::2'):
        key, = bpf_maps.flow_keys(base.Entry(0, ip, ip))
        *others, last = range(bpf_maps.BUCKETS['of_ports'])
        pins.maps[f'cache-{ifindex}'] = {
            **{bpf_maps.IFINDEX.pack(place): bytes(bpf_maps.BUCKET_BYTES)
               for place in others},
            bpf_maps.IFINDEX.pack(last): bpf_maps._PEER.pack(
                key[-16:], 1, 700, 2).ljust(
                    bpf_maps.BUCKET_BYTES, b'\0')}
    seen = model.Counts(700, 2)
    assert classifier.peers() == {
        ('tap1', '10.0.0.2'): seen, ('tap2', 'fd00::2'): seen}
    assert classifier.peers([6]) == {('tap2', 'fd00::2'): seen}
    assert sorted(classifier.ports()) == [5, 6]
    del pins.maps['cache-6']
    assert classifier.peers([6]) == classifier.peers([]) == {}


def test_destinations_are_those_of_late(pins):
    """Those of earlier are deleted, as the kernel does it only for room."""
    classifier = _classifier(FULL)
    now_s = int(time.monotonic()) + 1
    keys = [bpf_maps.mac_key(0, base.MapKey(*key)) for key in (
        (5, MAC), (5, OTHER), (99, MAC))]
    pins.maps['reached'] = {
        key: bpf_maps.CLASSID.pack(now_s - ago)
        for key, ago in zip(keys, (1, 100, 0))}
    assert classifier.destinations() == {('tap1', MAC), ('99', MAC)}
    assert set(pins.maps['reached']) == {keys[0], keys[2]}
    classifier.replace(dataclasses.replace(FULL, maps={}))
    assert classifier.destinations() == frozenset()


def test_data_from_other_hosts_are_counted_by_port(pins):
    classifier = _classifier(FULL)
    pins.set_device(5, {'received_bytes': 3000, 'received_packets': 2})
    pins.set_device(3, {'received_bytes': 1, 'received_packets': 1})
    assert classifier.received() == {'tap1': model.Counts(3000, 2)}


def test_another_version_of_the_program_takes_the_place_of_this(pins):
    """Its maps have another name, so nothing stands of this version."""
    pins.others = 1
    classifier = _classifier(FULL)
    calls = pins.took()
    assert calls.index('remove others') > calls.index('attach from_vm 6')
    assert classifier.dump().hooks == FULL.hooks


def test_what_an_upgrade_left_that_was_killed_goes_with_the_next_change(pins):
    """Its programs come first, and put packets into classes by old maps."""
    classifier = _classifier(_table())
    pins.others = 1
    classifier.replace(FULL)
    assert pins.others == 0


class _Kernel:
    """Makes each call, and keeps what it was asked for."""

    def __init__(self):
        self.asked, self.nftables = [], []
        self.errors = 'no such table'

    bpf_read = staticmethod(executor.bpf_read)

    def nft_change(self, hook, changes):
        self.nftables.append(changes)
        return self.errors

    def bpf_change(self, hook, changes):
        self.asked.append(changes)
        return executor.bpf_change(hook, changes)


def test_a_port_that_cannot_be_attached_leaves_the_others_classified(pins):
    pins.refuses = {6: ['to_vm']}
    kernel = _Kernel()
    classifier = bpf.BpfClassifier(kernel)
    classifier.replace(FULL)
    assert [*classifier.refused] == [TAP2]
    assert 'attach to_vm to ifindex 6: No such device' in (
        classifier.refused[TAP2])
    assert classifier.dump().hooks == {TAP1, ('', 6)}
    assert classifier.known.hooks == {TAP1}
    assert classifier.dump().entries == FULL.entries
    # It is tried again after an audit, and no earlier.
    kernel.asked.clear()
    assert classifier.replace(FULL) == 0 and not kernel.asked
    pins.refuses = {}
    classifier.forget()
    assert classifier.replace(FULL) == 2 and not classifier.refused
    # First goes what was there of it, if it were of no use.
    assert kernel.asked == [[operations.DetachPort(6),
                             operations.AttachPort('tap2', 6, 0x7006)]]
    assert classifier.dump().hooks == FULL.hooks


def test_a_port_that_is_attached_beside_a_refused_one_keeps_its_maps(pins):
    pins.refuses = {5: ['from_vm'], 6: ['to_vm']}
    classifier = _classifier(FULL)
    assert {*classifier.refused} == {TAP1, TAP2}
    del pins.refuses[6]
    classifier.forget()
    classifier.replace(FULL)
    assert [*classifier.refused] == [TAP1]
    assert classifier.dump().maps['control'][base.MapKey(6)] == 0x9002
    assert classifier.dump().hooks == {('', 5), TAP2}


def test_a_refused_port_that_goes_is_forgotten(pins):
    pins.refuses = {5: ['from_vm']}
    classifier = _classifier(_table())
    assert classifier.refused
    classifier.replace(_table(TAP2))
    assert not classifier.refused and classifier.known.hooks == {TAP2}
    # What there is of it goes with the next audit.
    assert classifier.dump().hooks == {TAP2, ('', 5)}
    classifier.forget()
    classifier.replace(_table(TAP2))
    assert classifier.dump().hooks == {TAP2}


def test_maps_that_are_full_are_told_and_the_next_table_converges(pins):
    classifier = _classifier(FULL)
    many = {base.Entry(5, '10.0.0.1', f'10.1.0.{number}'): 0x11
            for number in range(9)}
    pins.most = 8
    with pytest.raises(exception.KernelRefused, match='flows'):
        classifier.replace(dataclasses.replace(FULL, entries=many))
    assert classifier.known is None
    few = dict([*many.items()][:2])
    classifier.replace(dataclasses.replace(FULL, entries=few))
    assert classifier.dump().entries == few == classifier.known.entries
    assert all('load' != call for call in pins.took()[1:])


def test_maps_that_somebody_took_away_are_made_again(pins):
    classifier = _classifier(FULL)
    pins.remove()
    with pytest.raises(exception.KernelRefused, match='open flows'):
        classifier.replace(dataclasses.replace(FULL, entries={}))
    assert classifier.replace(FULL) == 5
    assert classifier.dump().entries == FULL.entries


def test_limits_are_of_all_devices(pins):
    """Each device has its seat there; else entries would be as many as ports
    times addresses.
    """
    policy = structs.replace(
        test_tcplan.policy([]), unmanaged=edge_policy.Unmanaged(
            1e6, (OTHER,), (edge_policy.DestinationLimit(
                'h2', 3, 1e6, (MAC,)),)))
    ports = [base.VmPort('v1', dev, ifindex) for dev, ifindex in (TAP1, TAP2)]
    classifier = _classifier()
    table = classifier.build_table(policy, ports, {WIRE: [MAC]})
    assert table.maps['to'] == {base.MapKey(0, MAC): minors.of_limit(3),
                                base.MapKey(0, OTHER): minors.of_limit(0)}
    seats = {key.number: minors.seat_of(minor)
             for key, minor in table.maps['others'].items()}
    assert seats == {5: 5, 6: 6, 2: minors.UNKNOWN_SEAT}
    classifier.replace(table)
    assert classifier.dump().maps == table.maps


def test_a_class_has_all_its_receivers_while_entries_need_them(pins):
    def table(*macs, minor):
        return dataclasses.replace(
            FULL, entries={entry: minor for entry in FULL.entries},
            maps={**FULL.maps, 'peer': {base.MapKey(minor, mac): minor
                                        for mac in (*macs, base.ANY)}})

    classifier = _classifier()
    for wanted in table(MAC, minor=17), table(OTHER, MAC, minor=18):
        asked = []
        classifier._ask = lambda changes, is_other=False, told=asked: (
            told.extend(changes)
            or bpf.BpfClassifier._ask(classifier, changes, is_other))
        classifier.replace(wanted)
        assert classifier.dump().maps == wanted.maps
    kinds = [(change.kind, bool(change.stale))
             if isinstance(change, operations.ChangeMap)
             else type(change) for change in asked]
    assert kinds == [('peer', False), operations.ChangeEntries,
                     ('peer', True)]
    # The one that tells that others are known comes last, and goes first.
    added, removed = asked[0].fresh, asked[-1].stale
    assert added[-1] == (base.MapKey(18, base.ANY), 18)
    assert removed[0] == base.MapKey(17, base.ANY)


def test_at_the_uplink_there_is_one_program(pins):
    """Of the flows of VMs that are here; of two alike the first."""
    flows = [edge_policy.FlowEntry('c', 'v1', '10.0.0.1', '10.0.0.2', minor,
                                   port)
             for minor, port in ((0x11, None), (0x12, None), (0x14, 80))]
    policy = structs.replace(
        test_tcplan.policy([test_tcplan.coflow(0x10, 1e6, (1.0, 1.0, 1.0))]),
        flows=tuple(flows), unmanaged=edge_policy.Unmanaged(1e6))
    classifier = _classifier(uplink_dev='lo')
    table = classifier.build_table(policy, [base.VmPort('v1', 'tap1', 5)], {})
    assert classifier.replace(table) == 3
    assert pins.attached == [('by_address', 1)]
    assert classifier.dump().hooks == {('lo', 1)}
    assert classifier.dump().entries == table.entries
    pins.count(PAIR._replace(ifindex=1), (7, 1), (0, 0), (0, 0))
    assert classifier.counted()['', PAIR._replace(ifindex=1)] == (
        model.Counts(7, 1))
    assert not classifier.ports() and classifier.peers() == {}
    # What stands is right after an audit too.
    classifier.forget()
    pins.took()
    assert classifier.replace(table) == 0 and pins.took() == []


@pytest.mark.parametrize('hooks', [[TAP1], []])
def test_another_place_of_classification_leaves_nothing_of_the_first(
        pins, hooks):
    """As when the datapath of Open vSwitch changes its kind."""
    at_ports = base.Table(frozenset(hooks), uplinks=frozenset(
        [base.Exit('lo', 1, True)]))
    at_uplink = base.Table(frozenset([('lo', 1)]))
    for table, uplink_dev in ((at_ports, None), (at_uplink, 'lo'),
                              (at_ports, None)):
        classifier = _classifier(table, uplink_dev)
        assert {program for program, _ in pins.attached} == (
            {'by_address'} if uplink_dev else
            {'to_wire', 'from_wire', *(['from_vm', 'to_vm'] * len(hooks))})
        classifier.forget()
        assert classifier.replace(table) == 0


# -- the helper's side -------------------------------------------------------


@pytest.mark.parametrize('listing, is_good', [
    (['MapListing', 'devices'], True), (['MapListing', 'cache', 5], True),
    (['MapListing', 'cache', 0], True), (['MapListing', 'flows', 0], True),
    (['MapListing', 'cache', -1], False),
    (['MapListing', 'cache', 2 ** 31], False),
    (['MapListing', 'cache', '../5'], False),
    (['MapListing', 'cache', 1.5], False),
    (['MapListing', 'cache', True], False),
    (['MapListing', 'caches'], False), (['MapListing', 'fragments'], False),
    (['MapListing', '../../x'], False), (['MapListing', ''], False),
    (['MapListing', None], False), (['MapListing'], False),
    (['MapListing', 'cache', 5, 5], False), (['Listing', 'table'], False),
    ([], False), ('links', False)])
def test_only_maps_of_these_names_are_read(pins, listing, is_good):
    data = msgspec.msgpack.encode([listing])
    if is_good:
        assert guarded.perform('bpf_read', data) == [None]
    else:
        with pytest.raises(operations.Refused):
            guarded.perform('bpf_read', data)


def test_maps_that_are_not_there_are_none(pins):
    names = ('devices', 'flows', 'macs', 'reached', 'settings', 'links',
             'cache')
    asked = [*map(operations.MapListing, names)]
    assert executor.bpf_read(asked) == 7 * [None]
    pins.load()
    assert executor.bpf_read(asked) == [
        b'', b'', b'', b'', bytes(12), b'', None]


@pytest.mark.parametrize('changes', [
    [operations.SetRules(['pair4'], True)],
    [operations.ChangeEntries([PAIR], [])],
    [operations.ChangeMap('to', [base.MapKey(5, MAC)], [])],
    [operations.ChangeMap('control', [], [(base.MapKey(5), 0x9001)])],
    [operations.AttachPort('tap1', 5, 0x7001)],
    [operations.DeleteTable()]])
def test_without_maps_a_change_is_refused(pins, changes):
    errors = executor.bpf_change('ingress', changes)
    assert 'open' in errors or 'nothing is pinned' in errors
    assert pins.maps is None


@pytest.mark.parametrize('entry', [
    PAIR._replace(src_ip='a.example'), PAIR._replace(dst_ip=''),
    PAIR._replace(dst_ip='10.0.0.2/8'), PAIR._replace(src_ip='10.0.0.1\n')])
def test_nothing_is_changed_for_an_entry_without_addresses(pins, entry):
    pins.load()
    pins.took()
    for change in (operations.ChangeEntries([], [(PAIR, 1), (entry, 1)]),
                   operations.ChangeEntries([entry], [(PAIR, 1)])):
        with pytest.raises(operations.Refused):
            guarded.perform('bpf_change', msgspec.msgpack.encode(
                ('ingress', [change])))
    assert pins.took() == []


def test_keys_of_maps_that_are_not_there_are_deleted_from_nowhere(pins):
    """An agent that starts may delete more than there is."""
    pins.load()
    assert executor.bpf_change('ingress', [
        operations.ChangeEntries([PAIR, PORT], []),
        operations.ChangeMap('to', [base.MapKey(5, MAC)], []),
        operations.ChangeMap('others', [base.MapKey(5)], []),
        operations.DetachPort(5),
        operations.DetachUplink(2, True)]) is None
    assert pins.maps['devices'] == {}


def test_what_nftables_had_goes_with_the_first_table(pins):
    kernel = _Kernel()
    classifier = bpf.BpfClassifier(kernel)
    classifier.replace(FULL)
    assert kernel.nftables == [[operations.DeleteTable()]]
    classifier.replace(_table())
    classifier.forget()
    classifier.replace(FULL)
    assert len(kernel.nftables) == 1
    # Also with the last one, whichever kind there is.
    assert classifier.remove() and len(kernel.nftables) == 2
    assert not classifier.remove()


@pytest.mark.parametrize('refuses', [True, False])
def test_programs_go_with_the_first_table_of_nftables(pins, refuses):
    """A package without them takes the place of one that had them."""
    _classifier(FULL)
    kernel = _Kernel()
    kernel.nft_read = lambda listings: [None]
    kernel.errors = 'refused' if refuses else None
    classifier = nft.NftClassifier(kernel)
    if refuses:
        with pytest.raises(exception.KernelRefused):
            classifier.replace(base.Table())
    else:
        classifier.replace(base.Table())
    assert bool(pins.attached) == refuses


def test_a_package_without_programs_knows_where_others_are(tmp_path,
                                                           monkeypatch):
    monkeypatch.setattr(pinned, 'PROGRAM', tmp_path / 'none')
    monkeypatch.setattr(pinned, '_opened', str(tmp_path))
    pinned._version.cache_clear()
    try:
        tables = pinned.Tables()
        (tables.path.parent / f'{tables._netns}-other').mkdir()
        assert executor.bpf_change('ingress', [
            operations.DeleteTable()]) is None
    finally:
        pinned._version.cache_clear()
    assert not list(tmp_path.iterdir())
