# SPDX-License-Identifier: Apache-2.0

"""What is made of the words of the traffic's process."""

import sys

import msgspec
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
        return msgspec.json.encode(self.events.pop(0)).decode()

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
        Child.events = [traffic.Progress((0,)), *events]
        return transfers.Transfer(JOB, tmp_path / 'log', 'say')

    start.waits = waits
    return start


DONE = traffic.Outcome((1.5, 2.5), 3.0, 7, 0.1, ((1, 2), (3, 4)))


def test_a_job_is_followed_to_its_end(start, tmp_path):
    told = []
    with start(traffic.Progress((5, 6)), DONE) as transfer:
        child = Child.made
        assert child.written == [msgspec.json.encode(JOB).decode()]
        found = transfer.run(told.append)
        assert child.written[1:] == ['go']
        assert not child.is_stopped
    assert child.is_stopped and child.log == tmp_path / 'log'
    assert told == [traffic.Progress((5, 6))]
    assert found == DONE
    assert start.waits == 3 * [(
        'a word of the traffic process', [child], child, 'say', 0.02)]


def test_nobody_has_to_listen(start):
    with start(traffic.Progress((5,)), DONE) as one:
        assert one.run().wall_s == 3.0


def test_a_word_that_it_does_not_know_ends_it(start, tmp_path):
    Child.events = [{'type': 'other'}]
    with pytest.raises(msgspec.ValidationError, match='other'):
        transfers.Transfer(JOB, tmp_path / 'log')
    assert Child.made.is_stopped
