# SPDX-License-Identifier: Apache-2.0

"""When ports are read and looked up."""

import dataclasses

import pytest

from edge_module.classify import classified as classify
from edge_module.ports import port_source as base
from virtco import exception
from virtco.wire import reports


class Source(base.PortSource):
    """Ports that the test changes."""

    def __init__(self):
        self.ports = (classify.VmPort(vm='a', dev='lo', mac='', ips=()),)
        self.number = 0
        self.n_reads = 0
        self.error = None

    def token(self):
        return self.number

    def read(self):
        self.n_reads += 1
        if self.error:
            raise self.error
        return self.ports

    def notify(self, callback):
        self.callback = callback


@pytest.fixture
def source():
    return Source()


@pytest.fixture
def ports(source):
    return base.Ports(source, lambda: None)


def indexes(ports):
    return [(port.vm, port.ifindex) for port in ports.ports]


def test_ports_are_read_once_with_their_devices(ports, source):
    assert ports.ports is None
    ports.read()
    ports.read()
    assert indexes(ports) == [('a', 1)] and source.n_reads == 1
    source.ports, source.number = (), 1
    ports.read(look=False)
    assert ports.ports == ()


def test_a_source_without_sense_keeps_the_ports(ports, source, caplog):
    source.error = exception.Invalid(field='f', value=1, limit='2')
    for _ in range(2):
        ports.read()
        assert ports.ports is None and 'f' in ports.error
        assert [record.message for record in caplog.records] == [
            ports.error]
    source.error = None
    ports.read(look=False)
    assert len(caplog.records) == 1
    assert indexes(ports) == [('a', 1)] and ports.error is None
    source.error, source.number = exception.Invalid(
        field='f', value=1, limit='2'), 1
    ports.read()
    assert ports.error and indexes(ports) == [('a', 1)]
    # It is read again until it makes sense.
    n_reads = source.n_reads
    ports.read(look=False)
    assert source.n_reads == n_reads + 1


def test_devices_are_looked_up_when_announced_or_due(ports, monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr(base.time, 'monotonic', lambda: now_s[0])
    index = [1]
    monkeypatch.setattr(base.devices, 'links', lambda: {
        'lo': base.devices.Device(ifindex=index[0])})
    ports.read()
    index[0] = 2
    now_s[0] += 4.99
    ports.read(look=False)
    assert indexes(ports) == [('a', 1)]
    now_s[0] += 0.01
    ports.read(look=False)
    assert indexes(ports) == [('a', 2)]
    index[0] = 3
    ports.read(look=True)
    assert indexes(ports) == [('a', 3)]


def test_a_look_that_fails_is_made_again(ports, source, monkeypatch):
    ports.read()
    links = base.devices.links

    def fail(*_):
        raise OSError(105, 'no buffer space')

    monkeypatch.setattr(base.devices, 'links', fail)
    for look in True, False:
        with pytest.raises(OSError):
            ports.read(look=look)
    monkeypatch.setattr(base.devices, 'links', lambda: {
        'lo': base.devices.Device(ifindex=9)})
    ports.read(look=False)
    assert indexes(ports) == [('a', 9)]
    # So is a source whose library fails in its own way.
    monkeypatch.setattr(base.devices, 'links', links)
    source.number, source.error = 1, KeyError('x')
    with pytest.raises(KeyError):
        ports.read()
    source.ports, source.error = (), None
    ports.read(look=False)
    assert ports.ports == ()


def test_a_device_that_is_not_here():
    port = classify.VmPort(vm='a', dev='no-such-dev', mac='', ips=())
    assert base.with_devices([port])[0].ifindex == 0


def test_a_source_tells_of_changes(source):
    changed = []
    base.Ports(source, lambda: changed.append(1))
    source.callback()
    assert changed == [1]


def test_a_complaint_is_an_error_and_the_other_ports_are_there(ports, source):
    source.complaint = 'ports[3]'
    ports.read()
    assert indexes(ports) == [('a', 1)] and ports.error == 'ports[3]'
    source.complaint = None
    ports.read()
    assert ports.error is None


@pytest.mark.parametrize('odd, field', [
    ({'vm': 'x' * 200}, 'vm'), ({'vm': 'a b;{}'}, 'vm'), ({'vm': ''}, 'vm'),
    ({'mac': 'z' * 100}, 'mac'), ({'dev': 'x' * 300}, 'dev'),
    ({'ips': ('fe80::1%x"; flush ruleset',)}, 'ips'),
    ({'ips': ('10.0.0.1',) * 257}, 'ips')])
def test_a_port_that_no_report_may_name_is_left_out(ports, source, odd, field):
    """The controller would refuse the report, and the host with it."""
    source.ports += dataclasses.replace(source.ports[0], **odd),
    source.complaint = 'ports[3]'
    ports.read()
    assert indexes(ports) == [('a', 1)]
    assert ports.error.startswith('ports[3]; port ') and field in ports.error
    source.ports, source.complaint, source.number = (
        source.ports[:1], None, 1)
    ports.read()
    assert indexes(ports) == [('a', 1)] and ports.error is None


def test_a_report_has_so_many_ports_at_most(ports, source):
    source.ports = tuple(classify.VmPort(f'{number}', 'none such')
                         for number in range(reports.MOST_PORTS + 7))
    ports.read()
    assert len(ports.ports) == reports.MOST_PORTS
    assert ports.error == 'more than 10000 ports'
