# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from virtco import exception
from virtco_lab.sim import workloads


def sizes_of(coflow):
    return np.array([flow.size_bytes for flow in coflow.flows])


@pytest.mark.parametrize('shape', workloads.SHAPES)
def test_table2_has_the_papers_size_length_and_width(shape):
    for row, coflow in zip(workloads.TABLE2, workloads.table2(
            seed=3, shape=shape), strict=True):
        sizes = sizes_of(coflow)
        assert (coflow.name, coflow.n_vms) == (row.name, row.width)
        assert sizes.sum() == pytest.approx(row.size_bytes, rel=1e-6)
        assert sizes.max() == pytest.approx(row.length_bytes, rel=1e-6)
        assert sizes.min() > 0


@pytest.mark.parametrize('skew', [0.1e9, 0.5e9, 1.5e9, 2.4e9])
def test_skew_is_met_where_it_is_possible(skew):
    sizes = workloads.flow_sizes(np.random.default_rng(4), 20, 16e9, 8e9,
                                 skew)
    lowest = (8e9 - 16e9 / 20) / 20 ** 0.5
    assert sizes.sum() == pytest.approx(16e9)
    assert sizes.max() == pytest.approx(8e9)
    assert sizes.min() > 0
    assert sizes.std() == pytest.approx(max(skew, lowest), rel=0.05)


def test_the_second_of_two_flows_has_the_rest():
    sizes = workloads.flow_sizes(np.random.default_rng(0), 2, 5.0, 3.0)
    assert sorted(sizes) == pytest.approx([2.0, 3.0])


def test_three_flows_have_the_skew_that_is_asked():
    sizes = workloads.flow_sizes(np.random.default_rng(0), 3, 10.0, 5.0, 2.0)
    assert sizes.std() == pytest.approx(2.0)
    assert sizes.sum() == pytest.approx(10.0)


def test_flows_that_are_all_of_the_length_have_no_skew():
    sizes = workloads.flow_sizes(np.random.default_rng(0), 4, 8.0, 2.0, 0.5)
    assert sizes == pytest.approx(2.0)


def test_no_flow_is_empty_where_the_skew_is_too_large():
    sizes = workloads.flow_sizes(np.random.default_rng(4), 20, 16.0, 8.0,
                                 100.0)
    most = np.std([8.0, 8.0] + [0.0] * 18)
    assert 0.97 * most < sizes.std() < most and sizes.min() > 0


@pytest.mark.parametrize('skew', [None, 3.0])
def test_the_unit_of_size_does_not_matter(skew):
    whole, part = (workloads.flow_sizes(
        np.random.default_rng(0), 20, 100.0 * unit, 20.0 * unit,
        skew and skew * unit) for unit in (1.0, 1e-6))
    assert part == pytest.approx(whole * 1e-6)


def test_single_flow_has_the_whole_size():
    sizes = workloads.flow_sizes(np.random.default_rng(0), 1, 5.0, 2.0)
    assert sizes.tolist() == [5.0]


def test_recomm_is_a_shuffle():
    coflow = workloads.table2(seed=0)[-1]
    senders = {flow.src for flow in coflow.flows}
    receivers = {flow.dst for flow in coflow.flows}
    assert not senders & receivers


def test_same_seed_same_flows():
    assert workloads.table2(seed=5) == workloads.table2(seed=5)
    assert workloads.table2(seed=5) != workloads.table2(seed=6)


def weighed(coflow):
    """Tell one drawn coflow from another by two numbers."""
    return len(coflow.flows), sum(
        flow.size_bytes * (1 + flow.src + 3 * flow.dst)
        for flow in coflow.flows)


@pytest.mark.parametrize('shape, drawn', [
    ('sparse', [(10, 50349506600), (20, 182458024000), (40, 1537435370000),
                (10, 193931411000), (20, 853658115000), (40, 3437649010000)]),
    ('medium', [(30, 39697050300), (60, 152668421000), (120, 1446618220000),
                (25, 200989009000), (60, 764985818000), (120, 3424220880000)]),
    ('dense', [(90, 45159823200), (380, 186336040000), (1560, 1336740310000),
               (25, 169532183000), (100, 739740488000), (400, 3254570260000)])
])
def test_records_are_of_these_flows(shape, drawn):
    """Other draws would make the records of the evaluation worthless."""
    assert [number for coflow in workloads.table2(seed=1, shape=shape)
            for number in weighed(coflow)] == pytest.approx(
        [number for pair in drawn for number in pair], rel=1e-7)


@pytest.mark.parametrize('shuffle, skew, drawn', [
    (True, 6.0, (20, 2070.60951)), (False, 2.5, (27, 1856.87636))])
def test_records_are_of_flows_of_this_skew(shuffle, skew, drawn):
    assert weighed(workloads.draw(
        'x', np.random.default_rng(7), n_vms=9, shape='medium',
        shuffle=shuffle, size_bytes=100.0, length_bytes=20.0,
        skew_bytes=skew)) == pytest.approx(drawn, rel=1e-7)


def test_records_are_of_this_trace():
    coflows = workloads.facebook_like(seed=1, n_coflows=40, n_ports=60,
                                      duration_s=3600.0).coflows
    assert (sum(coflow.arrival_s for coflow in coflows),
            sum(sum(coflow.mappers) for coflow in coflows),
            sum(port for coflow in coflows for port, _ in coflow.reducers),
            sum(size for coflow in coflows for _, size in coflow.reducers)
            ) == pytest.approx((73621.402, 12482, 17694, 499500736071.48535),
                               rel=1e-7)
    assert (coflows[0].coflow_id, coflows[-1].coflow_id) == ('1', '40')


def test_skews_are_those_that_the_paper_prints():
    assert [row.skew_bytes / 1e9 for row in workloads.TABLE2] == (
        pytest.approx([0.3, 0.45, 0.92, 1.5, 3.78, 4.21]))
    assert [row.shuffle for row in workloads.TABLE2] == [False] * 3 + (
        [True] * 3)


def test_scaled_to_a_small_testbed():
    for row, coflow in zip(workloads.TABLE2, workloads.table2(
            seed=0, scale_width=0.2), strict=True):
        sizes = sizes_of(coflow)
        assert coflow.n_vms == max(4, round(row.width * 0.2))
        assert sizes.sum() == pytest.approx(row.size_bytes)


def test_unknown_shape_is_refused():
    with pytest.raises(exception.Invalid, match='one of sparse'):
        workloads.table2(seed=0, shape='round')


def test_facebook_like_mix():
    of = {'seed': 2, 'n_ports': 150, 'n_coflows': 400, 'duration_s': 3600.0}
    trace = workloads.facebook_like(**of)
    assert trace == workloads.facebook_like(**of)
    narrow = sum(len(coflow.mappers) <= 7 and len(coflow.reducers) <= 7
                 for coflow in trace.coflows)
    assert 0.6 < narrow / 400 < 0.76
    arrivals = [coflow.arrival_s for coflow in trace.coflows]
    assert arrivals == sorted(arrivals) and arrivals[-1] < 3600
