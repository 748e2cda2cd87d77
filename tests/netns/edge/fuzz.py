# SPDX-License-Identifier: Apache-2.0

"""Calls of a helper with random operations, well formed and damaged.

A program for a network namespace as ``escapes`` has: root starts it, it goes
there and becomes nobody with a real helper, makes as many calls as it is told,
and prints how they ended as JSON.
"""

import collections
import json
import random
import socket
import sys

import msgspec
from oslo_config import cfg

from edge_module import edge_options as edge_conf
from edge_module.privileged import guarded
from edge_module.privileged import operations
from tests.netns.edge import forked

#: User of the helper.
HELPER = 'daemon'
DEVICES = ('uplink0', 'uplink0', 'virtco-in', 'virtco-in', 'tap1',
           'other0', 'slave0', 'brv', 'lo')
TEXTS = ('', 'x', 'ingress_seen', 'ingress_pair4', 'peers4_1', 'table',
         'ruleset', 'drop', 'pair4 drop', '10.0.0.1 } ; flush ruleset',
         'a.example', '\n', '\0', 'include "/etc/shadow"', 'ether daddr set',
         '{', '10.0.0.1 ip daddr set 10.0.0.9', 'é', 'x' * 300)
NUMBERS = (0, 1, 2, 0x10, 0xffff, 0x10000, 0x10010, 0x70000010,
           2 ** 31 - 1, 2 ** 31,
           2 ** 32 - 1, 2 ** 32, 2 ** 63 - 1, -1, 0xffff0000, 0x80000800)


class Maker:
    """Makes operations; the same ones for the same seed.

    :param start: of the names of calls to make.
    """

    def __init__(self, seed, start=''):
        self.start = start
        self.random = random.Random(seed)
        self.choice = self.random.choice

    def ifindex(self):
        try:
            return socket.if_nametoindex(self.choice(DEVICES))
        except OSError:
            return 7

    def minor(self):
        return self.choice((0, 1, 2, 3, 0x10, 0x11, 0x7001, 0xc001, 0xffff))

    def number(self):
        return self.choice(NUMBERS)

    def htb_class(self):
        rate = self.choice((8, 8000, 10 ** 8, 10 ** 15))
        made = {'minor': self.minor(), 'parent': self.minor(),
                'rate_bps': rate, 'ceil_bps': rate,
                'prio': self.random.randrange(8), 'quantum_bytes': 60000,
                'limit_bytes': self.choice((None, 0, 1, 65536, 2 ** 32 - 1)),
                'packet_bytes': self.choice((None, 1564, 2 ** 20))}
        if self.random.random() < 0.2:
            made[self.choice([*made])] = self.anything()
        return made

    def address(self):
        return self.choice(('10.0.0.1', '10.0.0.2', '224.0.0.1', 'fd00::1',
                            'fe80::2', '::ffff:10.0.0.1', *TEXTS[8:12]))

    def key(self):
        return {'dev': '', 'src_ip': self.address(),
                'dst_ip': self.address(), 'dst_port': self.minor()}

    def entry(self):
        return [self.ifindex(), self.address(), self.address(),
                self.choice((0, 80, 65535))]

    def map_key(self):
        return [self.ifindex(), self.choice(('', '02:00:00:00:00:01', 'x'))]

    def few(self, make):
        return [make() for _ in range(self.random.randrange(4))]

    def with_minor(self, make):
        return lambda: [make(), self.minor()]

    def port(self, *devs):
        """A device with its ifindex, or a wrong one."""
        dev = self.choice(devs or ('tap1', *DEVICES))
        try:
            right = socket.if_nametoindex(dev)
        except OSError:
            right = 7
        return [dev, self.choice((right, right, self.ifindex()))]

    def tc(self):
        return self.choice((
            lambda: ['AddRoot', self.ifindex()],
            lambda: ['Share', self.ifindex(), self.choice((
                'root', 'link', 'container', 'sieve', 'tree', 'x'))],
            lambda: ['SetClass', self.ifindex(), self.htb_class()],
            lambda: ['SetClass', self.ifindex(), self.htb_class()],
            lambda: ['SetLeaf', self.ifindex(), self.htb_class()],
            lambda: ['DeleteClass', self.ifindex(), self.minor()],
            lambda: ['AddIfb', self.choice((0, self.ifindex()))],
            lambda: ['AddIngress', self.ifindex()],
            lambda: ['DeleteClass', self.ifindex(), self.minor()],
            lambda: ['EndRedirect', self.ifindex()],
            lambda: ['Redirect', self.ifindex(), self.ifindex()],
            lambda: ['MatchPair', self.ifindex(), self.key(), self.minor()],
            lambda: ['DeletePair', self.ifindex(), self.number(),
                     self.number()],
            lambda: [self.choice((16, 36, 37, 44, 45, 'DeleteRoot')), 0,
                     self.random.randbytes(36)]))()

    def nft(self):
        return self.choice((
            lambda: ['DeleteTable'], lambda: ['AddTable'],
            lambda: ['ChangeMap', self.choice((
                'control', 'to', 'others', 'home', 'peer')),
                     self.few(self.map_key),
                     self.few(self.with_minor(self.map_key))],
            lambda: ['ChangeEntries', self.few(self.entry),
                     self.few(self.with_minor(self.entry))],
            lambda: ['SetRules', self.few(lambda: self.choice(
                ('port4', 'pair4', 'later6', 'first6', *TEXTS[7:9]))),
                     self.choice((True, False))],
            lambda: ['AttachPort', *self.port(), self.minor()],
            lambda: ['AttachPort', *self.port('tap1'), self.minor()],
            lambda: ['DetachPort', self.port()[1]],
            lambda: ['AttachUplink', *self.port(),
                     self.choice((True, False))],
            lambda: ['DetachUplink', self.port()[1],
                     self.choice((True, False))],
            lambda: [self.choice(TEXTS)]))()

    def anything(self):
        return self.choice((self.number, lambda: self.choice(TEXTS),
                            lambda: self.random.randbytes(9),
                            lambda: None, list, dict, lambda: 1.5))()

    def _call(self):
        """Name of a call and its argument, well formed."""
        count = self.choice((1, 1, 1, 2, 3))
        return self.choice((
            lambda: ('tc_change', [self.tc() for _ in range(count)]),
            lambda: ('tc_change', [self.tc() for _ in range(count)]),
            lambda: ('nft_change', [self.choice(('ingress', 'egress')),
                                    [self.nft() for _ in range(count)]]),
            lambda: ('nft_change', ['ingress', [['AddTable'], *(
                self.nft() for _ in range(count))]]),
            lambda: ('nft_read', [['Listing', self.choice(
                ('table', 'sets table', 'map', 'set', 'ruleset')),
                self.choice(TEXTS)]]),
            lambda: ('bpf_change', [self.choice(('ingress', 'egress')),
                                    [self.nft() for _ in range(count)]]),
            # To load the programs takes the kernel tens of milliseconds.
            lambda: ('bpf_change', ['ingress', [self.choice((
                ['AddTable'], ['SetRules', [], True])), *(
                    self.nft() for _ in range(count))]]),
            lambda: ('bpf_read', [['MapListing', self.choice((
                'flows', 'links', 'cache', 'settings', 'devices', 'macs',
                'reached', 'fragments',
                *TEXTS[:2], '../x')), self.choice((
                    self.number, self.ifindex))()] for _ in range(count)]),
            lambda: (self.choice(('bpf_missing', 'bpf_missing', 'bpf_x',
                                  'tc_send', 'nft_run', 'cpu_s', 'x')),
                     self.choice((None, None, 0, [])))))()

    def call(self):
        """Name of a call and its encoded argument."""
        name, argument = self._call()
        while not name.startswith(self.start):
            name, argument = self._call()
        if self.random.random() < 0.2:
            _damage(argument, self)
        data = msgspec.msgpack.encode(argument)
        if self.random.random() < 0.1:
            damaged = bytearray(data)
            damaged[self.random.randrange(len(data))] ^= (
                1 << self.random.randrange(8))
            data = bytes(damaged)
        return name, data


def _damage(argument, maker):
    """Replace, add or drop a value somewhere inside."""
    while isinstance(argument, list) and argument:
        at = maker.random.randrange(len(argument))
        if isinstance(argument[at], list) and maker.random.random() < 0.7:
            argument = argument[at]
            continue
        maker.choice((
            lambda: argument.__setitem__(at, maker.anything()),
            lambda: argument.append(maker.anything()),
            lambda: argument.pop(at)))()
        return


def main():
    forked.enter(sys.argv[1])
    count, seed = map(int, sys.argv[2:4])
    edge_conf.register_opts(cfg.CONF)
    cfg.CONF([])
    cfg.CONF.set_override('uplink_dev', 'uplink0', 'edge')
    guarded.start_and_drop('nobody', HELPER)
    uplink = socket.if_nametoindex('uplink0')
    guarded.tc_change([operations.AddRoot(uplink), operations.AddIfb()])
    guarded.tc_change([operations.AddRoot(
        socket.if_nametoindex('virtco-in'))])
    maker = Maker(seed, *sys.argv[4:])
    ended, hooked = collections.Counter(), set()
    for _ in range(count):
        name, data = maker.call()
        try:
            made = guarded.call(name, data)
        except operations.Refused:
            ended[f'{name} refused'] += 1
        except Exception as error:
            ended[f'{name} {type(error).__name__}'] += 1
        else:
            # Of a change, what the kernel refused.
            ended[f'{name} {"answered" if made else "made"}'] += 1
            if name in ('nft_change', 'bpf_change') and made is None:
                hook, changes = msgspec.msgpack.decode(data)
                hooked |= {(name, hook, change[1]) for change in changes
                           if change[0] == 'AttachPort'}
    print(json.dumps({'ended': ended, 'alive': guarded.alive(),
                      'hooked': sorted(hooked)}))


if __name__ == '__main__':
    main()
