# SPDX-License-Identifier: Apache-2.0

"""Random calls of the helper change nothing but what virtco owns."""

import contextlib
import ctypes
import json
import os
import pathlib
import pwd
import re
import shutil
import socket
import struct
import subprocess
import sys

import pytest

from edge_module.classify import bpf_maps
from edge_module.privileged import pinned
from tests import run_name
from tests.netns.edge import bed as beds
from tests.netns.edge import fuzz

pytestmark = pytest.mark.netns

# As the kernel shows the preference of the filter that redirects.
_OUR_PREF = 0x7c0
HOOKED = {('egress', 'uplink0'), ('ingress', 'tap1')}
# Where each of our programs may be.
ATTACHED = {('from_vm', 'tap1'), ('to_vm', 'tap1'), ('to_wire', 'uplink0'),
            ('from_wire', 'uplink0'), ('by_address', 'uplink0')}
# Devices with programs of others.
_FOREIGN = {'tap1': ('from_vm', 'to_vm'), 'uplink0': ('to_wire', 'from_wire'),
            'other0': ('from_vm', 'to_wire')}
# Kinds of hooks of programs, as in linux/bpf.h.
_TCX = {'ingress': 46, 'egress': 47}
_OUR_IFB = 'virtco-in'
# Timers of bridges and the carrier change by themselves.
_VOLATILE = {'qdisc', 'addr_info', 'linkinfo', 'flags', 'operstate'}
_STATEMENTS = {'match', 'mangle', 'jump', 'goto', 'return', 'accept', 'set',
               'map', 'limit'}
_PRIORITY = {'meta': {'key': 'priority'}}
_IS_FULL = os.environ.get('VIRTCO_TEST_GEAR') == 'full'
# Calls of each of two tests, and those of each part of one of maps.
_CALLS, _MAP_CALLS = (50_000, 22_000) if _IS_FULL else (1_000, 2_000)


@pytest.fixture
def netns():
    """A hypervisor on which others have queues, filters and tables."""
    bed = beds.Bed(1)
    name = bed.ns('h1')
    try:
        # IPv6 gives itself addresses and routes when a carrier comes.
        for which in ('all', 'default'):
            beds.run('sysctl', '-w', f'net.ipv6.conf.{which}.disable_ipv6=1',
                     netns=name)
        for dev in ('other0', 'tap1'):
            beds.run('ip', 'link', 'add', dev, 'type', 'veth', 'peer',
                     f'{dev}p', netns=name)
        beds.run('ip', 'link', 'add', 'slave0', 'type', 'ifb', netns=name)
        for dev in ('tap1', 'slave0'):
            beds.run('ip', 'link', 'set', dev, 'master', 'brv', netns=name)
        # Others' queues have our handle, and one has our mark too.
        _others_tree(name, 'other0', _OUR_PREF)
        beds.run('tc', 'qdisc', 'add', 'dev', 'uplink0', 'ingress',
                 netns=name)
        _filter(name, 'uplink0', 'ffff:')
        beds.run('nft', '-f', '-', netns=name, text='\n'.join(
            f'add table {table}\nadd chain {table} c\n'
            f'add set {table} peers4_1 {{ type ipv4_addr; }}\n'
            f'add rule {table} c counter accept'
            for table in ('inet filter', 'netdev other')))
        with _others_programs(name) as paths:
            yield name, paths
    finally:
        bed.close()


@contextlib.contextmanager
def _others_programs(netns):
    """Programs like ours that others have at the same devices, and those of
    another namespace, which the same user pinned.
    """
    helper = pwd.getpwnam(fuzz.HELPER).pw_uid
    made = []

    def attach():
        beside = pinned.Tables()
        beside.path = pathlib.Path(pinned.DIRECTORY) / f'1-{run_name.PREFIX}'
        tables = pinned.Tables()
        tables.path = pathlib.Path('/sys/fs/bpf') / run_name.another()
        for one in tables, beside:
            made.append(one.path)
            one.load()
            for path in one.path, *one.path.iterdir():
                os.chown(path, helper, -1)
        for dev, programs in _FOREIGN.items():
            ifindex = socket.if_nametoindex(dev)
            tables.set_device(ifindex, {'own': 1})
            tables.attach(ifindex, programs)

    try:
        beds.in_netns(netns, attach)
        yield made
    finally:
        for path in made:
            shutil.rmtree(path)


def _attached(netns, devs):
    """Programs of others at each device, and all that they have pinned."""
    def look():
        tables = pinned.Tables()
        ours = {}
        for name in bpf_maps.PROGRAMS:
            with contextlib.suppress(FileNotFoundError), tables._open(
                    name) as descriptor:
                ours[_program_id(descriptor)] = name
        found = {}
        for dev in devs:
            for at in _TCX:
                ids = _ids(socket.if_nametoindex(dev), at)
                found[dev, at] = [one for one in ids if one not in ours]
                assert {(ours[one], dev) for one in ids
                        if one in ours} <= ATTACHED
        return found

    return beds.in_netns(netns, look)


def _ids(ifindex, at):
    """Programs at a device, in the order in which they run."""
    ids, count = (ctypes.c_uint32 * 64)(), ctypes.c_uint32(64)
    pinned._checked(pinned._libbpf().bpf_prog_query(
        ifindex, _TCX[at], 0, None, ids, ctypes.byref(count)), 'query')
    return [*ids[:count.value]]


def _program_id(descriptor):
    info, length = ctypes.create_string_buffer(8), ctypes.c_uint32(8)
    pinned._checked(pinned._libbpf().bpf_obj_get_info_by_fd(
        descriptor, info, ctypes.byref(length)), 'ask for a program')
    return struct.unpack('=II', info)[1]


def _pinned(path):
    """Names and numbers of all that is pinned, and one map's contents."""
    tables = pinned.Tables()
    tables.path = path
    return [*sorted((one.name, one.stat().st_ino) for one in path.iterdir()),
            *tables.items('devices', *bpf_maps.SIZES['devices'])]


def _others_tree(netns, dev, r2q):
    beds.run('tc', 'qdisc', 'add', 'dev', dev, 'root', 'handle', '1:', 'htb',
             'r2q', r2q, 'default', '10', netns=netns)
    beds.run('tc', 'class', 'add', 'dev', dev, 'parent', '1:', 'classid',
             '1:10', 'htb', 'rate', '50mbit', 'quantum', '1600', netns=netns)
    _filter(netns, dev, '1:')


def _filter(netns, dev, parent):
    beds.run('tc', 'filter', 'add', 'dev', dev, 'parent', parent, 'protocol',
             'ip', 'pref', '1', 'u32', 'match', 'ip', 'dst', '192.0.2.1/32',
             'flowid', '1:10', netns=netns)


def _json(netns, *command):
    return json.loads(beds.run(*command, netns=netns) or '[]')


def _of_others(netns, paths, is_ours):
    """All of a namespace that the helper may never change.

    :param paths: where others pinned their programs.
    :param is_ours: whether virtco shapes the uplink.
    """
    found = {}
    for kind in ('link', 'address'):
        found[kind] = [
            {key: value for key, value in shown.items()
             if key not in _VOLATILE} | {'is_up': 'UP' in shown['flags']}
            for shown in _json(netns, 'ip', '-j', '-d', kind)
            if shown['ifname'] != _OUR_IFB]
    for kind in (('route', 'show', 'table', 'all'), ('rule',), ('neigh',)):
        found[kind[0]] = [shown for shown in _json(netns, 'ip', '-j', *kind)
                          if shown.get('dev') != _OUR_IFB]
    for shown in found['link']:
        dev = shown['ifname']
        is_free = is_ours and dev == 'uplink0'
        for kind in ('qdisc', 'class', 'filter'):
            if not is_free:
                found[dev, kind] = beds.run('tc', kind, 'show', 'dev', dev,
                                            netns=netns).splitlines()
        found[dev, 'ingress'] = [
            line for line in beds.run('tc', 'filter', 'show', 'dev', dev,
                                      'ingress', netns=netns).splitlines()
            if line.startswith('filter') and f'pref {_OUR_PREF} ' not in line]
        found[dev, 'hook'] = 'qdisc ingress' in beds.run(
            'tc', 'qdisc', 'show', 'dev', dev, netns=netns)
    found['nft'] = [shown for shown in _json(
        netns, 'nft', '-j', 'list', 'ruleset')['nftables']
        if 'metainfo' not in shown and not _is_ours(shown)]
    found |= _attached(netns, [shown['ifname'] for shown in found['link']])
    found |= {path: _pinned(path) for path in paths}
    return found


def _is_ours(shown):
    """Whether an object of nftables is of virtco's table."""
    (kind, item), = shown.items()
    return item['family'] == 'netdev' and 'virtco' == item[
        'name' if kind == 'table' else 'table']


def _check_ours(netns):
    """The own table only sets priorities, at ports and the uplink."""
    # Its JSON does not name the devices of hooks at egress.
    hooks = re.findall(r'hook (\w+) devices? (.*) priority', beds.run(
        'nft', 'list', 'ruleset', 'netdev', netns=netns))
    assert {(hook, dev.strip('"')) for hook, dev in hooks} <= HOOKED | {
        ('egress', 'tap1')}
    for shown in _json(netns, 'nft', '-j', 'list', 'ruleset')['nftables']:
        if 'metainfo' in shown or not _is_ours(shown):
            continue
        if 'chain' in shown and 'hook' in shown['chain']:
            assert shown['chain'].get('policy', 'accept') == 'accept'
        for statement in shown.get('rule', {}).get('expr', ()):
            assert statement.keys() <= _STATEMENTS, statement
            if 'mangle' in statement:
                assert statement['mangle']['key'] == _PRIORITY
    actions = beds.run('tc', 'filter', 'show', 'dev', 'uplink0', 'ingress',
                       netns=netns)
    for line in actions.splitlines():
        if 'mirred' in line:
            assert f'Egress Redirect to device {_OUR_IFB}' in line


def _fuzz(netns, count, seed, start):
    done = subprocess.run(
        [sys.executable, '-m', 'tests.netns.edge.fuzz', netns, str(count),
         str(seed), start], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found['alive'], found
    for call in {name.split()[0] for name in found['ended']} & {
            'nft_change', 'bpf_change'}:
        hooked = {(hook, dev) for name, hook, dev in found['hooked']
                  if name == call}
        assert ('ingress', 'tap1') in hooked <= HOOKED, (found, seed)
    return found['ended']


def _holds(netns, paths, count, is_ours, seed, start=''):
    if not is_ours:
        _others_tree(netns, 'uplink0', 10)
    before = _of_others(netns, paths, is_ours)
    ended = _fuzz(netns, count, seed, start)
    after = _of_others(netns, paths, is_ours)
    for what, was in before.items():
        if isinstance(was, list):
            changed = [shown for shown in (*was, *after[what])
                       if shown not in was or shown not in after[what]]
            assert changed == [], (what, seed)
        assert after[what] == was, (what, seed)
    assert after.keys() == before.keys()
    _check_ours(netns)
    # Neither is everything refused nor everything made.
    for name in ('tc_change made', 'tc_change refused', 'nft_change made',
                 'nft_change refused', 'nft_change answered',
                 'bpf_change made', 'bpf_change refused', 'bpf_read answered',
                 'bpf_read refused', 'bpf_missing made'):
        if not name.startswith(start):
            continue
        assert ended.get(name, 0) > count / 200, ended
    assert not any(name.endswith('Error') for name in ended), ended


@pytest.mark.parametrize('is_ours', [True, False],
                         ids=['our tree', "somebody's tree"])
def test_random_calls_change_nothing_of_others(netns, is_ours):
    _holds(*netns, _CALLS, is_ours, seed=1)


@pytest.mark.parametrize('part', range(5 if _IS_FULL else 1))
def test_random_changes_of_maps_change_nothing_of_others(netns, part):
    _holds(*netns, _MAP_CALLS, True, seed=2 + part, start='bpf')
