# SPDX-License-Identifier: Apache-2.0

"""The shuffles of a Spark application, from its event log.

An event log has one JSON object a line. Of a task that ended it tells the
executor, the bytes it wrote for a shuffle, and the bytes it read from
elsewhere ("Remote Bytes Read", which includes those "To Disk"), but not from
whom: that is assumed.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import json
from typing import Any

from virtco import units
from virtco_tenant.hintkit import inputs
from virtco_tenant.hintkit import made

TASK_END = 'SparkListenerTaskEnd'
STAGES = ('SparkListenerStageSubmitted', 'SparkListenerStageCompleted')


@dataclasses.dataclass(slots=True)
class _Log:
    """Bytes by stage and worker, in the order in which workers appear.

    A worker is an executor or, where several share a host, that host.
    """

    workers: dict[str, int] = dataclasses.field(default_factory=dict)
    parents: dict[int, list[int]] = dataclasses.field(default_factory=dict)
    written: dict[int, dict[int, int]] = dataclasses.field(
        default_factory=dict)
    read: dict[int, dict[int, int]] = dataclasses.field(default_factory=dict)
    n_without_metrics: int = 0


def convert(paths: Sequence[str], by: str = 'host',
            stages: Iterable[int] = ()) -> made.Made:
    """Make the matrix of the shuffles in logs.

    :param stages: stages whose shuffles are read; empty for all.
    :param by: ``host`` or ``executor``; each is a VM.
    :raises virtco.exception.InputInvalid:
    """
    log = _Log()
    for path in paths:
        _read(path, by, log)
    wanted = set(stages) or set(log.read)
    for stage in sorted(wanted - set(log.read)):
        inputs.refuse(inputs.OPTIONS, '--stage', stage,
                      'a stage that read from a shuffle, one of ' + ', '.join(
                          str(one) for one in sorted(log.read)))
    if not log.workers:
        inputs.refuse(paths[0], f'events {TASK_END}', 0,
                      'at least one event with "Task Metrics"')
    flows: made.Flows = {}
    lost_bytes = 0.0
    for stage in wanted:
        lost_bytes += _shuffle(log, stage, flows)
    read = ', '.join(f'{stage} ({units.format_size(sum(sizes.values()))})'
                     for stage, sizes in sorted(log.read.items())
                     if stage in wanted) or 'none'
    return made.Made(made.matrix_of(len(log.workers), flows), tuple([
        f'Each {by} is a VM, in this order: {_listed(log.workers)}.',
        'What a task read from elsewhere came from the other '
        f'{by}s, in proportion to what each had written for the stages '
        'before (the log does not say from whom).',
        f'Stages that read, with their bytes: {read}; all are added up.',
        *([f'{units.format_size(lost_bytes)} read from nobody known are left '
           'out.'] if lost_bytes else ()),
        *([f'{log.n_without_metrics} tasks without metrics are left out.']
          if log.n_without_metrics else ())]))


def _listed(workers: Iterable[str]) -> str:
    names = list(workers)
    return ', '.join(names[:8] + (['…'] if len(names) > 8 else []))


def _read(path: str, by: str, log: _Log) -> None:
    for where, line in inputs.lines(path):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
            kind = event['Event']
        except (ValueError, RecursionError, KeyError, TypeError):
            if not line.endswith('\n'):
                return  # The application is still writing this line.
            inputs.refuse(where, 'event', line.strip(),
                          'a JSON object with "Event", as Spark logs it '
                          'uncompressed')
        if kind == TASK_END:
            _task(where, event, by, log)
        elif kind in STAGES:
            info = _object(where, event, 'Stage Info')
            stage = _number(where, info, 'Stage ID')
            parents = info.get('Parent IDs', [])
            if not isinstance(parents, list):
                inputs.refuse(where, 'Parent IDs', parents,
                              'a list of numbers')
            log.parents[stage] = [one for one in parents
                                  if isinstance(one, int)]


def _task(where: str, event: dict[str, Any], by: str, log: _Log) -> None:
    info = _object(where, event, 'Task Info')
    if event.get('Task Metrics') is None:
        log.n_without_metrics += 1
        return
    metrics = _object(where, event, 'Task Metrics')
    stage = _number(where, event, 'Stage ID')
    key = 'Host' if by == 'host' else 'Executor ID'
    name = info.get(key)
    if not isinstance(name, str) or not name:
        inputs.refuse(where, key, name, 'a name')
    worker = log.workers.setdefault(name, len(log.workers))
    for part, field, sums in (
            ('Shuffle Read Metrics', 'Remote Bytes Read', log.read),
            ('Shuffle Write Metrics', 'Shuffle Bytes Written', log.written)):
        if part in metrics:
            size_bytes = _number(where, _object(where, metrics, part), field)
            if size_bytes:
                of_stage = sums.setdefault(stage, {})
                of_stage[worker] = of_stage.get(worker, 0) + size_bytes


def _shuffle(log: _Log, stage: int, flows: made.Flows) -> float:
    """Add the bytes that a stage read; return those that nobody wrote."""
    parents = [one for one in log.parents.get(stage, ())
               if one in log.written]
    # A stage that was skipped has written under another number.
    writers: dict[int, int] = {}
    for parent in parents or (one for one in log.written if one < stage):
        for worker, size_bytes in log.written[parent].items():
            writers[worker] = writers.get(worker, 0) + size_bytes
    lost_bytes = 0.0
    for reader, read_bytes in log.read[stage].items():
        others = sum(writers.values()) - writers.get(reader, 0)
        if not others:
            lost_bytes += read_bytes
            continue
        for writer, size_bytes in writers.items():
            if writer != reader:
                pair = writer, reader
                flows[pair] = (flows.get(pair, 0.0)
                               + read_bytes * size_bytes / others)
    return lost_bytes


def _object(where: str, parent: dict[str, Any], key: str) -> dict[str, Any]:
    found = parent.get(key)
    if not isinstance(found, dict):
        inputs.refuse(where, key, found, 'a JSON object')
    return found


def _number(where: str, parent: dict[str, Any], key: str) -> int:
    found = parent.get(key)
    if isinstance(found, bool) or not isinstance(found, int) or (
            not 0 <= found < 2 ** 63):
        inputs.refuse(where, key, found, 'a whole number of at least 0')
    return found
