# SPDX-License-Identifier: Apache-2.0

"""Measures the paths to other hypervisors when the controller asks for it."""

import dataclasses
import functools
import logging
import threading
import time

from oslo_config import cfg

from edge_module import stream
from edge_module.probe import bulk
from edge_module.probe import netdev
from edge_module.probe import responder
from edge_module.probe import train_protocol as protocol
from edge_module.probe import train_sender as sender
from virtco.wire import probe_order
from virtco.wire import reports

LOG = logging.getLogger(__name__)

_WAIT_S = 20.0
#: An address of the documentation network: packets to it take the default
#: route, whose local address is then known.
_ANYWHERE = '192.0.2.1'


def address_of(conf: cfg.ConfigOpts) -> str:
    """Choose the address at which trains are received."""
    uplink_dev = conf.edge.uplink_dev
    return str(conf.probe.address
               or (uplink_dev and netdev.address_of(uplink_dev))
               or netdev.address_towards(_ANYWHERE) or '127.0.0.1')


class ProbeService:
    """Answers trains of others and sends those the controller asks for.

    :param link: used by a thread of its own.
    :ivar address: address at which trains are received.
    :ivar port: the port, also when a free one was asked for.
    """

    def __init__(self, conf: cfg.ConfigOpts, link: stream.Link):
        self._link = link
        self._host = conf.edge.host
        self._settings = protocol.Settings(conf.edge.uplink_dev)
        self.address = address_of(conf)
        self._responder = responder.Responder(
            self.address, conf.probe.port, self._settings)
        self.port = self._responder.port
        self._pace = protocol.Pace(self._settings.max_trains_per_minute)
        self._stop = threading.Event()
        self._worker = threading.Thread(target=self._run, daemon=True,
                                        name='virtco-probe-sender')

    def start(self) -> None:
        self._responder.start()
        self._worker.start()
        LOG.info('Packet trains are received at %s port %d.', self.address,
                 self.port)

    def stop(self) -> None:
        """Stop; the thread that waits for a train may outlive the call."""
        self._stop.set()
        self._responder.stop()
        self._worker.join(0.2)

    def _run(self) -> None:
        while not self._stop.is_set():
            order = self._link.wait_train(_WAIT_S)
            if order is None:
                continue
            try:
                self._measure(order)
            except Exception:
                LOG.exception('Cannot measure for the controller')

    def _measure(self, order: probe_order.Order) -> None:
        try:
            if isinstance(order, probe_order.Receive):
                self._responder.expect(_key_of(order),
                                       2 * self._settings.timeout_s,
                                       _start_of(order))
                return
            measurement = self.measure(order)
        except protocol.ProbeError as error:
            LOG.info('No packet train to %s: %s', order.peer, error)
            return
        LOG.debug('Packet train to %s: %s', order.peer, measurement)
        self._link.outbox.put_measurement(measurement)

    def measure(self, order: probe_order.Send) -> reports.Measurement:
        """Send one train, or by a bulk TCP connection.

        :raises edge_module.probe.train_protocol.ProbeError: no result.
        """
        self._pace.admit()
        measurement = functools.partial(
            reports.Measurement, probe_id=order.probe_id, src=self._host,
            dst=order.peer)
        if isinstance(order.traffic, probe_order.Bulk):
            flow = bulk.transfer(order.address, order.port, order.traffic,
                                 self._settings, _key_of(order),
                                 _start_of(order))
            if flow.rate_bps <= 0:
                raise protocol.ProbeError('the connection was too short')
            return measurement(
                rate_bps=flow.rate_bps, sent_bytes=sum(flow.windows_bytes),
                windows_bytes=list(flow.windows_bytes), method='bulk')
        found = sender.measure(
            order.address, order.port, order.traffic, dataclasses.replace(
                self._settings, repeats=order.repeats), _key_of(order))
        return measurement(
            rate_bps=found.rate_bps, lower_bound=found.lower_bound,
            loss=found.loss, rtt_s=found.rtt.min_s,
            rtt_median_s=found.rtt.median_s, rtt_p99_s=found.rtt.p99_s,
            sent_bytes=found.sent_bytes, method='train')


def _key_of(order: probe_order.Order) -> protocol.Key:
    return protocol.Key(order.probe_id, bytes.fromhex(order.key))


def _start_of(order: probe_order.Order) -> float | None:
    """Return when the connections of an order's round begin, on the clock of
    time.monotonic; None without a round.
    """
    return (None if order.start_in_s is None
            else time.monotonic() + order.start_in_s)
