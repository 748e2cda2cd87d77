# SPDX-License-Identifier: Apache-2.0

"""nftables classifies as the model says that the programs do.

Frames are sent through its hooks; a chain behind them notes each priority
with the frame's number, which is in its sender's address.
"""

import json
import os
import random
import socket

import pytest

from edge_module.classify import bpf_maps
from edge_module.privileged import kernel_calls as kernel
from edge_module.privileged import operations
from tests import run_name
from tests.netns.edge import bed as beds
from tests.netns.edge import frames
from tests.netns.edge import test_programs as programs

pytestmark = pytest.mark.netns

_TABLES, _FRAMES = 5, 500
_NOTED = 'netdev noted'
# Where a frame is sent that a program's hook shall see.
_FROM = {'from_vm': 'tap1p', 'to_vm': 'tap1', 'to_wire': 'uplink0',
         'from_wire': 'uplink0p'}


@pytest.fixture
def netns():
    name = run_name.another()
    beds.run('ip', 'netns', 'add', name)
    try:
        for dev in 'tap1', 'uplink0':
            beds.run('ip', 'link', 'add', dev, 'type', 'veth', 'peer',
                     f'{dev}p', netns=name)
            for end in dev, f'{dev}p':
                beds.run('sysctl', '-w',
                         f'net.ipv6.conf.{end}.disable_ipv6=1', netns=name)
                beds.run('ip', 'link', 'set', end, 'up', netns=name)
        beds.wait_for(lambda: len(beds.run(
            'ip', '-br', 'link', 'show', 'type', 'veth', 'up',
            netns=name).split(' UP ')) == 5, 10, 'two pairs that are up')
        yield name
    finally:
        beds.run('ip', 'netns', 'del', name)


def _may_differ(program, frame, packet):
    """Whether nftables cannot or need not see a frame as the programs do.

    It reads no ports behind wrong lengths, finds fragments and what has no
    data only without other extension headers, and asks later fragments, too,
    whether they are of OVS's watch, for which the frame's header counts.
    """
    ethertype, after = frame[12:14], packet.body[6:7]
    return (ethertype == b'\x81\0'
            or packet.ips is not None and packet.l3_bytes != len(packet.body)
            or ethertype == b'\x86\xdd' and (
                after[0] in (frames.HOP_BY_HOP, frames.ROUTING,
                             frames.DESTINATION_OPTIONS)
                or after[0] == frames.FRAGMENT
                and packet.protocol == frames.TCP)
            or program == 'to_wire' and packet.protocol == frames.UDP and (
                packet.is_later or packet.is_bfd and len(frame) > 80))


def _nft(text):
    code, output, errors = kernel.nft_run(text)
    assert code == 0, errors
    return output


def _noted():
    """Priority of each frame, by its sender's address."""
    found = {}
    *_, shown = json.loads(_nft(f'list set {_NOTED} seen\n'))['nftables']
    for element in shown['set'].get('elem', ()):
        sender, priority = element.get('elem', {'val': element})[
            'val']['concat']
        if isinstance(priority, str):
            major, _, minor = priority.partition(':')
            priority = 0 if priority == 'none' else (
                int(major or '0', 16) << 16 | int(minor, 16))
        found[sender] = priority
    return found


def _compare(seed):
    rng = random.Random(seed)
    fields = programs.random_table(rng)
    number = next(programs.NUMBERS)
    table = programs.Table(**fields | {'follows': fields['others']}, **{
        kind: (programs.mac_of(place, number),)
        for kind, place in (('to', 'limited'), ('home', 'home'))})
    port, wire = map(socket.if_nametoindex, ('tap1', 'uplink0'))
    assert kernel.nft_change('ingress', [
        operations.AddTable(),
        operations.AttachPort('tap1', port, programs.OWN),
        operations.AttachUplink('uplink0', wire, table.learns),
        *table.changes(port, wire)]) is None
    _nft('\n'.join((
        f'add table {_NOTED}', f'delete table {_NOTED}',
        f'add table {_NOTED}',
        f'add set {_NOTED} seen {{ typeof ether saddr . meta priority; size '
        '65535; flags dynamic; }', *(
            f'add chain {_NOTED} {dev} {{ type filter hook {hook} device '
            f'"{dev}" priority 10; }}\nadd rule {_NOTED} {dev} update @seen '
            '{ ether saddr . meta priority }' for dev, hook in (
                ('tap1', 'ingress'), ('uplink0', 'egress'))), '')))
    sockets = {}
    for program, dev in _FROM.items():
        sockets[program] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        sockets[program].bind((dev, 0))
    model, wanted, n_bfd = programs.Model(table, doubts=False), {}, 0
    for place in range(_FRAMES):
        program = rng.choice((*_FROM, 'from_vm', 'from_vm'))
        to, sender = (rng.choice([*programs.PLACES]) for _ in range(2))
        ethertype, body = programs.random_packet(rng)
        priority = rng.choice((programs.NONE, 7, programs.FOREIGN,
                               bpf_maps.classid(programs.FLOW)))
        is_noted = program in ('from_vm', 'to_wire')
        frame = programs.mac_of(to, number) + programs.mac_of(
            sender, place if is_noted else number) + ethertype.to_bytes(
                2) + body
        packet = programs.Packet(frame)
        n_bfd += program == 'to_wire' and packet.is_bfd
        if (_may_differ(program, frame, packet) or n_bfd > 4
                or program == 'from_wire' and not table.learns):
            continue
        expected = getattr(model, program)(packet, priority)
        sockets[program].setsockopt(
            socket.SOL_SOCKET, socket.SO_PRIORITY, priority)
        sockets[program].send(frame)
        if is_noted:
            wanted[packet.sender.hex(':')] = expected, program, frame.hex()
    for opened in sockets.values():
        opened.close()
    beds.wait_for(lambda: _noted().keys() >= wanted.keys(), 5)
    noted = _noted()
    differs = [(*seen, hex(noted[sender])) for sender, seen in wanted.items()
               if noted[sender] != seen[0]]
    assert differs == [], (fields, seed)


def _compare_all():
    # One processor has all frames, and keeps their order.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for seed in range(_TABLES):
        _compare(seed)


@pytest.mark.real_time(reason='fragments are known for two seconds')
def test_nftables_has_the_same_rules(netns):
    beds.in_netns(netns, _compare_all)
