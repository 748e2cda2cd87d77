# SPDX-License-Identifier: Apache-2.0

"""Switches between hosts and core: what the system's programs are told."""

import types

import pytest

from virtco.topology import tree
from virtco_lab.emulation import shaping
from virtco_lab.emulation import switches

FABRIC = types.SimpleNamespace(core='virtco-emu-abc123-core')


@pytest.fixture(name='told')
def _told(monkeypatch):
    made = []
    monkeypatch.setattr(shaping, 'run_batch', lambda *words: (
        made.append(words)))
    return made


def _shaped(verb, dev, rate):
    return (f'qdisc {verb} dev {dev} root tbf rate {rate}bit burst 16384 '
            'limit 1048576')


def test_each_switch_hangs_below_the_one_above(told):
    switches.grow(FABRIC, tree.Plane(roots=(tree.Node(
        'pod', ('h9',), (tree.Node('rack0', ('h0', 'h1'),
                                   uplink=tree.Uplink(1e6, 2e6)),),
        tree.Uplink(3e6, 4e6)),)))
    links, limits = told
    assert links == (FABRIC.core, [
        line for name, above, hosts in (
            ('pod', 'fabric0', ['h9']), ('rack0', 'pod', ['h0', 'h1']))
        for line in (
            f'link add {name} up type bridge',
            f'link add {name}-up up master {name} type veth peer name '
            f'{name}-down',
            f'link set {name}-down master {above} up',
            *(f'link set {host} master {name}' for host in hosts))], 'ip')
    # What leaves by the lower end goes up, by the upper end down.
    assert limits == (FABRIC.core, [
        _shaped('add', 'pod-up', 3_000_000),
        _shaped('add', 'pod-down', 4_000_000),
        _shaped('add', 'rack0-up', 1_000_000),
        _shaped('add', 'rack0-down', 2_000_000)])


def test_an_uplink_is_changed_both_ways(told):
    switches.set_uplink(FABRIC, 'rack0', tree.Uplink(5e6, 6e6))
    assert told == [(FABRIC.core, [
        _shaped('replace', 'rack0-up', 5_000_000),
        _shaped('replace', 'rack0-down', 6_000_000)])]


@pytest.mark.parametrize(('name', 'is_fine'), [('a' * 10, True),
                                               ('a' * 11, False)])
def test_devices_have_short_names(told, name, is_fine):
    plane = tree.Plane(roots=(tree.Node(name, ('h0',), uplink=tree.Uplink(
        1e6, 1e6)),))
    if is_fine:
        switches.grow(FABRIC, plane)
    else:
        with pytest.raises(AssertionError):
            switches.grow(FABRIC, plane)
