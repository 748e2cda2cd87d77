# SPDX-License-Identifier: Apache-2.0

"""Broadcasts of blocks in the simulator."""

import numpy as np
import pytest

from tests import figures
from virtco_lab.sim import broadcasts
from virtco_lab.sim.figures import broadcasts as broadcasts_figures
from virtco_lab.sim.figures import index
from virtco_lab.sim.figures import samples


def swarm(receivers, blocks, seed=0, racks=1, **kwargs):
    rack = np.append(0, np.arange(receivers) % racks)
    return broadcasts.Cornet(rack, blocks, np.random.default_rng(seed),
                             **kwargs).run()


def test_structured_broadcasts_take_what_their_ports_need():
    assert broadcasts.star(5, 10) == 50
    assert broadcasts.chain(5, 10) == 14
    # Of degree 1 a tree is a chain.
    assert broadcasts.tree(5, 10, degree=1) == 14
    # The root sends each block twice, the last child's child waits for it.
    assert broadcasts.tree(2, 10) == 20
    assert broadcasts.tree(6, 10) == 22
    # 10 receivers read 64 blocks from 2 replicas, after the write.
    rng = np.random.default_rng(1)
    taken = broadcasts.hdfs(10, 64, rng, replicas=2)
    assert 65 + 320 <= taken <= 65 + 420
    assert broadcasts.hdfs(3, 20, rng, replicas=1) == 20 + 60


@pytest.mark.parametrize('receivers, blocks', [(1, 1), (1, 7), (6, 20),
                                               (40, 25)])
def test_a_swarm_is_between_its_bound_and_a_star(receivers, blocks):
    taken = swarm(receivers, blocks)
    assert blocks <= taken <= min(broadcasts.star(receivers, blocks),
                                  blocks + 20)
    assert taken == swarm(receivers, blocks)


def test_a_swarm_that_knows_its_racks_is_ahead_where_uplinks_are_slow():
    unaware, aware = (
        np.mean([swarm(20, 40, seed, 2, crossing=2.5, is_aware=is_aware)
                 for seed in range(4)]) for is_aware in (False, True))
    assert 40 <= aware < 0.85 * unaware
    # Where nothing limits them, it does not matter much.
    assert swarm(20, 40, 0, 2, is_aware=True) < 1.3 * swarm(20, 40, 0, 2)


def test_an_uplink_bounds_the_swarm():
    # Half a block per round into the other rack.
    assert 2 * 20 - 2 <= swarm(8, 20, racks=2, crossing=0.5, is_aware=True
                               ) <= 2 * 20 + 20


def test_nobody_to_receive_takes_no_time():
    assert swarm(0, 7) == 0


@pytest.mark.parametrize('is_aware, rounds', [(False, 2), (True, 3)])
def test_what_a_rack_has_is_not_fetched_once_more(is_aware, rounds):
    """Three receivers in another rack; the third waits for a free neighbour.
    """
    assert broadcasts.Cornet(np.array([0, 1, 1, 1]), 1,
                             np.random.default_rng(0), is_aware=is_aware
                             ).run() == rounds


def after_a_round(racks, have, seed=0, **kwargs):
    cornet = broadcasts.Cornet(np.array(racks), len(have[0]),
                               np.random.default_rng(seed), **kwargs)
    cornet._have[:] = have
    cornet._round()
    return cornet


def test_a_rack_fetches_a_block_once():
    """Two nodes outside could each send it to one inside."""
    found = after_a_round([0, 0, 1, 1], [[1], [1], [0], [0]], is_aware=True)
    assert found._have.sum() == 3


@pytest.mark.parametrize('racks', [[0, 0, 1, 2], [0, 2, 1, 1]])
def test_an_uplink_carries_no_more_each_way(racks):
    """Two blocks would leave one rack, or enter one, in a round."""
    have = [[1], [1], [0], [0]]
    assert after_a_round(racks, have, crossing=1.0)._have.sum() == 3
    assert after_a_round(racks, have, crossing=2.0)._have.sum() == 4
    assert broadcasts.Cornet(np.array([0, 1]), 3, np.random.default_rng(0),
                             crossing=0.5).run() == 6


@pytest.mark.parametrize('seed', range(6))
def test_blocks_that_are_fetched_count_as_less_rare(seed):
    found = after_a_round([0] * 4, [[1, 1], [1, 1], [0, 0], [0, 0]], seed)
    assert found._have.sum(axis=0).tolist() == [3, 3]


def test_an_uplink_saves_up_capacity_for_one_block():
    idle = after_a_round([0, 1], [[1], [1]], crossing=0.4)
    for _ in range(8):
        idle._round()
    assert idle._credit == pytest.approx(1.4)


@pytest.mark.parametrize('name, row, column, least, most', [
    ('orchestra-fig9', 1, 6, 1.1, 2.0), ('orchestra-fig11', 0, 2, 2.0, 3.5),
    ('orchestra-fig16', 1, 5, 0.0, 42.0)])
def test_figures_of_broadcasts(name, row, column, least, most):
    found = figures.outcome(name, samples.Context(
        seeds=(0,), short=True))
    assert least < found.rows[row][column] < most


def test_iterations_end_sooner_by_what_both_parts_save():
    found = samples.Samples((0,), {
        'before': {'broadcast': [[6.0]], 'shuffle': [[4.0]]},
        'after': {'broadcast': [[1.5]], 'shuffle': [[2.0]]}}, {})
    shown = index.FIGURES['orchestra-fig16'].show(
        found, samples.Context())
    whole_s = 10 / broadcasts_figures.COMMUNICATION
    sooner = 100 * 6.5 / whole_s
    assert shown.notes[0].startswith(f'Iterations end {sooner:.0f} % sooner ')
    assert '4.0 times faster' in shown.notes[0]
    assert '2.00 times' in shown.notes[0]
    assert shown.rows[1][1:5] == pytest.approx(
        (1.5, 2.0, whole_s - 10, whole_s - 6.5))
