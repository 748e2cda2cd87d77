# SPDX-License-Identifier: Apache-2.0

import pathlib

import numpy as np
import pytest

from virtco import exception
from virtco_lab.sim import traces
from virtco_lab.sim import workloads

FACEBOOK_LIKE = (pathlib.Path(__file__).parents[3]
                 / 'fixtures/traces/facebook-like.txt')


def written(tmp_path, text):
    path = tmp_path / 'trace.txt'
    path.write_text(text)
    return path


def test_reducers_bytes_come_evenly_from_mappers(tmp_path):
    trace = traces.read(written(
        tmp_path, '4 2\n7 2500 2 0 1 2 2:1 3:4.5\n8 100 1 3 1 3:1\n'))
    assert [coflow.coflow_id for coflow in trace.coflows] == ['8', '7']
    late = trace.coflows[1]
    assert late.arrival_s == 2.5 and late.size_bytes == 5.5e6
    demand = late.demand()
    assert list(zip(demand.src_host, demand.dst_host, demand.bits)) == [
        (0, 2, 4e6), (0, 3, 18e6), (1, 2, 4e6), (1, 3, 18e6)]
    assert trace.coflows[0].demand().bits.tolist() == [8e6]


def test_a_reducer_without_bytes_has_no_flow(tmp_path):
    coflow, = traces.read(written(tmp_path, '2 1\n1 0 1 0 2 0:0 1:2\n')
                          ).coflows
    demand = coflow.demand()
    assert (demand.dst_host.tolist(), demand.weight.tolist()) == ([1], [1.0])


def test_a_trace_has_a_largest_number_of_flows(tmp_path, monkeypatch):
    path = written(tmp_path, '4 2\n1 0 2 0 1 2 2:1 3:1\n2 0 1 0 1 1:1\n')
    monkeypatch.setattr(traces, 'MAX_FLOWS', 5)
    assert len(traces.read(path).coflows) == 2
    monkeypatch.setattr(traces, 'MAX_FLOWS', 4)
    with pytest.raises(exception.Invalid, match='at most 4, got 5'):
        traces.read(path)


def test_written_trace_reads_back(tmp_path):
    trace = workloads.facebook_like(seed=0, n_coflows=30, n_ports=20,
                                    duration_s=3600.0)
    path = tmp_path / 'trace.txt'
    traces.write(path, trace)
    again = traces.read(path)
    assert [c.mappers for c in again.coflows] == [
        c.mappers for c in trace.coflows]
    assert [c.arrival_s for c in again.coflows] == [
        c.arrival_s for c in trace.coflows]
    assert np.allclose([c.size_bytes for c in again.coflows],
                       [c.size_bytes for c in trace.coflows], rtol=1e-4)


@pytest.mark.parametrize('text, named', [
    ('', 'header'),
    ('150\n', 'line 1'),
    ('0 0\n', 'number of ports between 1 and 100000'),
    ('100001 0\n', 'number of ports'), ('4 -1\n', 'number of coflows'),
    ('4 x\n', 'number of coflows between 0 and 20000000'),
    ('4 1\n1 0 0 1 1:1\n', 'number of mappers between 1 and 20000000'),
    ('4 1\n1 0 1 0 0\n', 'number of reducers between 1'),
    ('4 1\n1 0 1 x 1 1:1\n', 'mapper between'),
    ('4 1\n1 0 1 0 1 4:1\n', 'reducer between 0 and 3'),
    ('4 2\n1 0 1 0 1 1:1\n', 'as many as'),
    ('4 1\n1 0 1 9 1 1:1\n', 'line 2.*mapper between 0 and 3'),
    ('4 1\n1 0 1 0 1 1:x\n', 'line 2.*megabytes'),
    ('4 1\n1 0 1 0 1 1:-1\n', 'megabytes'),
    ('4 1\n1 nan 1 0 1 1:1\n', 'arrival'),
    ('4 1\n1 0 1 0 2 1:1\n', 'as many words'),
    ('4 1\n1 0 1 0 1 1:1 5\n', 'end of the line'),
])
def test_broken_trace_is_named(tmp_path, text, named):
    with pytest.raises(exception.Invalid, match=named):
        traces.read(written(tmp_path, text))


def test_missing_file_is_named(tmp_path):
    with pytest.raises(exception.Invalid, match='nowhere'):
        traces.read(tmp_path / 'nowhere')


def test_a_trace_of_wide_coflows():
    """Sums as its README tells to take them, with awk."""
    trace = traces.read(FACEBOOK_LIKE)
    assert trace.n_ports == 150 and len(trace.coflows) == 80
    flows = sum(len(c.mappers) * len(c.reducers) for c in trace.coflows)
    assert flows == 66084
    assert sum(c.size_bytes for c in trace.coflows) == pytest.approx(
        3.46757e12, rel=1e-5)
