# SPDX-License-Identifier: Apache-2.0

"""What an agent in somebody else's hands may try to get out of its helper.

A program for a network namespace with ``uplink0``, ``tap1`` (a port of a
bridge) and ``other0``: root starts it, it becomes nobody with a real helper,
tries everything, and prints what came of each try as JSON.
"""

import functools
import json
import os
import pathlib
import socket
import sys

from oslo_config import cfg

from edge_module import edge_options as edge_conf
from edge_module.classify import nft_text
from edge_module.privileged import guarded
from edge_module.privileged import helper_limits as limits
from edge_module.qdisc import redirect
from edge_module.qdisc import wire

SECRET = 'nobody-may-read-this'
nft, tc = (functools.partial(guarded.call, name)
           for name in ('nft_run', 'tc_send'))


def tries(directory):
    """Name and what is done, each of which must fail."""
    other = socket.if_nametoindex('other0')
    uplink = socket.if_nametoindex('uplink0')
    hook = nft_text.INGRESS
    yield 'read a file by include', lambda: nft(
        f'include "{directory}/secret"\n')
    yield 'include behind a command', lambda: nft(
        f'add table netdev virtco; include "{directory}/secret"\n')
    yield 'include on a line of its own', lambda: nft(
        f'add table netdev virtco\ninclude "{directory}/secret"\n')
    yield 'list all tables', lambda: nft('list ruleset\n')
    yield 'another table', lambda: nft(
        'delete table inet filter\n')
    yield 'drop packets', lambda: nft(
        hook.skeleton() + 'add rule netdev virtco classify drop\n')
    yield 'hook another device', lambda: nft(
        hook.skeleton() + nft_text.port_chain(hook, 'other0', other))
    yield 'qdisc of another device', lambda: tc(
        [wire.root_qdisc(other, 2)])
    yield 'class of another device', lambda: tc([
        (wire.RTM_NEWTCLASS, 0, wire.TCMSG.pack(0, other, 0x10010, 0x10000, 0)
         + wire.attr(wire.KIND, b'htb\0'))])
    yield 'another qdisc', lambda: tc([
        (wire.RTM_NEWQDISC, wire.NLM_F_CREATE, wire.TCMSG.pack(
            0, uplink, 0x20000, wire.TC_H_ROOT, 0)
         + wire.attr(wire.KIND, b'netem\0'))])
    yield 'redirect to another device', lambda: tc(
        [redirect.redirect_all(uplink, other)])
    yield 'set a device down', lambda: tc([
        (16, 0, wire.struct.pack('=BxHiII', 0, 0, uplink, 0, 1))])
    yield 'delete a device', lambda: tc(
        [redirect.delete_link(other)])
    yield 'add a route', lambda: tc([(24, 0x600, bytes(12))])
    yield 'add an address', lambda: tc([(20, 0x600, bytes(8))])
    yield 'an empty message', lambda: tc(
        [(wire.RTM_NEWTCLASS, 0, b'')])
    yield 'a message of no sense', lambda: tc([('x', {}, None)])
    yield 'too many messages', lambda: tc(
        [wire.delete_root(other)] * 500_001)
    yield 'nested for nothing', lambda: tc(_nested(200))
    yield 'another call', lambda: guarded.call('ask', (18, 0, b''))
    yield 'a call of python', lambda: guarded.call('__import__', 'antigravity')
    yield 'a function that is not offered', lambda: _remote(
        'os.system', f'cat {directory}/secret')
    yield 'load a module', lambda: _remote('edge_module.show.table')
    yield 'load a module of its own', lambda: _remote('planted.function')


def _nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def _remote(name, *arguments):
    return guarded.context.channel.remote_call(name, arguments, {}, 10)


def main():
    directory = pathlib.Path(sys.argv[1])
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
        except limits.Refused:
            found[name] = 'refused'
        except Exception as error:
            found[name] = f'failed {error!r}'[:200]
    uplink = socket.if_nametoindex('uplink0')
    hook = nft_text.INGRESS
    print(json.dumps({
        'tries': found, 'alive': guarded.alive(),
        'uplink': tc([wire.root_qdisc(uplink, 2)]),
        'port': nft(hook.skeleton() + nft_text.port_chain(
            hook, 'tap1', socket.if_nametoindex('tap1')))[0]}))


if __name__ == '__main__':
    main()
