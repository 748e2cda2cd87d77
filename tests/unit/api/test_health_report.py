# SPDX-License-Identifier: Apache-2.0

"""What is counted for metrics, where the database does not answer."""

import threading

import pytest

from tests.unit.api import service
from virtco import exception
from virtco.api import health_report


class Thread(threading.Thread):
    """Notes how long it is waited for, and is not waited for."""

    waits_s: list[float | None] = []

    def join(self, timeout=None):
        self.waits_s.append(timeout)


def test_metrics_wait_half_a_second_for_one_count_at_a_time(monkeypatch):
    found, may_end, counted = service.Service(), threading.Event(), []

    def count(document):
        counted.append(document)
        assert may_end.wait(60)

    monkeypatch.setattr(health_report.Document, '_count', count)
    monkeypatch.setattr(health_report.threading, 'Thread', Thread)
    document = health_report.Document(found.rooms)
    document.gauge()
    document.gauge()
    assert counted == [document] and Thread.waits_s == [0.5, 0.5]
    assert document._counting.daemon
    may_end.set()
    super(Thread, document._counting).join()
    document.gauge()
    assert counted == [document] * 2
    super(Thread, document._counting).join()
    found.rooms.database.dispose()


def test_two_requests_may_count_at_the_same_time():
    found = service.Service()

    class Document(health_report.Document):
        """Another request counts when the thread of the first is noted."""

        _noted = None

        @property
        def _counting(self):
            return self._noted

        @_counting.setter
        def _counting(self, thread):
            is_first = self._noted is None and thread is not None
            self._noted = thread
            if is_first:
                self.gauge()

    Document(found.rooms).gauge()
    found.rooms.database.dispose()


def test_counting_rests_for_nine_times_as_long(monkeypatch):
    found, now_s, counts = service.Service(), [100.0], []

    def slow(_session):
        now_s[0] += 2.0
        counts.append(now_s[0])
        return {}

    monkeypatch.setattr(health_report.time, 'monotonic', lambda: now_s[0])
    monkeypatch.setattr(health_report.db_groups, 'coflows_by_state', slow)
    document = health_report.Document(found.rooms)
    for step_s in (0.0, 17.9, 0.1, 0.0):
        now_s[0] += step_s
        document.gauge()
    assert counts == [102.0, 122.0]
    found.rooms.database.dispose()


@pytest.mark.parametrize('error', [
    exception.DatabaseUnavailable(why='away'),
    # A server ends a transaction that only reads, too.
    exception.Conflict(what='record', id='in the database')])
def test_what_is_not_counted_now_is_counted_later(error, monkeypatch):
    found = service.Service()

    def fail(_session):
        raise error

    monkeypatch.setattr(health_report.db_groups, 'coflows_by_state', fail)
    health_report.Document(found.rooms)._count()
    found.rooms.database.dispose()
