# SPDX-License-Identifier: Apache-2.0

"""What is made of the words of the traffic's process."""

import json
import sys

import pytest

from virtco_lab.emulation import traffic
from virtco_lab.emulation import transfers

JOB = traffic.Job((0.0,), ())


class Child:
    made = None

    def __init__(self, what, argv, log, piped, niceness):
        assert niceness == -15
        assert argv == [sys.executable, '-m',
                        'virtco_lab.emulation.traffic'] and piped
        Child.made = self
        self.what, self.log = what, log
        self.written, self.is_stopped = [], False

    def write_line(self, line):
        self.written.append(line)

    def has_line(self):
        return True

    def read_line(self):
        return json.dumps(self.events.pop(0))

    def stop(self):
        self.is_stopped = True


@pytest.fixture(name='start')
def _start(monkeypatch, tmp_path):
    monkeypatch.setattr(transfers.process, 'Child', Child)
    waits = []
    monkeypatch.setattr(
        transfers.process, 'wait_until',
        lambda condition, what, children, *, of, say, interval_s: (
            waits.append((what, children, of, say, interval_s))))

    def start(*events):
        Child.events = [{'event': 'ready'}, *events]
        return transfers.Transfer(JOB, tmp_path / 'log', 'say')

    start.waits = waits
    return start


DONE = {'event': 'done', 'ccts_s': [1.5, 2.5], 'wall_s': 3.0, 'cpu_s': 0.5,
        'retransmits': 7, 'bin_s': 0.1, 'timeline': [[1, 2], [3, 4]]}


def test_a_job_is_followed_to_its_end(start, tmp_path):
    told = []
    with start({'event': 'progress', 'received': [5, 6]},
               {'event': 'coflow', 'coflow': 1, 'cct_s': 2.5}, DONE
               ) as transfer:
        child = Child.made
        assert child.written == [JOB.to_json()]
        found = transfer.run(told.append,
                             lambda *both: told.append(both))
        assert child.written[1:] == ['go']
        assert not child.is_stopped
    assert child.is_stopped and child.log == tmp_path / 'log'
    assert told == [[5, 6], (1, 2.5)]
    assert found == transfers.Outcome((1.5, 2.5), 3.0, 0.5, 7, 0.1,
                                      ((1, 2), (3, 4)))
    assert start.waits == 4 * [(
        'a word of the traffic process', [child], child, 'say', 0.02)]


def test_nobody_has_to_listen(start):
    with start({'event': 'progress', 'received': [5]},
               {'event': 'coflow', 'coflow': 0, 'cct_s': 2.5}, DONE) as one:
        assert one.run().wall_s == 3.0


def test_another_word_than_ready_ends_it(start, tmp_path):
    Child.events = [{'event': 'done'}]
    with pytest.raises(ValueError, match='expected ready'):
        transfers.Transfer(JOB, tmp_path / 'log')
    assert Child.made.is_stopped
