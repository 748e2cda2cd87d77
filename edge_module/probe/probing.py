# SPDX-License-Identifier: Apache-2.0

"""Measures the paths to other hypervisors when the controller asks for it."""

import dataclasses
import functools
import logging
import threading
from typing import Any

from oslo_config import cfg

from edge_module import stream
from edge_module.probe import bulk
from edge_module.probe import netdev
from edge_module.probe import responder
from edge_module.probe import train_protocol as protocol
from edge_module.probe import train_sender as sender
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
        options = conf.probe
        uplink_dev = conf.edge.uplink_dev
        self._link = link
        self._host = conf.edge.host
        self._settings = sender.Settings(uplink_dev=uplink_dev)
        self.address = address_of(conf)
        self._responder = responder.Responder(responder.Settings(
            address=self.address, port=options.port, uplink_dev=uplink_dev))
        self.port = self._responder.port
        self._pace = protocol.Pace(protocol.TRAINS_PER_MINUTE)
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

    def _measure(self, probe: dict[str, Any]) -> None:
        try:
            if probe.get('role') == 'receive':
                self._responder.expect(protocol.Key.from_dict(probe),
                                       2 * self._settings.timeout_s,
                                       protocol.start_of(probe))
                return
            measurement = self.measure(probe)
        except protocol.ProbeError as error:
            LOG.info('No packet train to %s: %s', probe.get('peer'), error)
            return
        LOG.debug('Packet train to %s: %s', measurement.dst, measurement)
        self._link.outbox.put_measurement(measurement)

    def measure(self, probe: dict[str, Any]) -> reports.Measurement:
        """Send one train.

        :param probe: ``probe_id, peer, address, port, bursts, packets,
            packet_bytes, key`` as the controller sends them.
        :raises edge_module.probe.train_protocol.ProbeError: no result.
        """
        key = protocol.Key.from_dict(probe)
        measurement = functools.partial(
            reports.Measurement, probe_id=key.probe_id, src=self._host,
            dst=str(probe['peer']))
        if probe.get('kind') == 'bulk':
            asked, start_s = (protocol.read_bulk(probe),
                              protocol.start_of(probe))
            self._pace.admit()
            flow = bulk.transfer(probe['address'], probe['port'], asked,
                                 self._settings, key, start_s)
            if flow.rate_bps <= 0:
                raise protocol.ProbeError('the connection was too short')
            return measurement(
                rate_bps=flow.rate_bps, sent_bytes=flow.sent_bytes,
                windows_bytes=list(flow.windows_bytes), method='bulk')
        train = protocol.read_train(probe)
        self._pace.admit()
        found = sender.measure(
            probe['address'], probe['port'], train, dataclasses.replace(
                self._settings, repeats=probe.get('repeats', True)), key)
        return measurement(
            rate_bps=found.rate_bps, lower_bound=found.lower_bound,
            loss=found.loss, rtt_s=found.rtt.min_s,
            rtt_median_s=found.rtt.median_s, rtt_p99_s=found.rtt.p99_s,
            sent_bytes=found.sent_bytes, method='train')
