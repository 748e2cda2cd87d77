# SPDX-License-Identifier: Apache-2.0

"""What the service makes of an order, and how often it asks for one."""

import functools
import threading

from msgspec.structs import replace
from oslo_config import cfg
import pytest

from edge_module import edge_options as edge_conf
from edge_module.probe import bulk
from edge_module.probe import probing
from edge_module.probe import train_protocol as protocol
from edge_module.probe import train_sender as sender
from edge_module.probe import trains
from tests.unit import made
from virtco.wire import probe_order
from virtco.wire import reports

LOOPBACK = '127.0.0.1'
KEY = protocol.Key('7', bytes(range(32)))
ORDER = probe_order.Send(
    probe_id='7', peer='h2', address='192.0.2.7', port=99,
    traffic=probe_order.Train(2, 50, 1000), key=KEY.secret.hex())
FOUND = sender.Measurement(
    rate_bps=1e6, throughput_bps=2e6, lower_bound=True, agrees=True,
    loss=0.125, bursts=2,
    rtt=trains.RoundTrips(0.1, 0.2, 0.3), sent_bytes=5)


@pytest.fixture
def conf():
    found = cfg.ConfigOpts()
    edge_conf.register_opts(found)
    found([], project='virtco-edge', default_config_files=[])
    found.set_override('address', LOOPBACK, group='probe')
    found.set_override('port', 0, group='probe')
    found.set_override('host', 'h1', group='edge')
    return found


class Link:
    """Gives orders, each once; what is an error is raised."""

    def __init__(self, *orders):
        self._orders, self.waits, self.said = list(orders), [], []
        self.outbox = self

    def wait_train(self, wait_s):
        self.waits.append(wait_s)
        order = self._orders.pop(0) if self._orders else None
        if isinstance(order, Exception):
            raise order
        return order

    def put_measurement(self, measurement):
        self.said.append(measurement)


@pytest.fixture
def service(conf):
    found = probing.ProbeService(conf, Link())
    found._pace = protocol.Pace(2)
    yield found
    found._responder._listener.close()
    found._responder._packets.close()


def test_the_result_of_a_train_is_told_field_by_field(service, monkeypatch):
    asked = []
    monkeypatch.setattr(probing.sender, 'measure', lambda *args: (
        asked.append(args) or FOUND))
    for repeats in (True, False):
        order = replace(ORDER, repeats=repeats)
        assert service.measure(order) == reports.Measurement(
            probe_id='7', src='h1', dst='h2', rate_bps=1e6, lower_bound=True,
            loss=0.125, rtt_s=0.1, rtt_median_s=0.2, rtt_p99_s=0.3,
            sent_bytes=5, method='train')
        assert asked.pop() == (
            '192.0.2.7', 99, probe_order.Train(2, 50, 1000),
            protocol.Settings(repeats=repeats), KEY)
    with pytest.raises(protocol.ProbeError, match='too many trains'):
        service.measure(ORDER)
    assert not asked


BULK = replace(ORDER, traffic=probe_order.Bulk(1.0, 9, 0.5))


def test_the_result_of_a_bulk_connection_is_told(service, monkeypatch):
    asked, flow = [], bulk.Flow(3e6, (5, 7))
    monkeypatch.setattr(probing.bulk, 'transfer', lambda *args: (
        asked.append(args) or flow))
    told = functools.partial(reports.Measurement, probe_id='7', src='h1',
                             dst='h2', method='bulk')
    assert service.measure(BULK) == told(
        rate_bps=3e6, sent_bytes=12, windows_bytes=[5, 7])
    assert asked.pop() == ('192.0.2.7', 99, probe_order.Bulk(1.0, 9, 0.5),
                           protocol.Settings(), KEY, None)
    monkeypatch.setattr(probing.time, 'monotonic', lambda: 100.0)
    for start_in_s in (0.0, 2.5):
        service._pace = protocol.Pace(1)
        assert service.measure(replace(
            BULK, start_in_s=start_in_s)).sent_bytes == 12
        assert asked.pop()[-1] == 100.0 + start_in_s
    with pytest.raises(protocol.ProbeError, match='too many trains'):
        service.measure(BULK)


@pytest.mark.parametrize('flow, is_told', [
    (bulk.Flow(0.0, (5,)), False), (bulk.Flow(1.0, ()), True)])
def test_a_connection_that_was_too_short_tells_nothing(
        service, monkeypatch, flow, is_told):
    monkeypatch.setattr(probing.bulk, 'transfer', lambda *args: flow)
    if is_told:
        assert service.measure(BULK).method == 'bulk'
    else:
        with pytest.raises(protocol.ProbeError, match='too short'):
            service.measure(BULK)


def test_who_is_announced_is_expected_for_both_ends_time(service,
                                                         monkeypatch):
    expected = []
    service._responder.expect = lambda *args: expected.append(args)
    monkeypatch.setattr(probing.time, 'monotonic', lambda: 100.0)
    order = probe_order.Receive(probe_id='7', peer='h2',
                                key=KEY.secret.hex())
    service._measure(order)
    service._measure(replace(order, start_in_s=2.5))
    assert expected == [(KEY, 10.0, None), (KEY, 10.0, 102.5)]
    assert service._link.said == []


def test_an_order_that_cannot_be_followed_does_not_end_it(
        service, monkeypatch, caplog):
    """What may happen is told at INFO, what is a defect at ERROR."""
    caplog.set_level('INFO')
    service._link = link = Link(ORDER, None, BULK)
    link.wait_train = lambda wait_s, give=link.wait_train: (
        service._stop.set() if not link._orders else None) or give(wait_s)

    def fails(*_args):
        raise ZeroDivisionError('a bug')

    def gives_up(*_args):
        raise protocol.ProbeError('told to')

    monkeypatch.setattr(probing.bulk, 'transfer', fails)
    monkeypatch.setattr(probing.sender, 'measure', gives_up)
    service._run()
    assert set(link.waits) == {20.0}
    assert [record.levelname for record in caplog.records] == [
        'INFO', 'ERROR']
    assert 'No packet train to h2: told to' in caplog.text
    assert 'a bug' in caplog.text


def test_a_measurement_is_said_and_a_failure_is_not(service, monkeypatch):
    told = made.measurement('h1', 'h2', 8.0)
    monkeypatch.setattr(service, 'measure', lambda order: told)
    service._measure(ORDER)
    assert service._link.said == [told]

    def fails(order):
        raise protocol.ProbeError('told to')

    monkeypatch.setattr(service, 'measure', fails)
    service._measure(ORDER)
    assert len(service._link.said) == 1


def test_a_service_that_is_stopped_asks_for_no_more(conf):
    """It does not wait for an answer to what it asked for before."""
    asked, answered = threading.Event(), threading.Event()
    link = Link()
    link.wait_train = lambda wait_s: (link.waits.append(wait_s), asked.set(),
                                      answered.wait(5))[0]
    service = probing.ProbeService(conf, link)
    service.start()
    assert asked.wait(5)
    joins, join = [], service._worker.join
    service._worker.join = lambda limit_s: joins.append(limit_s)
    service.stop()
    assert joins == [0.2]
    answered.set()
    join(5)
    assert not service._worker.is_alive() and link.waits == [20.0]


@pytest.mark.parametrize('address, dev, found', [
    (LOOPBACK, 'lo', LOOPBACK), (None, 'lo', LOOPBACK)])
def test_trains_are_received_at_an_address_of_the_uplink(conf, address, dev,
                                                         found):
    conf.set_override('address', address, group='probe')
    conf.set_override('uplink_dev', dev, group='edge')
    service = probing.ProbeService(conf, Link())
    service._responder._listener.close()
    service._responder._packets.close()
    assert service.address == found and service.port > 0
    assert service._settings == protocol.Settings(uplink_dev=dev)


def test_a_service_may_send_sixty_trains_a_minute(conf):
    service = probing.ProbeService(conf, Link())
    service._responder._listener.close()
    service._responder._packets.close()
    for pace in (service._pace, service._responder._pace):
        for _ in range(60):
            pace.admit()
        with pytest.raises(protocol.ProbeError, match='too many trains'):
            pace.admit()
