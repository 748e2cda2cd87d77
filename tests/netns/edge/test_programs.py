# SPDX-License-Identifier: Apache-2.0

"""The programs of ``classify.c``, run by the kernel on frames of all kinds.

What a packet comes to is compared with a model of the rules, which are those
of ``nft_text``'s chains. No packet is sent: the kernel offers to run a program
on bytes, which is quick and sees each priority.
"""

import contextlib
import ctypes
import dataclasses
import ipaddress
import itertools
import os
import pathlib
import random
import shutil
import socket
import struct
import time

import pytest

from edge_module.classify import bpf_maps
from edge_module.classify import classified as base
from edge_module.classify import nft_text
from edge_module.privileged import bpf
from edge_module.privileged import operations
from edge_module.privileged import pinned
from edge_module.tcplan import minors
from tests import run_name
from tests.netns.edge import bed as beds
from tests.netns.edge import frames

pytestmark = pytest.mark.netns

# Lengths without the frame's header.
_CONTROL_BYTES, _BFD_BYTES = 140, 80
_BFD_PORT = 3784
_NEAR_S, _OWED_S, _REACHED_S, _FRAGMENTED_S = 300, 4, 4, 2
# A class of another program, and none.
FOREIGN, NONE = 0x10001, 0
#: Packets of the port's own class, a coflow's, a control packet's, and so on.
OWN, FLOW, CONTROL, OTHERS, LIMIT = (
    minors.FIRST_PORT + 5, 0x11, minors.UPLINK_CONTROL + 5,
    minors.of_limited(0, 5), minors.of_limited(1, 5))
UNKNOWN_OTHERS, UNKNOWN_LIMIT = (
    minors.of_limited(slot, minors.UNKNOWN_SEAT) for slot in (0, 1))
IPS = {4: ('10.0.0.1', '10.0.0.2'), 6: ('fd00::1', 'fd00::2')}
OTHER_IPS = {4: '10.0.0.3', 6: 'fd00::3'}
PORTS = 5001, _BFD_PORT
SCTP = 132

_EXAMPLES, _STEPS = 30, 500
_NEIGHBOUR = struct.Struct('=8sIIII')
_OPTIONS = struct.Struct('=QQQIIQQIIIiIIII')
_CONTEXT_BYTES, _PRIORITY_AT, _IFINDEX_AT = 192, 32, 40


class Programs:
    """Programs and maps of a network namespace, without a packet in it.

    :param before: called when there are devices, before programs are loaded.
    :ivar port: ifindex of a VM's port.
    :ivar wire: ifindex of an exit.
    """

    def __init__(self, before=lambda: None):
        for dev in 'tap1', 'uplink0':
            beds.run('ip', 'link', 'add', dev, 'type', 'veth', 'peer',
                     f'{dev}p')
        before()
        self.port, self.wire = map(socket.if_nametoindex, ('tap1', 'uplink0'))
        self.tables = pinned.Tables()
        self.change(operations.AddTable(),
                    operations.AttachPort('tap1', self.port, OWN),
                    operations.AttachUplink('uplink0', self.wire, True))
        self._opened = contextlib.ExitStack()
        self._descriptors = {
            name: self._opened.enter_context(self.tables._open(name))
            for name in bpf_maps.PROGRAMS}

    def close(self):
        self._opened.close()

    @staticmethod
    def change(*changes):
        assert bpf.bpf_change('ingress', changes) is None

    def run(self, program, frame, priority=0):
        """Have the kernel run a program; the priority after it."""
        return self._run(program, frame, priority, 0)[0]

    def run_ns(self, program, frame, priority=0, count=20_000):
        """Mean time of so many runs."""
        return self._run(program, frame, priority, count)[1]

    def _run(self, program, frame, priority, count):
        ifindex = self.wire if program.endswith('_wire') else self.port
        context = bytearray(_CONTEXT_BYTES)
        struct.pack_into('=I', context, _PRIORITY_AT, priority)
        struct.pack_into('=I', context, _IFINDEX_AT, ifindex)
        data = ctypes.create_string_buffer(frame, len(frame))
        before = ctypes.create_string_buffer(bytes(context), len(context))
        after = ctypes.create_string_buffer(len(context))
        options = ctypes.create_string_buffer(_OPTIONS.pack(
            _OPTIONS.size, ctypes.addressof(data), 0, len(frame), 0,
            ctypes.addressof(before), ctypes.addressof(after),
            len(context), len(context), 0, count, *4 * [0]))
        pinned._checked(pinned._libbpf().bpf_prog_test_run_opts(
            self._descriptors[program], options), f'run {program}')
        verdict, _, took_ns = _OPTIONS.unpack_from(options)[9:12]
        # The next program, or the packet's way, whatever is in it.
        assert verdict == 2 ** 32 - 1
        return struct.unpack_from('=I', after, _PRIORITY_AT)[0], took_ns

    def set_up(self, table):
        """Have the maps of a table, and nothing that was learned."""
        for name, key_bytes, value_bytes in (
                ('flows', bpf_maps.FLOW_KEY.size,
                 bpf_maps.FLOW.size * pinned.processors()),
                ('macs', *bpf_maps.SIZES['macs']),
                ('reached', *bpf_maps.SIZES['macs']),
                ('fragments', 40, 8)):
            self.tables.replace(name, [key for key, _ in self.tables.items(
                name, key_bytes, value_bytes)], {})
        empty = bytes(bpf_maps.BUCKET_BYTES)
        self.tables.replace(f'cache-{self.port}', (), {
            key: empty for key, value in self._buckets(self.port)
            if value != empty})
        for ifindex in self.port, self.wire:
            # The seed tells which addresses share a bucket: always the same.
            self.tables.set_device(ifindex, {
                name: 0 for name in bpf_maps.Device._fields if name != 'own'})
        self.tables.set_device(self.wire, {'learns': table.learns})
        self.change(*table.changes(self.port, self.wire, does_share=True))

    def _buckets(self, ifindex):
        return self.tables.items(f'cache-{ifindex}', bpf_maps.IFINDEX.size,
                                 bpf_maps.BUCKET_BYTES)

    def age(self, seconds):
        """Have all that was learned be older."""
        def older(time_s):
            # Modulo, as a kernel may have begun later than that.
            return time_s and ((time_s - seconds) % 2 ** 32 or 1)

        empty = bytes(bpf_maps.BUCKET_BYTES)
        for ifindex in self.port, self.wire:
            aged = {}
            for key, value in self._buckets(ifindex):
                place, = bpf_maps.IFINDEX.unpack(key)
                if value != empty and (ifindex == self.wire
                                       or place < bpf_maps.NEIGHBOURS):
                    aged[key] = b''.join(
                        _NEIGHBOUR.pack(mac, *map(older, times))
                        for mac, *times in _NEIGHBOUR.iter_unpack(value))
            self.tables.replace(f'cache-{ifindex}', (), aged)
        for name, sizes in (('fragments', (40, 8)),
                            ('reached', bpf_maps.SIZES['macs'])):
            self.tables.replace(name, (), {
                key: value[:-4] + struct.pack(
                    '=I', older(*struct.unpack('=I', value[-4:])))
                for key, value in [*self.tables.items(name, *sizes)]})

    def cache(self):
        packed, = bpf.bpf_read([operations.MapListing('cache', self.port)])
        return packed

    def near(self):
        """Seconds at which an address sent something, sent TCP data, and was
        sent something.
        """
        return {mac[:6].hex(':'): times for mac, _, *times in
                _NEIGHBOUR.iter_unpack(self.cache()[
                    :bpf_maps.NEIGHBOURS * bpf_maps.BUCKET_BYTES])
                if mac != bytes(8)}

    def counted(self):
        """Bytes and packets by entry without a port's number."""
        packed, = bpf.bpf_read([operations.MapListing('flows')])
        found = {}
        for entry, _, seen in bpf_maps.flows(packed):
            sums = found.setdefault(entry[1:], [0, 0])
            sums[0] += seen.sent_bytes
            sums[1] += seen.sent_packets
        return found

    def received(self):
        packed, = bpf.bpf_read([operations.MapListing('devices')])
        device = bpf_maps.devices(packed)[self.port]
        return [device.received_bytes, device.received_packets]

    def reached(self):
        packed, = bpf.bpf_read([operations.MapListing('reached')])
        return {(key.number, key.mac)
                for _, key, _ in bpf_maps.macs(packed)}


@pytest.fixture(scope='module')
def programs():
    """Programs of which nobody else knows, and a way to call there."""
    missing = pinned.missing()
    if missing is not None:
        pytest.skip(missing)
    patch = pytest.MonkeyPatch()
    netns = run_name.another()
    directory = pathlib.Path('/sys/fs/bpf') / run_name.PREFIX
    directory.mkdir()
    patch.setattr(pinned, 'DIRECTORY', os.fspath(directory))
    patch.setattr(pinned, '_opened', '')
    beds.run('ip', 'netns', 'add', netns)
    try:
        made = beds.in_netns(netns, Programs)

        def call(function, *arguments):
            return beds.in_netns(netns, function, made, *arguments)

        yield call
        made.close()
    finally:
        patch.undo()
        shutil.rmtree(directory)
        beds.run('ip', 'netns', 'del', netns)


# -- the model ---------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Table:
    """Contents of the maps, without ifindexes.

    :ivar to: addresses with a limit; home: those of the host; peer: those of
        the receivers of the class FLOW, where they are known.
    """

    entries: dict = dataclasses.field(default_factory=dict)
    control: int = CONTROL
    others: bool = True
    learns: bool = True
    follows: bool = True
    to: tuple = ()
    home: tuple = ()
    peer: tuple = ()

    def changes(self, port, wire, does_share=False):
        """Have an empty table say the same of a port and an exit.

        :param does_share: whether a limit is of all devices, with seats.
        """
        entries = {base.Entry(port, src, dst, number): minor
                   for (src, dst, number), minor in self.entries.items()}
        maps = {
            'control': {base.MapKey(port): self.control},
            'others': {base.MapKey(port): OTHERS,
                       base.MapKey(wire): UNKNOWN_OTHERS},
            'to': {base.MapKey(ifindex, mac.hex(':')): minor
                   for mac in self.to for ifindex, minor in (
                       ((0, minors.of_limit(1)),) if does_share
                       else ((port, LIMIT), (wire, UNKNOWN_LIMIT)))},
            'home': {base.MapKey(wire, mac.hex(':')): minors.HOST
                     for mac in self.home},
            'peer': {base.MapKey(FLOW, mac): FLOW for mac in (
                *(mac.hex(':') for mac in self.peer), base.ANY)}}
        return [
            *(operations.ChangeMap(kind, [], [*found.items()])
              for kind, found in maps.items()
              if getattr(self, kind)),
            operations.ChangeEntries([], [*entries.items()]),
            operations.SetRules([*nft_text.INGRESS.rules(entries)],
                                self.follows)]


class Packet:
    """What the rules ask of a frame."""

    def __init__(self, frame):
        self.to, self.sender = frame[:6], frame[6:12]
        kind = int.from_bytes(frame[12:14])
        self.body = body = frame[14:]
        self.ips = self.port = self.protocol = None
        self.ident = self.is_first = self.is_later = False
        if kind == 0x0800 and len(body) >= 20:
            self._read_ipv4(body)
        elif kind == 0x86dd and len(body) >= 40:
            self._read_ipv6(body)
        if not self.is_later and self.protocol in (frames.TCP, frames.UDP):
            port = body[self.l4_at + 2:self.l4_at + 4]
            self.port = int.from_bytes(port) if len(port) == 2 else None

    def _read_ipv4(self, body):
        _, _, self.l3_bytes, self.ident, fragment, _, self.protocol = (
            struct.unpack_from('!BBHHHBB', body))
        self.ips = tuple(str(ipaddress.IPv4Address(body[at:at + 4]))
                         for at in (12, 16))
        self.l4_at = 4 * (body[0] & 15)
        self.is_later = fragment & 0x1fff != 0
        self.is_first = fragment & 0x3fff == 0x2000

    def _read_ipv6(self, body):
        self.ips = tuple(str(ipaddress.IPv6Address(body[at:at + 16]))
                         for at in (8, 24))
        self.l3_bytes = 40 + int.from_bytes(body[4:6])
        self.protocol, self.l4_at = body[6], 40
        for _ in range(6):
            more = body[self.l4_at:self.l4_at + 8]
            if self.protocol not in (
                    frames.HOP_BY_HOP, frames.ROUTING, frames.FRAGMENT,
                    frames.DESTINATION_OPTIONS) or len(more) < 8:
                break
            was, self.protocol = self.protocol, more[0]
            if was != frames.FRAGMENT:
                self.l4_at += 8 * (more[1] + 1)
                continue
            self.l4_at += 8
            offset = int.from_bytes(more[2:4])
            self.ident = int.from_bytes(more[4:])
            self.is_later = offset & 0xfff8 != 0
            self.is_first = offset & 0xfff9 == 1
            if self.is_later:
                break

    @property
    def is_without_data(self):
        """Whether this is a short TCP packet that has no room for data."""
        words = self.body[self.l4_at + 12:][:1] if self.ips else b''
        return (self.protocol == frames.TCP and not self.is_later
                and len(self.body) <= _CONTROL_BYTES and words != b''
                and self.l3_bytes == self.l4_at + 4 * (words[0] >> 4))

    @property
    def is_data(self):
        """Whether this has TCP data, by the first header alone."""
        return self.ips is not None and len(self.body) > _CONTROL_BYTES and (
            self.body[9 if ':' not in self.ips[0] else 6] == frames.TCP)

    @property
    def is_bfd(self):
        return (len(self.body) <= _BFD_BYTES and self.port == _BFD_PORT
                and self.protocol == frames.UDP)


def _is_unicast(mac):
    return not mac[0] & 1


class Model:
    """The rules, with what they keep.

    :ivar far, near: second at which an address sent something.
    :ivar met: addresses that ever sent something.
    :param doubts: whether packets of entries to other addresses than these
        are unmanaged where limits are followed, which nftables does not tell.
    """

    def __init__(self, table, doubts=True):
        self.table = table
        self.doubts = doubts and table.follows
        self.near, self.owed, self.reached = {}, {}, {}
        self.met = set()
        self.far, self.reached_far, self.fragments = {}, {}, {}
        self.counted = {key: [0, 0] for key in table.entries}
        self.peers, self.received = {}, [0, 0]

    def _with(self, minor, priority):
        """A class, where there is one."""
        return bpf_maps.classid(minor) or priority

    def _managed(self, packet):
        """Class of a managed packet; its entry is counted."""
        minor = self._find(packet)
        return 0 if self.doubts and packet.to not in self.met else minor

    def _find(self, packet):
        """Class of a packet's entry, which is counted."""
        entries = self.table.entries
        if packet.ips is None:
            return 0
        datagram = packet.ident, packet.ips
        if packet.is_later and datagram in self.fragments and any(
                port for _, _, port in entries):
            return self.fragments[datagram]
        key = next((key for key in (
            (*packet.ips, packet.port or 0), (*packet.ips, 0))
            if key in entries), None)
        if key is None:
            return 0
        _count(self.counted, key, packet)
        if packet.is_first and key[2]:
            self.fragments[datagram] = entries[key]
        return entries[key]

    def from_vm(self, packet, priority):
        table = self.table
        minor = self._managed(packet)
        if minor not in (0, OWN):
            return bpf_maps.classid(
                packet.is_without_data and table.control or minor)
        if packet.ips is not None:
            _count(self.peers, packet.ips[1], packet)
        found = bpf_maps.classid(OWN)
        if packet.is_without_data and table.control:
            found = bpf_maps.classid(table.control)
            if packet.to in self.owed:
                return found
        if not table.follows:
            return found
        others = self._with(table.others * OTHERS, found)
        is_limited = packet.to in table.to and table.others
        if is_limited:
            found = bpf_maps.classid(LIMIT)
        if packet.to not in self.near:
            return self._with(table.others * OTHERS, found)
        if is_limited or packet.to in self.reached:
            return found
        if not _is_unicast(packet.to):
            return others
        self.reached[packet.to] = 0
        return found

    def to_vm(self, packet, priority):
        if priority >> 16 == 0x7000:  # of a VM of this host
            return priority
        self.near[packet.sender] = 0
        self.met.add(packet.sender)
        if packet.is_data:
            self.owed[packet.sender] = 0
            self.received[0] += len(packet.body)
            self.received[1] += 1
        return priority

    def to_wire(self, packet, priority):
        table = self.table
        if priority >> 16:
            return priority
        if packet.sender in table.home:
            return bpf_maps.classid(minors.HOST)
        if packet.is_bfd:
            return priority
        found = bpf_maps.classid(minors.UNKNOWN)
        others = self._with(table.others * UNKNOWN_OTHERS, found)
        is_dvr = packet.sender[:3] == b'\xfa\x16\x3f'
        if not (packet.to in self.far or _is_unicast(packet.to) and (
                not table.learns or is_dvr)):
            return others
        if not table.follows:
            return found
        if packet.to in table.to and table.others:
            return bpf_maps.classid(UNKNOWN_LIMIT)
        if packet.to not in self.reached_far and not _is_unicast(packet.to):
            return others
        self.reached_far.setdefault(packet.to, 0)
        return found

    def from_wire(self, packet, priority):
        self.far[packet.sender] = 0
        return priority

    def by_address(self, packet, priority):
        minor = self._managed(packet)
        if minor in (0, OWN):
            return priority
        return bpf_maps.classid(
            packet.is_without_data and self.table.control or minor)

    def age(self, seconds):
        for kept, kept_s in ((self.near, _NEAR_S), (self.far, _NEAR_S),
                             (self.owed, _OWED_S), (self.reached, _REACHED_S),
                             (self.reached_far, _REACHED_S)):
            for mac, ago in [*kept.items()]:
                kept[mac] = ago + seconds
                if kept[mac] > kept_s:
                    del kept[mac]
        if seconds > _FRAGMENTED_S:
            self.fragments.clear()


def _count(counters, key, packet):
    found = counters.setdefault(key, [0, 0])
    found[0] += len(packet.body)
    found[1] += 1


# -- frames ------------------------------------------------------------------

NUMBERS = itertools.count(1)
# Some that no switch learns, too.
PLACES = {name: bytes.fromhex(start) for name, start in (
    ('vm', '020001'), ('peer', '020002'), ('limited', '020003'),
    ('dvr', 'fa163f'), ('nearly dvr', '02163f'), ('home', '020004'),
    ('group', '01005e'))}
# The kernel takes no less here; ``test_classify`` sends less.
_SHORTEST = {0x0800: 20, 0x86dd: 40}


def mac_of(name, number):
    """An address that no earlier example has."""
    return PLACES[name] + number.to_bytes(3)


def random_packet(rng):
    """(ethertype, body) of any kind, mostly such as an entry matches."""
    pick = rng.choice
    version = pick((4, 4, 6, 0))
    if version == 0:
        ethertype = pick((0x0806, 0x88b5, 100, *_SHORTEST))
        return ethertype, rng.randbytes(
            rng.randint(_SHORTEST.get(ethertype, 1), 160))
    src, dst = rng.sample((*IPS[version], OTHER_IPS[version]), 2) if pick(
        (False, False, True)) else IPS[version]
    protocol, port = pick((frames.TCP, frames.UDP, SCTP)), pick(PORTS)
    data, words = bytes(pick((0, 0, 1, 90, 120, 400))), pick((5, 5, 8, 15))
    body = (struct.pack('!HHIIBB', 40000, port, 1, 1, words << 4, 0x10).ljust(
        4 * words, b'\0') if protocol == frames.TCP else struct.pack(
            '!HHHH', 40000, port, 8 + len(data), 0)) + data
    offset, more, ident = pick((
        (0, 0, 7), (0, 0, 7), (0, 1, 7), (8, 1, 7), (8, 0, 7), (8, 0, 8)))
    if version == 4:
        made = frames.ipv4(src, dst, protocol, body, more << 13 | offset,
                           bytes(pick((0, 0, 40))), ident)
    else:
        protocol, body = frames.extended(
            pick(([], [], [frames.DESTINATION_OPTIONS])), protocol, body)
        if offset or more:
            body = struct.pack('!BBHI', protocol, 0, offset << 3 | more,
                               ident) + body
            protocol = frames.FRAGMENT
        made = frames.ipv6(src, dst, *frames.extended(pick((
            [], [], [frames.HOP_BY_HOP, frames.ROUTING],
            [frames.AUTHENTICATION], 6 * [frames.DESTINATION_OPTIONS],
            7 * [frames.DESTINATION_OPTIONS])), protocol, body))
    ethertype, body = frames.tagged(made) if rng.random() < 0.1 else made
    # Cut off, or with more than the header says.
    return ethertype, pick((
        *4 * [body], body[:-1], body + b'\0',
        body[:rng.randint(_SHORTEST.get(ethertype, 1), len(body))]))


def _step(rng):
    """Seconds in which nothing comes, or a program and its packet."""
    if rng.random() < 0.003:
        # Longer than all times but one, of which it is less than a third.
        return 70
    to, sender = (rng.choice([*PLACES]) for _ in range(2))
    return (rng.choice((*bpf_maps.PROGRAMS, 'from_vm', 'from_vm', 'to_wire')),
            to, sender, *random_packet(rng),
            rng.choice((NONE, NONE, 7, FOREIGN, bpf_maps.classid(FLOW))))


def random_table(rng):
    keys = [(*IPS[version], port) for version in IPS
            for port in (0, *PORTS[:1])]
    return {
        'entries': {key: rng.choice((FLOW, FLOW + 1, OWN))
                    for key in rng.sample(keys, rng.randint(0, len(keys)))},
        'control': rng.choice((CONTROL, CONTROL, 0)),
        **{name: rng.random() < 0.7
           for name in ('others', 'learns', 'follows')}}


def _check(programs, fields, steps):
    """Have the programs and the model do the same; the steps they did."""
    number = next(NUMBERS)
    table = Table(**fields, to=(mac_of('limited', number),),
                  home=(mac_of('home', number),))
    programs.set_up(table)
    model = Model(table)
    n_bfd, n_aged = 0, 0
    for step in steps:
        if step == 70:
            n_aged += 1
            if n_aged <= 4:
                programs.age(step)
                model.age(step)
            continue
        program, to, sender, ethertype, body, priority = step
        frame = (mac_of(to, number) + mac_of(sender, number)
                 + ethertype.to_bytes(2) + body)
        packet = Packet(frame)
        n_bfd += packet.is_bfd and program == 'to_wire'
        if n_bfd > 5:  # their limit is tested below
            continue
        wanted = getattr(model, program)(packet, priority)
        found = programs.run(program, frame, priority)
        assert hex(found) == hex(wanted), (program, to, sender, frame.hex())
    assert programs.counted() == model.counted
    assert {ip: [*seen[:2]] for ip, seen in bpf_maps.peers(
        programs.cache()).items()} == model.peers
    assert programs.received() == model.received
    near = programs.near()
    now_s = int(time.monotonic()) + 1
    for place, kept, kept_s in ((0, model.near, _NEAR_S),
                                (1, model.owed, _OWED_S),
                                (2, model.reached, _REACHED_S)):
        assert {mac for mac, times in near.items()
                if times[place]
                and (now_s - times[place]) % 2 ** 32 <= kept_s} == {
                    mac.hex(':') for mac in kept}, place
    assert programs.reached() >= {
        (ifindex, mac.hex(':')) for ifindex, kept in (
            (programs.port, model.reached), (programs.wire, model.reached_far))
        for mac in kept}


def _fails(*arguments):
    try:
        _check(*arguments)
    except AssertionError:
        return True
    return False


def _reduced(programs, fields, steps):
    """The fewest steps that differ still, each needed."""
    width = len(steps) // 2
    while width:
        for at in range(0, len(steps), width):
            fewer = steps[:at] + steps[at + width:]
            if _fails(programs, fields, fewer):
                steps = fewer
                break
        else:
            width //= 2
    return steps


def _check_all(programs):
    for seed in range(_EXAMPLES):
        rng = random.Random(seed)
        fields, steps = random_table(rng), [_step(rng) for _ in range(_STEPS)]
        if _fails(programs, fields, steps):
            _check(programs, fields, _reduced(programs, fields, steps))
            pytest.fail(f'seed {seed} differed once')


def test_all_packets_come_to_the_class_that_the_rules_say(programs):
    """Also those that are cut off, or that nobody would send."""
    programs(_check_all)


def test_what_packets_taught_is_known_for_its_time(programs):
    """By whole seconds, one of which may have ended meanwhile."""
    vm, peer = (mac_of(name, next(NUMBERS)) for name in ('vm', 'peer'))
    # So that it is seen whether it is in the class of control packets.
    to_peer, answer = (peer + vm, vm + peer)
    control, data = (_ipv4('10.9.9.9', frames.TCP, frames.segment(count))
                     for count in (0, 400))
    unmanaged = _ipv4('10.9.9.9', SCTP)
    first, later = (_ipv4('10.0.0.2', frames.UDP, frames.udp(5001), fragment)
                    for fragment in (0x2000, 0x0040))

    def body(made):
        def now(seconds, before, frame, to=(), follows=True):
            made.set_up(Table({(*IPS[4], 5001): FLOW}, to=to,
                              follows=follows))
            made.run(*before)
            made.age(seconds)
            return made.run('from_vm', to_peer + frame) & 0xffff

        near = ('to_vm', answer + unmanaged)
        for seconds, wanted in ((0, OWN), (_NEAR_S - 2, OWN),
                                (_NEAR_S + 2, OTHERS)):
            assert now(seconds, near, unmanaged) == wanted, seconds
        owing = ('to_vm', answer + data)
        for seconds, wanted in ((0, CONTROL), (_OWED_S - 1, CONTROL),
                                (_OWED_S + 2, LIMIT)):
            assert now(seconds, owing, control, (peer,)) == wanted, seconds
        fragmented = ('from_vm', to_peer + first)
        for seconds, wanted in ((0, FLOW), (_FRAGMENTED_S - 1, FLOW),
                                (_FRAGMENTED_S + 2, OWN)):
            # A machine that stands still meanwhile makes it older.
            beds.wait_for(lambda: now(seconds, fragmented, later,
                                      follows=False) == wanted,
                          20, f'{wanted:x} after {seconds} s')
        # One that was reached needs no place among the new ones.
        for seconds, wanted in ((0, OWN), (_REACHED_S - 2, OWN),
                                (_REACHED_S + 2, OTHERS)):
            made.set_up(Table())
            made.run('to_vm', answer + unmanaged)
            assert made.run('from_vm', to_peer + unmanaged) & 0xffff == OWN
            made.age(seconds)
            made.tables.set_device(made.port, {'reaching_ns': 2 ** 63})
            assert made.run(
                'from_vm', to_peer + unmanaged) & 0xffff == wanted, seconds
        for seconds, wanted in ((0, minors.UNKNOWN),
                                (_REACHED_S - 2, minors.UNKNOWN),
                                (_REACHED_S + 2, UNKNOWN_OTHERS)):
            made.set_up(Table(learns=False))
            made.run('to_wire', to_peer + unmanaged)
            made.age(seconds)
            made.tables.set_device(made.wire, {'reaching_ns': 2 ** 63})
            assert made.run(
                'to_wire', to_peer + unmanaged) & 0xffff == wanted, seconds

    programs(body)


def test_entries_are_for_addresses_that_ever_sent_something(programs):
    """Switches flood packets to others, a coflow's rate is towards one host.
    Beside a flood of addresses nobody can tell.
    """
    vm, peer, group = (mac_of(name, next(NUMBERS))
                       for name in ('vm', 'peer', 'group'))
    packet = _ipv4('10.0.0.2', frames.UDP, frames.udp(9))
    full = _NEIGHBOUR.pack(bytes(7) + b'\x80', 0, 0, 0, 0)

    def body(made):
        def sent(to=peer):
            return made.run('from_vm', to + vm + packet) & 0xffff

        def fill():
            used = full[:8] + struct.pack('=I', int(time.monotonic()) + 1) + (
                full[12:])
            made.tables.replace(f'cache-{made.port}', (), {
                bpf_maps.IFINDEX.pack(place): 8 * used
                for place in range(bpf_maps.NEIGHBOURS)})
            return sent()

        table = Table({(*IPS[4], 0): FLOW})
        made.set_up(table)
        assert (sent(), sent(group)) == (OTHERS, OTHERS)
        assert made.counted()[*IPS[4], 0][1] == 2
        made.run('to_vm', vm + peer + packet)
        assert (sent(), sent(group)) == (FLOW, OTHERS)
        made.age(_NEAR_S + 2)
        assert sent() == FLOW
        made.set_up(table)
        made.tables.set_device(made.port, {'meeting_ns': 2 ** 63})
        assert sent() == FLOW
        made.set_up(table)
        assert sent() == OTHERS
        # Places that were in use lately, unless the machine stood still.
        beds.wait_for(lambda: fill() == FLOW, 20, 'a full cache')
        made.set_up(table)
        assert sent() == OTHERS
        made.set_up(Table({(*IPS[4], 0): FLOW}, follows=False))
        assert sent() == FLOW

    programs(body)


def test_a_class_is_for_its_receivers_and_for_what_has_no_limit(programs):
    """Another VM of a host with a limit is none; a router may be one, and the
    controller hears of it.
    """
    vm, peer, router, other, shared = (
        mac_of(name, next(NUMBERS))
        for name in ('vm', 'peer', 'peer', 'peer', 'peer'))
    packet = _ipv4('10.0.0.2', frames.UDP, frames.udp(5001))
    first, later = (_ipv4('10.0.0.2', frames.UDP, frames.udp(5001), fragment)
                    for fragment in (0x2000, 0x0040))
    none = {'meeting_ns': 2 ** 63}

    def body(made):
        def set_up(port=0, **table):
            made.set_up(Table({(*IPS[4], port): FLOW}, to=(peer, other),
                              **table))
            made.change(operations.ChangeMap('to', [], [
                (base.MapKey(0, shared.hex(':')), minors.of_limit(0))]))
            for sender in peer, router, other, shared:
                made.run('to_vm', vm + sender + packet)

        def sent(to, body=packet):
            return made.run('from_vm', to + vm + body) & 0xffff

        set_up(peer=(peer,))
        for _ in range(2):
            assert [*map(sent, (peer, router, other, shared))] == [
                FLOW, FLOW, LIMIT, FLOW]
        assert made.reached() == {(made.port, mac.hex(':'))
                                  for mac in (router, shared)}
        assert made.counted()[*IPS[4], 0][1] == 8
        set_up(peer=(other, peer))
        assert (sent(peer), sent(other)) == (FLOW, FLOW)
        for table in {}, {'peer': (peer,), 'follows': False}:
            set_up(**table)
            assert sent(other) == FLOW and not made.reached()
        # A port that reaches too many others; one that hears of too many.
        set_up(peer=(peer,))
        made.tables.set_device(made.port, {'reaching_ns': 2 ** 63})
        assert [*map(sent, (peer, router, other))] == [FLOW, OTHERS, LIMIT]
        made.set_up(Table({(*IPS[4], 0): FLOW}, to=(other,), peer=(peer,)))
        made.tables.set_device(made.port, none)
        assert (sent(router), sent(other)) == (FLOW, OTHERS)
        assert made.reached() == {(made.port, router.hex(':'))}
        made.tables.set_device(made.port, {**none, 'reaching_ns': 2 ** 63})
        assert sent(shared) == FLOW
        set_up(5001, peer=(peer,))
        sent(peer, first)
        assert [sent(to, later) for to in (peer, router, other)] == [
            FLOW, FLOW, LIMIT]

    programs(body)


def test_a_device_without_a_cache_has_its_class_or_that_of_others(programs):
    packet = mac_of('peer', 1) + mac_of('vm', 1) + _ipv4('10.9.9.9', SCTP)

    def body(made):
        for name, program, ifindex, own, others in (
                ('of_ports', 'from_vm', made.port, OWN, OTHERS),
                ('of_exits', 'to_wire', made.wire, minors.UNKNOWN,
                 UNKNOWN_OTHERS)):
            key = bpf_maps.IFINDEX.pack(ifindex)
            made.tables.replace(name, [key], {})
            for follows, wanted in (False, own), (True, others):
                made.set_up(Table(others=follows, follows=follows))
                assert made.run(program, packet) == bpf_maps.classid(wanted)
            with made.tables._open(f'cache-{ifindex}') as cache:
                made.tables.replace(name, (), {
                    key: bpf_maps.IFINDEX.pack(cache)})

    programs(body)


def _ipv4(dst, protocol, body=b'', fragment=0, ident=7):
    """What follows the addresses of a frame."""
    ethertype, packet = frames.ipv4('10.0.0.1', dst, protocol, body, fragment,
                                    ident=ident)
    return ethertype.to_bytes(2) + packet


def _most(per_s, burst, elapsed_s):
    """Events that a rate allows, with one more of the clock's grain."""
    return burst + 1 + per_s * (elapsed_s + 0.02)


def test_rates_of_new_addresses_of_datagrams_and_of_probes_hold(programs):
    """Never more than the rate and a burst; one at leisure always."""
    number = next(NUMBERS)
    vm = mac_of('vm', number)
    macs = [b'\x02\x09' + place.to_bytes(4) for place in range(2000)]
    packet = _ipv4('10.9.9.9', SCTP)
    bfd = _ipv4('10.0.0.2', frames.UDP,
                struct.pack('!HHHH', 40000, _BFD_PORT, 8, 0))

    def port(made):
        # Only as many addresses as its cache has places for.
        for mac in macs[:400]:
            made.run('to_vm', vm + mac + packet)
        return [made.run('from_vm', mac + vm + packet) & 0xffff == OWN
                for mac in macs[:400]]

    def met(made):
        for mac in macs:
            made.run('to_vm', vm + mac + packet)
        return [True] * len(made.near())

    def routed(made):
        return [made.run('to_wire', mac + vm + packet) & 0xffff
                == minors.UNKNOWN for mac in macs]

    def fragmented(made):
        for ident in range(3000):
            made.run('from_vm', macs[0] + vm + _ipv4(
                '10.0.0.2', frames.UDP, frames.udp(5001), 0x2000, ident))
        return [True] * len([*made.tables.items('fragments', 40, 8)])

    def probes(made):
        return [made.run('to_wire', vm + vm + bfd) == 0
                for _ in range(2000)]

    def body(made):
        for act, per_s, burst in (
                (met, 192, 384), (port, 96, 128), (routed, 1024, 1024),
                (fragmented, 1024, 1024), (probes, 2000, 5)):
            made.set_up(Table({(*IPS[4], 5001): FLOW}, learns=False))
            start_s = time.monotonic()
            passed = sum(act(made))
            elapsed_s = time.monotonic() - start_s
            assert burst <= passed <= _most(per_s, burst, elapsed_s), act
            time.sleep(0.02)
            # A flood has no credit from earlier, and ends with itself.
            if act is probes:
                assert made.run('to_wire', vm + vm + bfd) == 0

    programs(body)
