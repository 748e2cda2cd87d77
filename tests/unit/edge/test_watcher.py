# SPDX-License-Identifier: Apache-2.0

"""When ports are read, looked up and told."""

import pytest

from edge_module.classify import base as classify
from edge_module.ports import base
from virtco import exception


class Source(base.PortSource):
    """Ports that the test changes."""

    def __init__(self):
        self.ports = (classify.VmPort(vm='a', dev='lo', mac='', ips=()),)
        self.number = 0
        self.n_reads = 0
        self.error = None
        self.is_closed = False

    def token(self):
        return self.number

    def read(self):
        self.n_reads += 1
        if self.error:
            raise self.error
        return self.ports

    def notify(self, callback):
        self.callback = callback

    def close(self):
        self.is_closed = True


@pytest.fixture
def source():
    return Source()


@pytest.fixture
def told():
    return []


@pytest.fixture
def watcher(source, told):
    found = base.PortWatcher(source, told.append)
    yield found
    if not source.is_closed:
        found.stop()


def test_ports_are_told_once_with_their_devices(watcher, source, told):
    watcher.check()
    watcher.check()
    assert [(port.vm, port.ifindex) for ports in told for port in ports] == [
        ('a', 1)]
    assert source.n_reads == 1
    source.ports, source.number = (), 1
    watcher.check(look=False)
    assert told[1:] == [()]


def test_a_source_without_sense_keeps_the_ports(watcher, source, told):
    source.error = exception.Invalid(field='f', value=1, limit='2')
    watcher.check()
    assert told == [] and 'f' in watcher.error
    source.error = None
    watcher.check(look=False)
    assert len(told) == 1 and watcher.error is None
    source.error, source.number = exception.Invalid(
        field='f', value=1, limit='2'), 1
    watcher.check()
    assert watcher.error and len(told) == 1
    # It is read again until it makes sense.
    n_reads = source.n_reads
    watcher.check(look=False)
    assert source.n_reads == n_reads + 1


def test_devices_are_looked_up_when_announced_or_due(watcher, monkeypatch,
                                                     told):
    now_s = [100.0]
    monkeypatch.setattr(base.time, 'monotonic', lambda: now_s[0])
    index = [1]
    monkeypatch.setattr(base, '_ifindex', lambda dev: index[0])
    watcher.check()
    index[0] = 2
    now_s[0] += 4.99
    watcher.check(look=False)
    assert len(told) == 1
    now_s[0] += 0.01
    watcher.check(look=False)
    assert len(told) == 2
    index[0] = 3
    watcher.check(look=True)
    assert [port.ifindex for ports in told for port in ports] == [1, 2, 3]


def test_a_device_that_is_not_here():
    port = classify.VmPort(vm='a', dev='no-such-dev', mac='', ips=())
    assert base.with_devices([port])[0].ifindex == 0


def test_a_stop_ends_all(watcher, source):
    watcher.stop()
    assert source.is_closed
    assert watcher._links.fileno() == -1
    # Whoever follows later ends at once.
    watcher.follow()
    assert source.n_reads == 0
