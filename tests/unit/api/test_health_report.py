# SPDX-License-Identifier: Apache-2.0

"""What is counted for metrics, where the database does not answer."""

import threading

from tests.unit.api import service
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
