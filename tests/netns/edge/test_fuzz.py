# SPDX-License-Identifier: Apache-2.0

"""Random calls of the helper change nothing but what virtco owns."""

import json
import os
import subprocess
import sys

import pytest

from tests.netns.edge import bed as beds

pytestmark = pytest.mark.netns

# As the kernel shows the preference of the filter that redirects.
_OUR_PREF = 0x7c0
HOOKED = {('egress', 'uplink0'), ('ingress', 'tap1')}
_OUR_IFB = 'virtco-in'
# Timers of bridges and the carrier change by themselves.
_VOLATILE = {'qdisc', 'addr_info', 'linkinfo', 'flags', 'operstate'}
_STATEMENTS = {'match', 'mangle', 'jump', 'goto', 'return', 'accept', 'set',
               'map'}
_PRIORITY = {'meta': {'key': 'priority'}}
# Calls of each of two tests.
_CALLS = 50_000 if os.environ.get('VIRTCO_TEST_GEAR') == 'full' else 1_000


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
        yield name
    finally:
        bed.close()


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


def _of_others(netns, is_ours):
    """All of a namespace that the helper may never change.

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
    return found


def _is_ours(shown):
    """Whether an object of nftables is of virtco's table."""
    (kind, item), = shown.items()
    return item['family'] == 'netdev' and 'virtco' == item[
        'name' if kind == 'table' else 'table']


def _check_ours(netns):
    """The own table only sets priorities, at ports and the uplink."""
    for shown in _json(netns, 'nft', '-j', 'list', 'ruleset')['nftables']:
        if 'metainfo' in shown or not _is_ours(shown):
            continue
        if 'chain' in shown and 'hook' in shown['chain']:
            at = shown['chain']
            assert (at['hook'], at['dev']) in HOOKED
            assert at.get('policy', 'accept') == 'accept'
        for statement in shown.get('rule', {}).get('expr', ()):
            assert statement.keys() <= _STATEMENTS, statement
            if 'mangle' in statement:
                assert statement['mangle']['key'] == _PRIORITY
    actions = beds.run('tc', 'filter', 'show', 'dev', 'uplink0', 'ingress',
                       netns=netns)
    for line in actions.splitlines():
        if 'mirred' in line:
            assert f'Egress Redirect to device {_OUR_IFB}' in line


def _fuzz(netns, count, seed):
    done = subprocess.run(
        ['ip', 'netns', 'exec', netns, sys.executable, '-m',
         'tests.netns.edge.fuzz', str(count), str(seed)],
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found['alive'], found
    hooked = {*map(tuple, found['hooked'])}
    assert ('ingress', 'tap1') in hooked <= HOOKED, (found, seed)
    return found['ended']


def _holds(netns, count, is_ours, seed):
    if not is_ours:
        _others_tree(netns, 'uplink0', 10)
    before = _of_others(netns, is_ours)
    ended = _fuzz(netns, count, seed)
    after = _of_others(netns, is_ours)
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
                 'nft_change refused', 'nft_change answered'):
        assert ended.get(name, 0) > count / 200, ended
    assert not any(name.endswith('Error') for name in ended), ended


@pytest.mark.parametrize('is_ours', [True, False],
                         ids=['our tree', "somebody's tree"])
def test_random_calls_change_nothing_of_others(netns, is_ours):
    _holds(netns, _CALLS, is_ours, seed=1)
