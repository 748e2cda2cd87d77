# SPDX-License-Identifier: Apache-2.0

"""Small casts, member by member, and the numbers that bound large ones."""

import pytest

from virtco import exception
from virtco_tenant.cast import demand
from virtco_tenant.cast import members
from virtco_tenant.cast import peers
from virtco_tenant.cast import swarm
from virtco_tenant.cast import torrents

MIB = 1024 * 1024


def plan(*clusters, function=peers.plan, seed=0, **values):
    return function('s', [peers.Member('s'), *(
        peers.Member(f'{cluster}{place}', cluster)
        for place, cluster in enumerate(clusters))], seed, **values)


def links(parts, level):
    return {name: set(part.links[level]) for name, part in parts.items()
            if part.links[level]}


def test_two_clusters():
    parts = plan('a', 'a', 'b')
    assert links(parts, peers.FIRST) == {
        's': {'a0', 'a1', 'b2'}, 'a0': {'s'}, 'a1': {'s'}, 'b2': {'s'}}
    assert links(parts, peers.BETWEEN) == {
        'a0': {'b2'}, 'a1': {'b2'}, 'b2': {'a0', 'a1'}}
    assert links(parts, peers.WITHIN) == {'a0': {'a1'}, 'a1': {'a0'}}
    # The source gives each cluster as much as its size.
    assert {name: part.share for name, part in parts.items()} == {
        's': None, 'a0': peers.Share(0, 2, (0.0, 2 / 3)),
        'a1': peers.Share(1, 2, (0.0, 2 / 3)),
        'b2': peers.Share(0, 1, (2 / 3, 1.0))}


def test_those_beyond_the_first_clusters_take_from_others():
    parts = plan(*'abcdef')
    assert links(parts, peers.FIRST).keys() == {'s', 'a0', 'b1', 'c2', 'd3'}
    assert parts['e4'].share == peers.Share(0, 1, (0.0, 0.0))
    assert parts['e4'].share.first == peers.Share(0, 1).first
    assert not any(parts['e4'].share.is_first(block) for block in range(99))


def test_those_beyond_the_gates_fetch_nothing():
    parts = plan(*'a' * 33, 'b')
    assert parts['a31'].share.gates == 32 and parts['a31'].share.gate == 31
    assert parts['a32'].share is None
    # Links between clusters are of gates.
    assert links(parts, peers.BETWEEN)['b33'] == {
        f'a{gate}' for gate in range(32)}


def test_neighbours_are_bounded_and_the_swarm_is_connected():
    n = 60
    parts = plan(*['a'] * n)
    for place in range(n):
        before = {f'a{one}' for one in range(place)} & parts[
            f'a{place}'].links[peers.WITHIN]
        assert len(before) == min(place, 6)
        assert place == 0 or f'a{place - 1}' in before
    assert plan(*['a'] * n) == parts != plan(*['a'] * n, seed=1)


def test_trees_chains_and_stars():
    assert links(plan(*'aaaa', function=peers.plan_tree), peers.WITHIN) == {
        's': {'a0', 'a1'}, 'a0': {'s', 'a2', 'a3'}, 'a1': {'s'},
        'a2': {'a0'}, 'a3': {'a0'}}
    assert links(plan(*'aa', function=peers.plan_chain), peers.WITHIN) == {
        's': {'a0'}, 'a0': {'s', 'a1'}, 'a1': {'a0'}}
    assert links(plan(*'aaa', function=peers.plan_star), peers.WITHIN)[
        's'] == {'a0', 'a1', 'a2'}


def test_shares_by_block():
    one, other = peers.Share(0, 2, (0.0, 0.5)), peers.Share(1, 2, (0.0, 0.5))
    for block in range(64):
        place = block * 0.7548776662466927 % 1
        assert one.has(block) is (place < 0.5) is not other.has(block)
        assert one.is_clusters_first(block) is (
            block * 0.5698402909980532 % 1 < 0.5)
        assert one.is_first(block) is (
            one.has(block) and one.is_clusters_first(block))
    halves, thirds = [[peers.Share(gate, gates) for gate in range(gates)]
                      for gates in (2, 3)]
    assert [[half.overlaps(third) for third in thirds]
            for half in halves] == [[True, True, False],
                                    [False, True, True]]
    assert not halves[0].overlaps(halves[1])
    assert not halves[1].overlaps(halves[0])


def test_a_chain_hands_all_on():
    parts = plan(*'aaa', function=peers.plan_chain)
    assert demand.demand('s', parts, 8.0) == {
        ('s', 'a0'): 8.0, ('a0', 'a1'): 8.0, ('a1', 'a2'): 8.0}


def test_members_as_far_away_give_each_other():
    """Each takes from the source and from the other two alike."""
    parts = plan(*'aaa', function=peers.plan_plain)
    assert demand.demand('s', parts, 9.0) == {
        (src, dst): 3.0 for src in ('s', 'a0', 'a1', 'a2')
        for dst in ('a0', 'a1', 'a2') if src != dst}


@pytest.mark.parametrize(('size_bytes', 'block_bytes'), [
    (1, 16384), (16 * MIB, 16384), (16 * MIB + 1, 32768),
    (1024 * MIB, 131072), (1024 * MIB + 1, 262144),
    (2 ** 40, 4 * MIB), (2 ** 50, 4 * MIB)])
def test_blocks(size_bytes, block_bytes):
    assert torrents.block_bytes(size_bytes) == block_bytes


def test_files_that_changed(tmp_path):
    for name, text in (('one', 'abc'), ('two', 'de')):
        (tmp_path / name).write_text(text)
    before = torrents.stamps(tmp_path)
    assert {name: size for name, (size, _ns) in before.items()} == {
        str(tmp_path / 'one'): 3, str(tmp_path / 'two'): 2}
    assert torrents.changed(before) is None
    (tmp_path / 'one').unlink()
    assert torrents.changed(before) is None
    (tmp_path / 'two').write_text('def')
    assert torrents.changed(before) == str(tmp_path / 'two')
    assert torrents.stamps(tmp_path / 'two').keys() == {
        str(tmp_path / 'two')}


def test_files_are_described_the_same_at_any_time(tmp_path):
    path = tmp_path / 'file'
    with pytest.raises(exception.Invalid, match='an existing file'):
        torrents.describe(path)
    path.write_bytes(b'')
    with pytest.raises(exception.Invalid, match='at least one byte'):
        torrents.describe(path)
    path.write_bytes(bytes(40_000))
    described = torrents.describe(path)
    assert described == torrents.describe(path)
    assert b'creation date' not in described and b'private' in described
    infos = torrents.infos(described)
    assert [(one.num_pieces(), one.total_size(), one.priv())
            for one in infos] == [(3, 40_000, True)] * 3
    assert len({str(one.info_hash()) for one in infos}) == 3
    for wrong in (b'', b'text', b'de'):
        with pytest.raises(exception.Invalid, match='torrent'):
            torrents.infos(wrong)


def test_what_the_tracker_told():
    told = {'name': 'a', 'host': '10.0.0.1', 'port': 7, 'calls': True}
    assert members.part({'swarms': [[told], [], []], 'share': {
        'gate': 1, 'gates': 2, 'first': [0.0, 0.5]}}) == (
        [[swarm.Peer(**told)], [], []], peers.Share(1, 2, (0.0, 0.5)))
    assert members.part({'swarms': [[]], 'share': None}) == ([[]], None)


def test_constants():
    assert (peers.MAX_NEIGHBOURS, peers.MAX_GATES, peers.MAX_FIRST_CLUSTERS,
            demand._SAMPLE) == (12, 32, 4, 512)
