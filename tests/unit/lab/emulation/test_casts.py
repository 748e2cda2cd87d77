# SPDX-License-Identifier: Apache-2.0

"""A cast in one process, with transfers that the test makes up."""

import contextlib
import pathlib
import types

import pytest

from virtco import exception
from virtco.topology import tree
from virtco_lab.emulation import bed as beds
from virtco_lab.emulation import casts
from virtco_tenant.cast import peers
from virtco_tenant.cast import swarm


class Fabric:
    bed = beds.Bed(dict.fromkeys('abcd', 1e7), tree.Plane(roots=(
        tree.Node('rack0', ('a', 'b')), tree.Node('rack1', ('c', 'd')))))
    hypervisors = {name: types.SimpleNamespace(
        namespace=f'ns-{name}', address=f'10.0.0.{place}')
        for place, name in enumerate(bed.hosts)}

    def __init__(self):
        self.counts = iter((1000, 5000))

    def switches_bytes(self):
        return next(self.counts)


class Transfer:
    """Has all of the file after it was asked so often."""

    made = {}
    needs = {'a': 0, 'b': 2, 'c': 5, 'd': 3}
    spoils = ()

    def __init__(self, torrent, directory, *, is_source, address, others):
        self.name = directory.name
        self.given = (is_source, address, dict(others))
        self.directory, self.torrent = directory, torrent
        self.port = 7000 + ord(self.name)
        self.asked = self.looked = 0
        self.followed = []
        self.is_ended = False
        Transfer.made[self.name] = self

    @property
    def ready(self):
        self.looked += 1
        return self.looked > 2

    @property
    def share(self):
        self.asked += 1
        if self.asked < self.needs[self.name]:
            return 0.99
        source = Transfer.made['a'].directory / 'file'
        data = source.read_bytes()
        (self.directory / 'file').write_bytes(
            data[1:] if self.name in self.spoils else data)
        return 1.0

    def follow(self, links, share):
        self.followed.append((links, share))

    def rates_bps(self):
        return {'a': 1e6 * len(self.followed)} if self.name == 'b' else {}

    def end(self):
        self.is_ended = True


@pytest.fixture(name='cast')
def _cast(monkeypatch):
    made = types.SimpleNamespace(now_s=100.0, waits_s=[], entered=[])

    def sleep(wait_s):
        made.waits_s.append(wait_s)
        made.now_s += wait_s

    monkeypatch.setattr(casts, 'time', types.SimpleNamespace(
        monotonic=lambda: made.now_s, sleep=sleep))
    monkeypatch.setattr(casts.namespaces, 'call', lambda name, function: (
        made.entered.append(name), function())[1])
    monkeypatch.setattr(swarm, 'Transfer', Transfer)
    monkeypatch.setattr(Transfer, 'made', {})
    made.run = lambda scheme='virtco', size=1000, seed=3, **options: casts.run(
        Fabric(), size, casts.SCHEMES[scheme], seed, **options)
    return made


def test_a_file_goes_from_the_first_to_all_others(cast):
    found = cast.run()
    assert found.ends_s.keys() == {'b', 'c', 'd'}
    # In the order of what they need, looked at each 0.05 s.
    assert [round(found.ends_s[name], 6) for name in 'bdc'] == [
        0.05, 0.1, 0.2]
    assert found.taken_s == found.ends_s['c']
    # Both ends of an uplink count.
    assert found.uplink_copies == (5000 - 1000) / 1000 / 2
    assert sorted(cast.entered) == ['ns-a', 'ns-b', 'ns-c', 'ns-d']
    source = Transfer.made['a']
    assert source.given == (True, '10.0.0.0', {})
    assert Transfer.made['c'].given == (False, '10.0.0.2', {})
    assert all(one.is_ended for one in Transfer.made.values())
    assert all(not one.directory.exists() for one in Transfer.made.values())
    # All are ready by then.
    assert all(one.looked > 2 for one in Transfer.made.values())


def test_a_transfer_that_does_not_start_is_told(cast, monkeypatch):
    monkeypatch.setattr(Transfer, 'ready', False)
    monkeypatch.setattr(casts.process.patience, 'IdleClock', lambda _: (
        types.SimpleNamespace(note=lambda _: None, read_s=lambda: 61.0)))
    with pytest.raises(casts.process.NotReady, match='start of every trans'):
        cast.run()
    assert all(one.is_ended for one in Transfer.made.values())


def test_members_are_told_of_their_neighbours_twice_a_second(cast):
    found = cast.run('star')
    followed = Transfer.made['b'].followed
    assert len(followed) == 1 + int(found.taken_s / 0.5)
    links, share = followed[0]
    assert share is None
    # Whoever came later calls.
    assert links[-1] == [swarm.Peer('a', '10.0.0.0', 7000 + ord('a'), True)]
    own, _share = Transfer.made['a'].followed[0]
    assert [(one.name, one.calls) for one in own[-1]] == [
        ('b', False), ('c', False), ('d', False)]


def test_rates_are_medians_of_what_was_seen(cast, monkeypatch):
    monkeypatch.setattr(Transfer, 'needs', {'a': 0, 'b': 1, 'c': 26, 'd': 1})
    found = cast.run()
    n = len(Transfer.made['b'].followed)
    assert n == 3
    assert found.rates_bps == {('a', 'b'): 1e6 * (n + 1) / 2}


def test_only_some_receive_where_it_is_said(cast):
    found = cast.run(receivers=2)
    assert len(found.ends_s) == 2
    again = cast.run(receivers=2)
    assert again.ends_s.keys() == found.ends_s.keys()
    assert {frozenset(cast.run(receivers=2, seed=seed).ends_s)
            for seed in range(9)} != {frozenset(found.ends_s)}


@pytest.mark.parametrize(('scheme', 'clusters', 'known'), [
    ('virtco', None, [None] * 4),
    ('virtco, topology', None, ['rack0', 'rack0', 'rack1', 'rack1']),
    ('virtco', {'a': 'x', 'c': 'y'}, ['x', None, 'y', None])])
def test_racks_are_known_to_those_who_know_them(cast, monkeypatch, scheme,
                                                clusters, known):
    seen = []

    def plan(source, members, seed):
        seen.append((source, {one.name: one.cluster for one in members},
                     seed))
        return peers.plan(source, members, seed)

    monkeypatch.setitem(casts.SCHEMES, scheme, casts.dataclasses.replace(
        casts.SCHEMES[scheme], plan=plan))
    cast.run(scheme, clusters=clusters)
    assert seen == [('a', dict(zip('abcd', known)), 3)]


def test_bittorrent_has_settings_of_its_own(cast):
    cast.run('BitTorrent')
    others = Transfer.made['b'].given[2]
    assert others == {
        'unchoke_slots_limit': 4, 'num_optimistic_unchoke_slots': 1,
        'peer_turnover': 4, 'request_queue_time': 3,
        'send_redundant_have': True, 'close_redundant_connections': True}
    assert [name for name, one in casts.SCHEMES.items()
            if one.knows_racks] == ['virtco, topology']


def test_who_lacks_it_in_the_end_is_told(cast, monkeypatch):
    monkeypatch.setattr(Transfer, 'needs', {'a': 0, 'b': 1, 'c': 99, 'd': 1})
    with pytest.raises(exception.VirtcoException,
                       match='^2 of 3 have it after 0.5 s'):
        cast.run(limit_s=0.5)
    assert all(one.is_ended for one in Transfer.made.values())
    with contextlib.suppress(exception.VirtcoException):
        cast.run(limit_s=60.0)


def test_other_bytes_are_told(cast, monkeypatch):
    monkeypatch.setattr(Transfer, 'spoils', ('d',))
    with pytest.raises(exception.VirtcoException, match='d has other bytes'):
        cast.run()
    assert not any(pathlib.Path(one.directory).exists()
                   for one in Transfer.made.values())
