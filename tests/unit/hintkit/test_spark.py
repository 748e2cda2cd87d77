# SPDX-License-Identifier: Apache-2.0

"""Hints made of Spark's event log."""

import json

import pytest

from tests.unit.hintkit import test_makers


def test_spark_reads_come_from_those_who_wrote():
    path = str(test_makers.SAMPLES / 'spark_eventlog.json')
    first = test_makers.matrix('from-spark-eventlog', path, '--stage', '1')
    # worker-1 read 200 MB; worker-2 and worker-3 had written 300 and 100 MB.
    assert (first[1, 0], first[2, 0]) == (150e6, 50e6)
    assert first[0, 1] / first[2, 1] == pytest.approx(6)
    assert sum(size for (_src, dst), size in first.items()
               if dst == 1) == pytest.approx(350e6, abs=2)
    both = test_makers.matrix('from-spark-eventlog', path)
    assert sum(both.values()) == pytest.approx(700e6, abs=6)
    assert both == test_makers.matrix('from-spark-eventlog', path, '--by',
                                      'executor')


def event(**changes):
    return {'Event': 'SparkListenerTaskEnd', 'Stage ID': 1,
            'Task Info': {'Executor ID': '1', 'Host': 'a'},
            'Task Metrics': {'Shuffle Read Metrics': {
                'Remote Bytes Read': 5}}} | changes


@pytest.mark.parametrize('lines, words', [
    (['{"Event": 1}', '[1'], 'line 2: event'),
    (['{"x": 1}'], 'line 1: event'),
    (['{"Event": "SparkListenerStageSubmitted", "Stage Info":'
      ' {"Stage ID": 1, "Parent IDs": 7}}'], 'line 1: Parent IDs: 7'),
    ([event(**{'Task Info': 5})], 'line 1: Task Info: 5'),
    ([event(**{'Stage ID': '1'})], "line 1: Stage ID: '1'"),
    ([event(**{'Task Info': {'Host': 7}})], 'line 1: Host: 7'),
    ([event(), event(**{'Task Metrics': {'Shuffle Write Metrics': {}}})],
     'line 2: Shuffle Bytes Written: None'),
    ([event(**{'Task Metrics': None})], 'events SparkListenerTaskEnd: 0'),
    ([{'Event': 'SparkListenerLogStart'}], 'events SparkListenerTaskEnd: 0'),
])
def test_spark_that_is_refused(tmp_path, lines, words):
    path = tmp_path / 'log'
    path.write_text(''.join(
        (line if isinstance(line, str) else json.dumps(line)) + '\n'
        for line in lines))
    assert words in test_makers.refused('from-spark-eventlog', str(path))


def test_spark_bytes_from_nobody_are_told(tmp_path):
    path = tmp_path / 'log'
    path.write_text(json.dumps(event()) + '\n{"Event": "Spa')
    found = test_makers.facts('from-spark-eventlog', str(path))
    assert found['n_flows'] == 0
    assert '5 B read from nobody known are left out.' in found['assumptions']
    assert 'a stage that read' in test_makers.refused(
        'from-spark-eventlog', str(path), '--stage', '2')


@pytest.mark.parametrize('n, told', [
    (8, 'h0, h1, h2, h3, h4, h5, h6, h7.'),
    (9, 'h0, h1, h2, h3, h4, h5, h6, h7, ….')])
def test_eight_workers_of_spark_are_named_at_most(tmp_path, n, told):
    path = tmp_path / 'log'
    path.write_text(''.join(json.dumps(event(**{'Task Info': {
        'Executor ID': '1', 'Host': f'h{k}'}})) + '\n' for k in range(n)))
    found = test_makers.facts('from-spark-eventlog', str(path))['assumptions']
    assert found[0].endswith(told)
