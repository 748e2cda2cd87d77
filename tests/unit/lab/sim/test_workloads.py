# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from virtco import exception
from virtco_lab.sim import workloads


def sizes_of(coflow):
    return np.array([flow.size_bytes for flow in coflow.flows])


@pytest.mark.parametrize('shape', workloads.SHAPES)
def test_table2_has_the_papers_size_length_and_width(shape):
    for app in workloads.table2(seed=3, shape=shape):
        row, sizes = app.application, sizes_of(app.coflow)
        assert app.coflow.n_vms == row.width
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


def test_single_flow_has_the_whole_size():
    sizes = workloads.flow_sizes(np.random.default_rng(0), 1, 5.0, 2.0)
    assert sizes.tolist() == [5.0]


def test_recomm_is_a_shuffle():
    app = workloads.table2(seed=0)[-1]
    senders = {flow.src for flow in app.coflow.flows}
    receivers = {flow.dst for flow in app.coflow.flows}
    assert not senders & receivers


def test_same_seed_same_flows():
    assert workloads.table2(seed=5) == workloads.table2(seed=5)
    assert workloads.table2(seed=5) != workloads.table2(seed=6)


def test_scaled_to_a_small_testbed():
    for app in workloads.table2(scale_width=0.2, scale_bytes=0.01):
        row, sizes = app.application, sizes_of(app.coflow)
        assert app.coflow.n_vms == max(4, round(row.width * 0.2))
        assert sizes.sum() == pytest.approx(row.size_bytes * 0.01)


def test_unknown_shape_is_refused():
    with pytest.raises(exception.Invalid, match='one of sparse'):
        workloads.table2(shape='round')


def test_facebook_like_mix():
    trace = workloads.facebook_like(seed=2, n_coflows=400)
    assert trace == workloads.facebook_like(seed=2, n_coflows=400)
    narrow = sum(len(coflow.mappers) <= 7 and len(coflow.reducers) <= 7
                 for coflow in trace.coflows)
    assert 0.6 < narrow / 400 < 0.76
    arrivals = [coflow.arrival_s for coflow in trace.coflows]
    assert arrivals == sorted(arrivals) and arrivals[-1] < 3600
