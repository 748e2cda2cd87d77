# SPDX-License-Identifier: Apache-2.0

"""Hints made of Spark's event log."""

import json
import re

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
      ' {"Stage ID": 1, "Parent IDs": 7}}'], 'line 1: Parent IDs: .*, got 7'),
    ([event(**{'Task Info': 5})], 'line 1: Task Info: .*, got 5'),
    ([event(**{'Stage ID': '1'})], "line 1: Stage ID: .*, got '1'"),
    ([event(**{'Task Info': {'Host': 7}})], 'line 1: Host: .*, got 7'),
    ([event(), event(**{'Task Metrics': {'Shuffle Write Metrics': {}}})],
     'line 2: Shuffle Bytes Written: .*, got nothing'),
    ([event(**{'Task Metrics': None})],
     'events SparkListenerTaskEnd: .*, got 0'),
    ([{'Event': 'SparkListenerLogStart'}],
     'events SparkListenerTaskEnd: .*, got 0'),
])
def test_spark_that_is_refused(tmp_path, lines, words):
    path = tmp_path / 'log'
    path.write_text(''.join(
        (line if isinstance(line, str) else json.dumps(line)) + '\n'
        for line in lines))
    assert re.search(words, test_makers.refused(
        'from-spark-eventlog', str(path)))


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


def log_of(tmp_path, *events):
    path = tmp_path / 'log'
    path.write_text(''.join(json.dumps(one) + '\n' for one in events))
    return str(path)


def task(host, stage, part, size):
    field = 'Remote Bytes Read' if part == 'Read' else 'Shuffle Bytes Written'
    return event(**{
        'Stage ID': stage, 'Task Info': {'Executor ID': host, 'Host': host},
        'Task Metrics': {f'Shuffle {part} Metrics': {field: size}}})


def test_a_stage_without_known_parents_reads_what_was_written_before(
        tmp_path):
    path = log_of(tmp_path, task('a', 1, 'Write', 30),
                  task('b', 3, 'Write', 10), task('b', 1, 'Write', 5),
                  task('c', 4, 'Write', 999), task('c', 3, 'Read', 70))
    # Of a: 30, of b: 5; what it writes itself comes later.
    assert test_makers.matrix('from-spark-eventlog', path) == {
        (0, 2): 60, (1, 2): 10}


@pytest.mark.parametrize('parents, flows', [
    ([1], {(1, 2): 70}), ([0, 1], {(0, 2): 60, (1, 2): 10}),
    # A stage that was skipped has written under another number.
    ([2], {(0, 2): 60, (1, 2): 10}), ([1, 2], {(1, 2): 70})])
@pytest.mark.parametrize('kind', ['Submitted', 'Completed'])
def test_a_stage_reads_what_its_parents_wrote(tmp_path, parents, flows, kind):
    path = log_of(tmp_path, {
        'Event': f'SparkListenerStage{kind}',
        'Stage Info': {'Stage ID': 3, 'Parent IDs': [*parents, 'x']}},
        task('a', 0, 'Write', 30), task('b', 1, 'Write', 5),
        task('c', 3, 'Read', 70))
    assert test_makers.matrix('from-spark-eventlog', path) == flows


def test_what_one_wrote_for_several_parents_adds_up(tmp_path):
    path = log_of(tmp_path, {
        'Event': 'SparkListenerStageSubmitted',
        'Stage Info': {'Stage ID': 3, 'Parent IDs': [0, 1]}},
        task('a', 0, 'Write', 30), task('a', 1, 'Write', 10),
        task('b', 1, 'Write', 10), task('c', 3, 'Read', 100))
    assert test_makers.matrix('from-spark-eventlog', path) == {
        (0, 2): 80, (1, 2): 20}


def test_numbers_have_63_bits(tmp_path):
    for number in 0, 2 ** 63 - 1:
        path = log_of(tmp_path, event(**{'Stage ID': number}))
        assert test_makers.facts('from-spark-eventlog', path)
    path = log_of(tmp_path, event(**{'Stage ID': 2 ** 63}))
    assert 'line 1: Stage ID: ' in test_makers.refused('from-spark-eventlog',
                                                       path)


def test_which_stages_and_tasks_count_is_told(tmp_path):
    without = event(**{'Task Metrics': None})
    path = log_of(tmp_path, task('a', 0, 'Write', 30), without,
                  task('b', 1, 'Read', 6), task('b', 1, 'Read', 1), without,
                  task('b', 2, 'Read', 9))
    for argv, read in ((('--stage', '1'), '1 (7 B)'),
                       ((), '1 (7 B), 2 (9 B)')):
        told = test_makers.facts('from-spark-eventlog', path, *argv)[
            'assumptions']
        assert told[2:] == [
            f'Stages that read, with their bytes: {read}; all are added up.',
            '2 tasks without metrics are left out.']
    whole = log_of(tmp_path, task('a', 0, 'Write', 30))
    assert test_makers.facts('from-spark-eventlog', whole)['assumptions'][
        2:] == ['Stages that read, with their bytes: none; all are added up.']
