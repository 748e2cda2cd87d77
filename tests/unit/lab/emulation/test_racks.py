# SPDX-License-Identifier: Apache-2.0

"""Racks of VMs: what the system's programs are told."""

import json
import types

import pytest

from virtco_lab.emulation import namespaces
from virtco_lab.emulation import racks


@pytest.fixture(name='told')
def _told(monkeypatch):
    made = types.SimpleNamespace(batches=[], story=[])
    monkeypatch.setattr(namespaces, 'new_run', lambda: 'abc123')
    for name in ('create', 'release'):
        monkeypatch.setattr(namespaces, name, lambda what, name=name: (
            made.story.append((name, what))))
    monkeypatch.setattr(
        racks.shaping, 'run_batch', lambda namespace, lines, program='tc': (
            made.batches.append((program, namespace, lines))))
    return made


def test_vms_are_in_racks_with_addresses_of_their_own(told):
    found = racks.Racks([150, 60], 8e6, 2)
    assert (found.vms['r0v149'], found.vms['r1v0']) == ('rack0', 'rack1')
    assert len(found.vms) == len(set(found.address.values())) == 210
    assert [found.address[name] for name in (
        'r0v0', 'r0v149', 'r1v49', 'r1v50')] == [
            '10.73.0.1', '10.73.0.150', '10.73.0.200', '10.73.1.1']
    assert found.namespace('r0v0') == 'virtco-emu-abc123-r0v0'


def test_links_are_built_and_shaped_and_all_is_taken_away(told):
    fabric = 'virtco-emu-abc123-fabric'
    with racks.Racks([2, 1], 8e6, 4, {'r0v1': 4e6, 'rack1': 1e6}) as found:
        assert told.story == [('create', found.namespace(name)) for name in (
            'fabric', 'r0v0', 'r0v1', 'r1v0')]
    assert told.story[-1] == ('release', 'abc123')
    first, second, *rest = told.batches
    assert first == ('ip', fabric, [
        'link set lo up', 'link add core up type bridge',
        *(line.format(n=n) for n in range(2) for line in (
            'link add rack{n} up type bridge',
            'link add up{n} up master rack{n} type veth peer name down{n}',
            'link set down{n} up master core'))])

    def shaped(dev, rate, burst=16_000):
        return (f'qdisc add dev {dev} root tbf rate {rate}bit burst {burst} '
                'latency 50ms')

    # Two VMs of 8 Mbit/s, a quarter of that; and what is asked for.
    assert second == ('tc', fabric, [
        shaped('up0', 4_000_000), shaped('down0', 4_000_000),
        shaped('up1', 1_000_000), shaped('down1', 1_000_000)])
    assert rest[4:8] == [
        ('ip', fabric, [
            'link add r0v1 up master rack0 type veth peer name eth0 netns '
            'virtco-emu-abc123-r0v1']),
        ('ip', found.namespace('r0v1'), [
            'link set lo up', 'link set eth0 up',
            'addr add 10.73.0.2/16 dev eth0']),
        ('tc', fabric, [shaped('r0v1', 4_000_000)]),
        ('tc', found.namespace('r0v1'), [shaped('eth0', 4_000_000)])]
    assert len(rest) == 12


def test_a_burst_is_two_milliseconds_where_that_is_more():
    assert 'burst 16000 ' in racks._shaped('a', 64e6)
    assert racks._shaped('a', 1e9) == (
        'qdisc add dev a root tbf rate 1000000000bit burst 250000 '
        'latency 50ms')


def test_what_cannot_be_built_is_taken_away(told, monkeypatch):
    def fail(*_words):
        raise OSError('no')

    monkeypatch.setattr(racks.shaping, 'run_batch', fail)
    with pytest.raises(OSError, match='no'), racks.Racks([1], 8e6, 1):
        pass
    assert told.story[-1] == ('release', 'abc123')


def test_bytes_of_uplinks_are_counted_both_ways(told, monkeypatch):
    asked = []

    def output(argv):
        asked.append(argv)
        return json.dumps([
            {'ifname': name, 'stats64': {'tx': {'bytes': sent}}}
            for name, sent in (('up0', 1), ('down0', 20), ('up1', 300),
                               ('r0v0', 4000), ('core', 50_000))])

    monkeypatch.setattr(racks.subprocess, 'check_output', output)
    assert racks.Racks([1], 8e6, 1).uplink_bytes() == 321
    assert asked == [['ip', '-n', 'virtco-emu-abc123-fabric', '-s', '-j',
                      'link']]


def test_programs_run_where_the_vm_is(told, monkeypatch):
    started = []
    monkeypatch.setattr(racks.subprocess, 'Popen', lambda argv, **options: (
        started.append((argv, options))))
    racks.Racks([1], 8e6, 1).start('r0v0', 'ping', 'x', text=True)
    assert started == [(['nsenter',
                         '--net=/run/netns/virtco-emu-abc123-r0v0', 'ping',
                         'x'], {'text': True})]
