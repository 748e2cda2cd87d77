# SPDX-License-Identifier: Apache-2.0

"""Members of a cast in one process, on loopback."""

import os
import time

import pytest

from tests import patience
from virtco_tenant.cast import peers
from virtco_tenant.cast import swarm
from virtco_tenant.cast import torrents

_SIZE_BYTES = 1_000_000


@pytest.fixture
def source(tmp_path):
    path = tmp_path / 'src' / 'file'
    path.parent.mkdir()
    path.write_bytes(os.urandom(_SIZE_BYTES))
    return path


@pytest.fixture
def join(tmp_path, source):
    joined = []
    torrent = torrents.describe(source)

    def call(name, address, **options):
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        joined.append(swarm.Transfer(
            torrent, directory, is_source=name == 'src', address=address,
            **options))
        patience.wait_for(lambda: joined[-1].ready, 'the check of files')
        return joined[-1]
    yield call
    for transfer in joined:
        transfer.end()


def _peer(name, address, transfer, calls=True):
    return swarm.Peer(name, address, transfer.port, calls)


def test_a_cap_holds_between_neighbours(join):
    """Private addresses are no exception to it, as libtorrent's default is."""
    giver = join('src', '127.0.0.1', rate_bps=4e6)
    taker = join('a', '127.0.0.1')
    began_s = time.monotonic()
    taker.follow([[], [], [_peer('src', '127.0.0.1', giver)]], None)
    giver.follow([[], [], [_peer('a', '127.0.0.1', taker, False)]], None)
    patience.wait_for(lambda: taker.share == 1, 'the file')
    # Two seconds, less what a token bucket gives at once.
    assert time.monotonic() - began_s > 1.0


def test_a_new_gate_gives_other_clusters_what_it_has(join, source, tmp_path):
    """What it got from its own cluster before it was one, after a restart."""
    (tmp_path / 'a').mkdir()
    (tmp_path / 'a' / 'file').write_bytes(source.read_bytes())
    gate = join('a', '127.0.0.1')
    assert gate.share == 1
    taker = join('b', '127.0.0.1')
    share = peers.Share(0, 1)
    gate.follow([[], [_peer('b', '127.0.0.1', taker, False)], []], share)
    taker.follow([[], [_peer('a', '127.0.0.1', gate)], []], share)
    patience.wait_for(lambda: taker.share == 1, 'the file')
    assert (tmp_path / 'b' / 'file').read_bytes() == source.read_bytes()


def test_a_block_that_is_broken_on_disk_is_fetched_again(join, source,
                                                         tmp_path):
    (tmp_path / 'a').mkdir()
    broken = bytearray(source.read_bytes())
    broken[500_000] ^= 1
    (tmp_path / 'a' / 'file').write_bytes(broken)
    giver = join('src', '127.0.0.1')
    taker = join('a', '127.0.0.1')
    assert 0.9 < taker.share < 1
    taker.follow([[], [], [_peer('src', '127.0.0.1', giver)]], None)
    giver.follow([[], [], [_peer('a', '127.0.0.1', taker, False)]], None)
    # A block counts once it is checked, before it is on the disk.
    patience.wait_for(lambda: taker.share == 1 and (
        tmp_path / 'a' / 'file').read_bytes() == source.read_bytes(),
        'the block')


def test_a_slow_cluster_does_not_hold_up_another(join):
    """Half of the blocks are first to go to a gate that gives 20 kB/s."""
    addresses = dict.fromkeys(('src', 'fast', 'slow'), '127.0.0.1')
    members = [peers.Member(name, name) for name in addresses]
    parts = peers.plan('src', members, 0)
    rates_bps = {'src': 4e6, 'fast': 0, 'slow': 160e3}
    joined = {name: join(name, address, rate_bps=rates_bps[name])
              for name, address in addresses.items()}
    order = list(addresses)
    began_s = time.monotonic()

    def follow():
        for name, transfer in joined.items():
            transfer.follow([
                [_peer(other, addresses[other], joined[other],
                       order.index(name) > order.index(other))
                 for other in sorted(level)] for level in parts[name].links],
                parts[name].share)
        return joined['fast'].share == 1

    patience.wait_for(follow, 'the file', poll_s=0.2)
    # What the slow one would have given takes 25 s.
    assert time.monotonic() - began_s < 15
