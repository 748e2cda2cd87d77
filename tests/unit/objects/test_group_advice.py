# SPDX-License-Identifier: Apache-2.0

"""Trees and mappings for a group, by what was measured of its hosts."""

import types

from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from tests.unit import made
from tests.unit import plain
from tests.unit import stored
from virtco import exception
from virtco.advise import mappings
from virtco.model import states
from virtco.objects import group_advice
from virtco.state import live_state
from virtco.state import measured_rates

#: Each direction of each pair has a rate of its own; h0 to h2 is slow.
RATES = {('h0', 'h1'): 8e8, ('h1', 'h0'): 6e8, ('h0', 'h2'): 1e8,
         ('h2', 'h0'): 2e8, ('h1', 'h2'): 9e8, ('h2', 'h1'): 5e8}


class Bench:
    def __init__(self, **values):
        self.database = stored.database()
        stored.add(self.database, stored.group(),
                   stored.coflow('p-a'),
                   *(stored.member('p-a', row, f'h{row}', **values)
                     for row in range(3)))
        self.live = live_state.LiveState()
        for row in range(3):
            self.live.intake(f'h{row}', made.report(ports=[
                {'vm': f'p-a-{row}', 'ips': [f'10.0.0.{row}']}]), 90.0)
        self.known = measured_rates.Rates(5, 7200.0, 3600.0)
        for (src, dst), rate_bps in RATES.items():
            self.known.add(made.measurement(src, dst, rate_bps), 95.0)
        self.advice = plain.Plain(group_advice.Advice(
            stored.conf(scheduler={'default_share': 0.02,
                                   'wire_overhead_fraction': 0.0}),
            stored.state(self.database, self.live, rates=self.known),
            lambda: 100.0))

    def coflow(self, **values):
        stored.add(self.database, stored.coflow('p-a', **values))


@pytest.fixture
def bench():
    return Bench()


def test_a_tree_goes_round_the_slow_pair(bench):
    found = bench.advice.tree('p', 'a', 0, 8e6, False, 'constant')
    assert bench.advice.tree('p', 'a') == found
    assert {key: found[key] for key in (
        'group', 'group_name', 'operation', 'root', 'size_bytes',
        'matrix')} == {
            'group': 'p-a', 'group_name': 'a', 'operation': 'broadcast',
            'root': 0, 'size_bytes': 8e6, 'matrix': 'constant'}
    by_name = {tree['tree']: tree for tree in found['trees']}
    best = by_name[found['best']]
    assert best['edges'] == [[0, 1], [1, 2]]
    assert best['predicted_s'] == min(
        tree['predicted_s'] for tree in found['trees'])
    assert found['bound_s'] <= best['predicted_s']
    assert found['order'] == found['rank_hint'] == found['orders'][0]['order']
    assert sorted(found['order']) == [0, 1, 2]
    assert found['predicted_s'] == min(
        one['predicted_s'] for one in found['orders'])
    assert found['members'][1] == {
        'row': 1, 'instance_uuid': 'p-a-1', 'display_name': 'vm1',
        'addresses': ['10.0.0.1'], 'host': 'h1'}


def test_a_reduction_goes_the_other_way(bench):
    """To row 2 the pair from row 0 is slow, from it nothing is."""
    found = bench.advice.tree('p', 'a', 2, 8e6, is_reduce=True)
    assert found['operation'] == 'reduce' and found['root'] == 2
    (estimate,) = [one for one in found['estimates']
                   if one['matrix'] == found['matrix']]
    best = estimate['predicted_s'][estimate['best']]
    assert estimate['as_chosen_s'] == pytest.approx(best)
    broadcast = bench.advice.tree('p', 'a', 2, 8e6)
    (other,) = [one for one in broadcast['estimates']
                if one['matrix'] == broadcast['matrix']]
    assert other['as_chosen_s'] == pytest.approx(
        other['predicted_s'][other['best']])
    assert other['as_chosen_s'] != pytest.approx(estimate['as_chosen_s'])


def test_an_estimate_tells_what_it_is_and_how_far_it_is_trusted(bench):
    """Of the newest readings alone there is neither."""
    told = {one['matrix']: (one['estimator'], one['trust'])
            for one in bench.advice.tree('p', 'a')['estimates']}
    assert told == {
        'constant': ('median', 'stable'), 'median': ('median', 'stable'),
        'rpca': ('rpca', 'stable'), 'raw': (None, None)}


@pytest.mark.parametrize('is_reduce', [False, True])
def test_a_star_takes_as_long_as_it_was_chosen_for(bench, is_reduce):
    """One after the other: the root is the only fast way to both."""
    found = bench.advice.tree('p', 'a', 1, 1e4, is_reduce)
    assert sorted(next(
        tree['edges'] for tree in found['trees']
        if tree['tree'] == found['best'])) == (
            [[0, 1], [2, 1]] if is_reduce else [[1, 0], [1, 2]])
    (estimate,) = [one for one in found['estimates']
                   if one['matrix'] == found['matrix']]
    assert estimate['as_chosen_s'] == pytest.approx(
        estimate['predicted_s'][found['best']])


def test_the_heaviest_rank_avoids_the_slow_pair(bench):
    found = bench.advice.mapping(
        'p', 'a', [[0, '80MB', 1], [1, 0, 1], [1, 1, 0]])
    assert found['operation'] == 'exchange'
    assert found['size_bytes'] == 80e6 + 5
    # The heaviest pair of ranks is on the fastest pair of hosts.
    assert found['order'][:2] == found['rank_hint'][:2] == [1, 2]
    (estimate,) = [one for one in found['estimates']
                   if one['matrix'] == found['matrix']]
    assert estimate['as_chosen_s'] == pytest.approx(found['predicted_s'])
    assert found['bound_s'] <= found['predicted_s']
    for one in found['estimates']:
        times_s = one['predicted_s']
        assert times_s.keys() == {
            some['mapping'] for some in found['mappings']}
        assert times_s[one['best']] == min(times_s.values())


def test_without_a_matrix_the_hint_tells(bench):
    bench.coflow(id='2', name='2', tm='[[2,1,1000]]')
    bench.coflow(id='3', name='3', tm='[[2,0,5]]', expires_at=7.0)
    assert bench.advice.mapping('p', 'a')['size_bytes'] == 1175.0
    assert bench.advice.mapping('p', 'a', '[[0,1,0],[0,0,0],[0,0,3]]')[
        'size_bytes'] == 1.0


def test_an_all_reduce_has_a_size(bench):
    found = bench.advice.mapping('p', 'a', all_reduce_bytes=9e6)
    assert (found['operation'], found['size_bytes']) == ('all_reduce', 9e6)
    with pytest.raises(exception.Invalid):
        bench.advice.mapping('p', 'a', [[0]], all_reduce_bytes=9e6)


@pytest.mark.parametrize('matrix', [[[0, 1], [1, 0]], [[0] * 4] * 4])
def test_a_matrix_fits_the_group(bench, matrix):
    with pytest.raises(exception.Invalid):
        bench.advice.mapping('p', 'a', matrix)


def test_what_cannot_be_advised(bench):
    for call in (bench.advice.tree, bench.advice.mapping):
        with pytest.raises(exception.NotFound):
            call('q', 'a')
    with pytest.raises(exception.Invalid):
        bench.advice.tree('p', 'a', 3)


@pytest.mark.parametrize(('values', 'n_missing'), [
    ({'host': None}, 1), ({'instance_uuid': None}, 1)])
def test_all_vms_have_hosts(values, n_missing):
    bench = Bench()
    stored.add(bench.database, stored.group('b', n_vms=2),
               stored.member('p-b', 0, 'h0'),
               stored.member('p-b', 1, **{'host': 'h1'} | values,
                             state=states.MemberState.PLANNED))
    with pytest.raises(exception.Invalid) as caught:
        bench.advice.tree('p', 'b')
    assert 'row 1)' in caught.value.kwargs['limit']


@pytest.mark.parametrize('n_vms', [5, 6])
def test_only_some_of_the_rows_are_named(n_vms):
    bench = Bench()
    stored.add(bench.database, stored.group('b', n_vms=n_vms), *(
        stored.member('p-b', row) for row in range(n_vms)))
    with pytest.raises(exception.Invalid) as caught:
        bench.advice.tree('p', 'b')
    assert ('…' in caught.value.kwargs['limit']) == (n_vms > 5)
    assert '0, 1, 2, 3, 4' in caught.value.kwargs['limit']
    assert ', 5' not in caught.value.kwargs['limit']


def test_the_chosen_estimate_is_searched_farthest():
    all_of = {name: types.SimpleNamespace(paths=name) for name in 'abc'}
    found = group_advice.mappings_by(all_of, 'b', lambda *given: given)
    assert found == {'a': ('a', mappings.WORK // 5), 'b': ('b', mappings.WORK),
                     'c': ('c', mappings.WORK // 5)}


@given(st.integers(0, 10 ** 10))
@example(2 * 16384)
def test_segments_are_a_power_of_two_of_no_small_ones(size_bytes):
    most = group_advice._most_segments(size_bytes)
    assert most & (most - 1) == 0 and 1 <= most <= 256
    assert most == 1 or size_bytes / most >= 16384
    assert most == 256 or size_bytes / (2 * most) < 16384


def test_volumes_of_all_coflows_are_added():
    from_flows = group_advice.coflow_model.Coflow.from_flows
    assert np.array_equal(group_advice._volumes(
        [from_flows('a', 3, [(0, 1, 5.0), (2, 0, 7.0)]),
         from_flows('b', 3, [(0, 1, 2.0)])], 3),
        [[0, 7, 0], [0, 0, 0], [7, 0, 0]])
