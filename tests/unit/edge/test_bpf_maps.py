# SPDX-License-Identifier: Apache-2.0

"""Layouts of the maps: packed and unpacked, and as the program has them."""

import ctypes
import ipaddress
import pathlib
import platform
import runpy
import shutil
import struct
import subprocess

from hypothesis import given
from hypothesis import strategies as st
import pytest

from edge_module.classify import bpf_maps
from edge_module.classify import classified as base
from edge_module.classify import nft_text
from edge_module.privileged import pinned
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from edge_module.tcplan import model

ROOT = pathlib.Path(__file__).parents[3]
PROGRAM = ROOT / 'edge_module' / 'classify' / 'classify.c'

IFINDEXES = st.integers(0, 2 ** 31 - 1)
U32, U64 = st.integers(0, 2 ** 32 - 1), st.integers(0, 2 ** 64 - 1)
MINORS = st.integers(1, 2 ** 16 - 1)
MACS = st.binary(min_size=6, max_size=6).map(lambda mac: mac.hex(':'))
#: None of IPv6 that stands for one of IPv4.
IPV4 = st.integers(0, 2 ** 32 - 1).map(ipaddress.IPv4Address)
IPV6 = st.integers(2 ** 64, 2 ** 128 - 1).map(ipaddress.IPv6Address)
ADDRESSES = st.one_of(*(
    st.tuples(ip.map(str), ip.map(str)) for ip in (IPV4, IPV6)))
ENTRIES = st.builds(
    lambda ifindex, ips, port: base.Entry(ifindex, *ips, port), IFINDEXES,
    ADDRESSES, st.integers(0, 2 ** 16 - 1))
DEVICES = st.builds(bpf_maps.Device, *4 * [U32], *6 * [U64])


@given(st.dictionaries(IFINDEXES, DEVICES, max_size=3))
def test_devices_are_unpacked_as_they_were_packed(wanted):
    assert all(bpf_maps.device(one.pack()) == one for one in wanted.values())
    assert bpf_maps.devices(b''.join(
        bpf_maps.IFINDEX.pack(ifindex) + one.pack()
        for ifindex, one in wanted.items())) == wanted


@given(st.lists(st.tuples(ENTRIES, MINORS, U64, U64), max_size=4))
def test_flows_are_unpacked_as_they_were_packed(wanted):
    """One with a port twice, for TCP and for UDP."""
    packed = b''.join(
        key + bpf_maps.FLOW_SUM.pack(bpf_maps.classid(minor), sent, packets)
        for entry, minor, sent, packets in wanted
        for key in bpf_maps.flow_keys(entry))
    assert [*bpf_maps.flows(packed)] == [
        (entry, minor, model.Counts(sent, packets))
        for entry, minor, sent, packets in wanted
        for _ in range(2 if entry.dst_port else 1)]


@given(ENTRIES)
def test_entries_have_a_key_for_each_protocol_with_ports(entry):
    keys = [bpf_maps.FLOW_KEY.unpack(key)
            for key in bpf_maps.flow_keys(entry)]
    assert [protocol for _, _, protocol, _, _ in keys] == (
        [6, 17] if entry.dst_port else [0])
    # As packets have it.
    assert {port for _, port, _, _, _ in keys} == {
        struct.pack('!H', entry.dst_port)}


@given(ENTRIES, ENTRIES)
def test_different_entries_have_different_keys(one, other):
    assert {*bpf_maps.flow_keys(one)}.isdisjoint(
        bpf_maps.flow_keys(other)) == (one != other)


@given(st.lists(st.tuples(
    st.sampled_from([bpf_maps.TO, bpf_maps.HOME, bpf_maps.PEER]),
    st.builds(base.MapKey, IFINDEXES, MACS), U32), max_size=4))
def test_addresses_are_unpacked_as_they_were_packed(wanted):
    assert [*bpf_maps.macs(b''.join(
        bpf_maps.mac_key(kind, key) + bpf_maps.CLASSID.pack(value)
        for kind, key, value in wanted))] == wanted


@pytest.mark.parametrize('mac', ['0', '00:00:00:00:00:0', 'x'])
def test_half_an_address_is_none(mac):
    with pytest.raises((ValueError, struct.error)):
        bpf_maps.mac_key(bpf_maps.TO, base.MapKey(1, mac))


@given(st.dictionaries(
    IPV4 | IPV6, st.tuples(U64, U64), max_size=8))
def test_peers_are_those_of_the_slots_that_are_used(wanted):
    # Behind those of neighbours, whatever they hold.
    packed = (b'\1' * bpf_maps.NEIGHBOURS * bpf_maps.BUCKET_BYTES + b''.join(
        bpf_maps._PEER.pack(
            ip.packed.rjust(16, b'\0') if ip.version == 6
            else bytes(10) + b'\xff\xff' + ip.packed, 7, *counts)
        for ip, counts in wanted.items()) + bytes(3 * bpf_maps._PEER.size))
    assert bpf_maps.peers(packed) == {
        str(ip): model.Counts(*counts) for ip, counts in wanted.items()}


@given(st.dictionaries(st.sampled_from(bpf_maps.PROGRAMS),
                       st.frozensets(IFINDEXES, max_size=4)))
def test_links_are_told_by_program(wanted):
    assert bpf_maps.links(b''.join(
        bpf_maps.LINK.pack(bpf_maps.PROGRAMS.index(name), ifindex)
        for name, seen in wanted.items() for ifindex in seen)) == {
            **dict.fromkeys(bpf_maps.PROGRAMS, frozenset()), **wanted}


@given(st.integers(0, 2 ** 16 - 1))
def test_minors_are_those_of_their_classes(minor):
    classid = bpf_maps.classid(minor)
    assert bpf_maps.minor(classid) == minor
    assert classid == (wire.ROOT_HANDLE | minor if minor else 0)


@given(st.lists(ENTRIES, max_size=4))
def test_the_kinds_of_entries_are_those_there_are(entries):
    found = bpf_maps.kinds(nft_text.INGRESS.rules(entries))
    assert bool(found & bpf_maps.HAS_PORTS) == any(
        entry.dst_port for entry in entries)
    assert bool(found & bpf_maps.HAS_PAIRS) == any(
        not entry.dst_port for entry in entries)


@given(st.lists(st.tuples(U32, st.integers(0, 2 ** 60),
                          st.integers(0, 2 ** 60)), min_size=1, max_size=9))
def test_counters_of_all_processors_are_added(values):
    assert pinned.sums(b''.join(
        bpf_maps.FLOW.pack(values[0][0], 0, sent, packets)
        for _, sent, packets in values)) == (
            values[0][0], sum(sent for _, sent, _ in values),
            sum(packets for _, _, packets in values))


def _asserts():
    """What holds of the program, in C."""
    yield f'ROOT_MAJOR == {wire.ROOT_HANDLE:#x}'
    yield f'UNKNOWN == {bpf_maps.classid(minors.UNKNOWN):#x}'
    yield f'SEATS == {(1 << minors._LIMIT_BITS) - 1}'
    yield f'CONTROL_BYTES == {nft_text._CONTROL_BYTES}'
    yield f'NEAR_S == {nft_text._NEAR_S} && OWED_S == {nft_text._OWED_S}'
    yield f'REACHED_S == {nft_text._REACHED_S}'
    yield f'REACHED_S == {bpf_maps.REACHED_S}'
    yield f'FRAGMENTED_S == {nft_text._FRAGMENTED_S}'
    yield f'TO == {bpf_maps.TO} && HOME == {bpf_maps.HOME}'
    yield f'PEER == {bpf_maps.PEER}'
    yield f'HAS_PORTS == {bpf_maps.HAS_PORTS}'
    yield f'HAS_PAIRS == {bpf_maps.HAS_PAIRS}'
    yield f'1 << PORT_BITS == {bpf_maps.NEIGHBOURS}'
    yield f'PEERS_AT == {bpf_maps.NEIGHBOURS}'
    yield f'1 << PEERS_BITS == {bpf_maps._PEERS}'
    # As libbpf's macros write numbers of maps.
    for name, buckets in bpf_maps.BUCKETS.items():
        yield f'sizeof(*{name}.values[0]->max_entries) == 4 * {buckets}'
    for name, size in (
            ('settings', bpf_maps.SETTINGS.size),
            ('device', bpf_maps.DEVICE_BYTES),
            ('flow_key', bpf_maps.FLOW_KEY.size),
            ('flow', bpf_maps.FLOW.size),
            ('mac_key', bpf_maps.MAC_KEY.size),
            ('peer', bpf_maps._PEER.size)):
        yield f'sizeof(struct {name}) == {size}'
    yield f'sizeof(union bucket) == {bpf_maps.BUCKET_BYTES}'
    yield 'sizeof(union bucket) == NEIGHBOURS * sizeof(struct neighbour)'
    yield from _offsets('device', bpf_maps._DEVICE, bpf_maps.Device._fields)
    yield from _offsets('flow_key', bpf_maps.FLOW_KEY, (
        'ifindex', 'port', 'protocol', 'source', 'target'))
    yield from _offsets('flow', bpf_maps.FLOW, (
        'classid', 'near_mark', 'bytes', 'packets'))
    yield from _offsets('mac_key', bpf_maps.MAC_KEY, (
        'ifindex', 'kind', 'mac'))
    yield from _offsets('settings', bpf_maps.SETTINGS, ('entries', 'follows'))
    yield from _offsets('peer', bpf_maps._PEER, (
        'address', 'used_s', 'bytes', 'packets'))


def _offsets(name, layout, fields):
    """Yield where each field is, found by a value that has no zero in it."""
    values = layout.unpack(b'\xff' * layout.size)
    assert len(values) == len(fields), (name, values)
    for place, field in enumerate(fields):
        only = [type(value)() for value in values]
        only[place] = values[place]
        packed = layout.pack(*only)
        at = packed.index(b'\xff')
        yield f'__builtin_offsetof(struct {name}, {field}) == {at}'
        yield (f'sizeof(((struct {name} *)0)->{field}) == '
               f'{packed.count(255)}')


def test_the_program_has_the_same_layouts_and_limits():
    build = runpy.run_path(str(ROOT / 'tools' / 'build_kernels.py'))
    clang = next(filter(None, map(shutil.which, build['CLANGS'])), None)
    if clang is None:
        pytest.skip('clang is not installed')
    machine = platform.machine()
    done = subprocess.run(
        [clang, '-target', 'bpf', f'-D__{machine}__',
         f'-I/usr/include/{machine}-linux-gnu', '-fsyntax-only', '-x', 'c',
         '-'], capture_output=True, text=True, input='\n'.join((
             f'#include "{PROGRAM}"',
             *(f'_Static_assert({holds}, "");' for holds in _asserts()))))
    assert done.returncode == 0, done.stderr


def test_the_compiled_program_has_all_that_is_pinned():
    """It is of libbpf's own format, which needs no privileges to read."""
    if not pinned.PROGRAM.exists():
        pytest.skip(f'{pinned.PROGRAM.name} was not compiled')
    try:
        library = pinned._libbpf()
    except OSError as error:
        pytest.skip(str(error))
    opened = ctypes.c_void_p(library.bpf_object__open_file(
        str(pinned.PROGRAM).encode(), None))
    assert opened
    try:
        for kind, names in (('map', bpf_maps.MAPS),
                            ('program', bpf_maps.PROGRAMS)):
            find = getattr(library, f'bpf_object__find_{kind}_by_name')
            find.restype = ctypes.c_void_p
            assert [name for name in names
                    if not find(opened, name.encode())] == []
        for name, sizes in bpf_maps.SIZES.items():
            found = ctypes.c_void_p(library.bpf_object__find_map_by_name(
                opened, name.encode()))
            assert (library.bpf_map__key_size(found),
                    library.bpf_map__value_size(found)) == sizes
    finally:
        library.bpf_object__close(opened)
