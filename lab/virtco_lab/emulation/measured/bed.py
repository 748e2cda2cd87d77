# SPDX-License-Identifier: Apache-2.0

"""Hypervisors that measure each other, over cables of undisclosed rates."""

from collections.abc import Iterator
from collections.abc import Sequence
import concurrent.futures
import contextlib
import pathlib
import secrets

import numpy as np

from edge_module.probe import bulk as bulk_sender
from edge_module.probe import responder
from edge_module.probe import train_protocol as protocol
from edge_module.probe import train_sender as sender
from virtco import units
from virtco.measure import calibration
from virtco.wire import probe as wire
from virtco.wire import probe_order
from virtco_lab.emulation import bed as beds
from virtco_lab.emulation import extent
from virtco_lab.emulation import fabric as fabric_module
from virtco_lab.emulation import namespaces

#: As EC2's hoses, and as Rackspace's.
BUCKETS = {'small bucket': None, 'bucket of 256 KB': 256 * 1024}
#: Settings without limits or repetitions, for experiments on the train itself.
FREE = protocol.Settings(timeout_s=60.0, max_sending_s=50.0,
                         max_bytes=2 ** 30, max_trains_per_minute=10 ** 6,
                         bypass_classes=False, repeats=False)
PRODUCT = protocol.Settings(timeout_s=10.0)
# Every kernel has it, and lets any namespace use it.
_CONGESTION_CONTROL = 'reno'
_THREADS = 16


def rates_bps(options: extent.Options, n_hosts: int) -> dict[str, float]:
    """Draw rates of the hosts' cables, from two fifths of the fastest."""
    rng = np.random.default_rng(options.seeds[0])
    return {f'h{number}': float(rate_bps) for number, rate_bps in enumerate(
        rng.uniform(0.4, 1.0, n_hosts) * options.rate_bps)}


def shown_rates(options: extent.Options) -> str:
    """Format the range of the cables' rates."""
    return (f'{units.format_rate(0.4 * options.rate_bps)} to '
            f'{units.format_rate(options.rate_bps)}')


class Bed:
    """Hypervisors with responders, and who may measure from each.

    :ivar rates_bps: rate of each cable, both ways.
    """

    def __init__(self, bed: beds.Bed, window_bytes: int | None = None):
        """Keep the bed's description and the size of TCP's windows.

        :param window_bytes: largest receive window of TCP.
        """
        self._bed = bed
        self._window_bytes = window_bytes
        self.rates_bps = bed.rates_bps
        self._key = protocol.Key('figure', secrets.token_bytes(32))
        self._ends: dict[str, tuple[str, int]] = {}
        self._pools: dict[str, concurrent.futures.ThreadPoolExecutor] = {}

    @contextlib.contextmanager
    def built(self) -> Iterator['Bed']:
        """Build the hosts with their rates, and remove them afterwards."""
        with (fabric_module.built(self._bed) as self.fabric,
              contextlib.ExitStack() as self._stack):
            for host, at in self.fabric.hypervisors.items():
                self._start(host, at.namespace, at.address)
            yield self

    def add_vm(self, vm: str, host: str) -> None:
        """Add a VM that measures and is measured as hypervisors are."""
        port = self.fabric.add_vm(vm, host)
        self._start(vm, port.namespace, port.address)

    def _start(self, name: str, namespace: str, address: str) -> None:
        """Start a host's threads and its responder to measurements."""
        self._pools[name] = self._stack.enter_context(
            namespaces.executor(namespace, _THREADS))

        def start() -> responder.Responder:
            _tune_tcp(self._window_bytes)
            found = responder.Responder(address, 0, FREE)
            found.expect(self._key, 24 * 3600.0)
            found.start()
            return found

        answering = self._pools[name].submit(start).result()
        self._stack.callback(answering.stop)
        self._ends[name] = address, answering.port

    def path_bps(self, src: str, dst: str) -> float:
        """Return the true rate of a path, in bit/s."""
        return min(self.rates_bps[src], self.rates_bps[dst])

    def train(self, src: str, dst: str, setting: calibration.Setting,
              settings: protocol.Settings = FREE
              ) -> 'concurrent.futures.Future[sender.Measurement]':
        """Start to measure a pair of hosts by packet trains."""
        return self._pools[src].submit(
            sender.measure, *self._ends[dst], probe_order.Train(
                setting.bursts, setting.packets, wire.PACKET_BYTES),
            settings, self._key)

    def bulk(self, src: str, dst: str, lasts_s: float
             ) -> 'concurrent.futures.Future[bulk_sender.Flow]':
        """Start a TCP connection between two hosts for some seconds."""
        return self._pools[src].submit(
            bulk_sender.transfer, *self._ends[dst], probe_order.Bulk(lasts_s),
            FREE, self._key)

    def bulks(self, paths: Sequence[tuple[str, str]], lasts_s: float
              ) -> list[bulk_sender.Flow]:
        """Run a bulk TCP connection on each path, all at the same time."""
        return [future.result() for future in [
            self.bulk(src, dst, lasts_s) for src, dst in paths]]


def of_buckets(options: extent.Options, n_hosts: int
               ) -> Iterator[tuple[str, Bed]]:
    """Yield hosts with each kind of token buckets, built meanwhile."""
    for kind, bucket_bytes in BUCKETS.items():
        bed = Bed(beds.Bed(rates_bps(options, n_hosts),
                           bucket_bytes=bucket_bytes))
        with bed.built():
            yield kind, bed


def or_none(future: 'concurrent.futures.Future[sender.Measurement]'
            ) -> sender.Measurement | None:
    """Return a measurement; None where it failed."""
    try:
        return future.result()
    except protocol.ProbeError:
        return None


def _tune_tcp(window_bytes: int | None) -> None:
    """Set the TCP options of this namespace in place of the machine's.

    :param window_bytes: receive window; None leaves the kernel's.
    """
    ipv4 = pathlib.Path('/proc/sys/net/ipv4')
    (ipv4 / 'tcp_congestion_control').write_text(_CONGESTION_CONTROL)
    if window_bytes is not None:
        # Half of a buffer is for the kernel's own use.
        (ipv4 / 'tcp_rmem').write_text(
            f'4096 {2 * window_bytes} {2 * window_bytes}')
