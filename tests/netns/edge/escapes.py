# SPDX-License-Identifier: Apache-2.0

"""What an agent in somebody else's hands may try to get out of its helper.

A program for a network namespace with ``uplink0``, ``tap1`` (a port of a
bridge) and ``other0``: root starts it, it goes there and becomes nobody with a
real helper, tries everything, and prints what came of each try as JSON.
"""

import dataclasses
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import msgspec
from oslo_config import cfg

from edge_module import edge_options as edge_conf
from edge_module.classify import bpf_maps
from edge_module.classify import classified as classify
from edge_module.privileged import guarded
from edge_module.privileged import operations
from edge_module.qdisc import redirect
from edge_module.qdisc import wire
from edge_module.tcplan import model
from edge_module.tcplan import vf_rates
from tests.netns.edge import forked
from virtco import exception

SECRET = 'nobody-may-read-this'
CLASS = model.HtbClass(0x10, 0, 8000, 8000, 0, 65536, None)


def tries(directory):
    """Name and what is done, each of which must fail."""
    other = socket.if_nametoindex('other0')
    uplink = socket.if_nametoindex('uplink0')
    include = f'0 }}\ninclude "{directory}/secret"\n'
    yield 'text of nft', lambda: guarded.call('nft_run', include)
    for how, change in ('nft', guarded.nft_change), (
            'bpf', guarded.bpf_change):
        for name, attempt in _tries_of(change, include):
            yield f'{name} ({how})', attempt
    yield 'include by the name of a set', lambda: _read('set', include)
    yield 'list all tables', lambda: _read('ruleset')
    yield 'another table', lambda: _read('table inet filter')
    for name in ('fragments', 'from_vm', 'link-from_vm-1', '../x', include):
        yield f'read {name!r} of the maps', lambda name=name: (
            guarded.bpf_read([operations.MapListing(name)]))
    for name in ('/../secret', -1, 2 ** 31, None):
        yield f'read the cache of {name!r}', lambda name=name: (
            guarded.bpf_read([operations.MapListing('cache', name)]))
    yield 'a path of pins', lambda: guarded.call(
        'bpf_missing', msgspec.msgpack.encode(os.fspath(directory)))
    yield 'qdisc of another device', lambda: _tc(operations.AddRoot(other))
    yield 'class of another device', lambda: _tc(
        operations.SetClass(other, CLASS))
    yield 'an HTB for others', lambda: _tc(operations.Share(other, 'root'))
    yield 'a class in the HTB of others', lambda: _tc(
        operations.Share(uplink, 'container'))
    yield 'delete a class of somebody else', lambda: _tc(
        operations.DeleteClass(uplink, 0x10))
    yield 'redirect to another device', lambda: _tc(
        operations.Redirect(uplink, other))
    yield 'redirect from another device', lambda: _tc(
        operations.Redirect(other, uplink))
    yield 'a rate of a port that there is not', lambda: _tc(
        operations.SetRate(vf_rates.Step('set', vf_rates.Name(
            'pci', '0000:03:00.0', 1), 1, 1)))
    for ifindex in uplink, other:  # of the uplink where it is not asked for
        yield f'a rate of a function at {ifindex}', lambda ifindex=ifindex: (
            _tc(operations.SetRate(vf_rates.Step('set', vf_rates.Name(
                vf_rates.CARD, str(ifindex), 1), 1, 1))))
    yield 'filters of the uplink', lambda: _tc(
        operations.DeletePair(uplink, 0x80000800, 1 << 16))
    # All of the kernel's messages that no operation builds.
    for kind in (wire.RTM_DELQDISC, wire.RTM_DELTFILTER, 16, 17, 20, 24):
        yield f'a message of type {kind}', lambda kind=kind: guarded.call(
            'tc_change', msgspec.msgpack.encode([[kind, 0, bytes(32)]]))
    yield 'bytes past the last field', lambda: guarded.call(
        'tc_change', msgspec.msgpack.encode(
            [['AddRoot', uplink, b'\x08\0\x01\0bfifo\0']]))
    yield 'a class of many bytes', lambda: _tc(operations.SetClass(
        uplink, dataclasses.replace(CLASS, limit_bytes=2 ** 40)))
    yield 'a message of no sense', lambda: guarded.call('tc_change', 7)
    yield 'too many operations', lambda: _tc(
        *[operations.AddIfb()] * 500_001)
    yield 'nested for nothing', lambda: guarded.call(
        'tc_change', msgspec.msgpack.encode(_nested(200)))
    yield 'another call', lambda: guarded.call('ask', b'')
    yield 'a call of python', lambda: guarded.call(
        '__import__', b'antigravity')
    yield 'a function that is not offered', lambda: _remote(
        'os.system', f'cat {directory}/secret')
    yield 'load a module', lambda: _remote('edge_module.show.table')
    yield 'load a module of its own', lambda: _remote('planted.function')


def _tries_of(change, include):
    """Those of a classification, by nftables or by programs."""
    def change_at(*changes, hook='ingress'):
        return change(hook, changes)

    yield 'include by an address', lambda: change_at(operations.ChangeEntries(
        [classify.Entry(1, f'10.0.0.1{include}', '10.0.0.2', 0)], []))
    yield 'look up the name of a host', lambda: change_at(
        operations.ChangeEntries(
            [], [(classify.Entry(1, 'a.example', '10.0.0.2', 0), 16)]))
    yield 'include by the name of a device', lambda: change_at(
        operations.DetachPort(f'x{include}'))
    yield 'include by a MAC address', lambda: change_at(operations.ChangeMap(
        'to', [], [(classify.MapKey(
            1, f'00:00:00:00:00:01{include}'), 16)]))
    yield 'include by a line after a name', lambda: change_at(
        operations.AttachPort(f'tap1\n{include}', 1, 1))
    # Statements that the grammar of an earlier release let pass.
    for statement in ('ip daddr set 10.0.0.9', 'tcp dport set 22', 'drop',
                      'ether daddr set 02:00:00:00:00:09',
                      '@nh,128,32 set 0x0a000009'):
        yield f'rewrite by {statement}', lambda statement=statement: change_at(
            operations.SetRules([f'pair4 {statement}'], False))
    for dev in ('other0', 'slave0', 'lo', 'brv', 'uplink0'):
        yield f'hook {dev}', lambda dev=dev: change_at(
            operations.AddTable(),
            operations.AttachPort(
                dev, socket.if_nametoindex(dev), 0x7001))
    yield 'hook a device by the index of a port', lambda: change_at(
        operations.AttachPort(
            'other0', socket.if_nametoindex('tap1'), 0x7001))
    yield 'hook a port at egress', lambda: change_at(
        operations.AttachPort(
            'tap1', socket.if_nametoindex('tap1'), 0x7001),
        hook='egress')
    for dev in ('other0', 'slave0', 'lo', 'brv', 'tap1'):
        yield f'an exit at {dev}', lambda dev=dev: change_at(
            operations.AddTable(), operations.AttachUplink(
                dev, socket.if_nametoindex(dev), True))
    yield 'an exit by the index of another device', lambda: change_at(
        operations.AttachUplink(
            'uplink0', socket.if_nametoindex('other0'), True))


def _tc(*changes):
    return guarded.tc_change(changes)


def _changes(uplink):
    """Every change of queues that an agent makes, in order."""
    leaf = dataclasses.replace(CLASS, minor=0x11, limit_bytes=65536)
    yield operations.AddRoot(uplink)
    yield operations.SetClass(uplink, CLASS)
    yield operations.SetClass(uplink, leaf)
    yield operations.SetLeaf(uplink, leaf)
    yield operations.DeleteClass(uplink, CLASS.minor)
    yield operations.AddIfb()
    ifb = socket.if_nametoindex('virtco-in')
    yield operations.AddRoot(ifb)
    yield operations.SetClass(ifb, CLASS)
    yield operations.AddIngress(uplink)
    yield operations.Redirect(uplink, ifb)
    yield operations.EndRedirect(uplink)
    yield operations.Redirect(uplink, ifb)
    for number in (1, 2):
        yield operations.MatchPair(ifb, classify.Entry(
            0, '10.0.0.1', f'10.0.0.{number}'), CLASS.minor)
    shown = guarded.tc_dump(redirect.dump_pairs(ifb))
    _, *first = next(filter(None, map(redirect.read_pair, shown)))
    yield operations.DeletePair(ifb, *first)


def _read(*listing):
    return guarded.nft_read([operations.Listing(*listing)])


def _nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def _remote(name, *arguments):
    return guarded.context.channel.remote_call(name, arguments, {}, 10)


def main():
    forked.enter(sys.argv[1])
    directory = pathlib.Path(sys.argv[2])
    # A module that the agent could have put there.
    sys.path.insert(0, os.fspath(directory / 'planted'))
    edge_conf.register_opts(cfg.CONF)
    cfg.CONF([])
    cfg.CONF.set_override('uplink_dev', 'uplink0', 'edge')
    guarded.start_and_drop('nobody', 'daemon')
    found = {}
    for name, attempt in tries(directory):
        try:
            found[name] = f'answered {attempt()!r}'[:200]
        except operations.Refused:
            found[name] = 'refused'
        except exception.KernelRefused as error:
            found[name] = ('refused' if isinstance(
                error.__cause__, operations.Refused) else f'failed {error!r}')
        except Exception as error:
            found[name] = f'failed {error!r}'[:200]
    # The end of another child is not the helper's.
    subprocess.Popen(['/bin/true'])
    time.sleep(0.5)
    uplink = socket.if_nametoindex('uplink0')
    port = [operations.AddTable(), operations.AttachPort(
        'tap1', socket.if_nametoindex('tap1'), 0x7001)]
    made = {
        'tries': found, 'alive': guarded.alive(),
        'uplink': [failed for change in _changes(uplink)
                   for failed in _tc(change)],
        'missing': guarded.bpf_missing(),
        'programs': guarded.bpf_change('ingress', port)}
    links, = guarded.bpf_read([operations.MapListing('links')])
    made['links'] = [*bpf_maps.LINK.iter_unpack(links)]
    # It takes the programs away.
    made['port'] = guarded.nft_change('ingress', port)
    print(json.dumps(made))


if __name__ == '__main__':
    main()
