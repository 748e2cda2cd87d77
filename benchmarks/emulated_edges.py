# SPDX-License-Identifier: Apache-2.0

"""Many edge modules in one process, as far as their connections go.

``python -m benchmarks.emulated_edges PORTS HOSTS [--tls] [--reports |
--coflows FILE]``
connects to servers on loopback, in turns where there are several PORTS,
with commas between, as host-0, host-1, …, acknowledges every policy and sends
heartbeats; with ``--reports`` one in twenty has 20 coflows that send, and
tells each second what changed; with ``--coflows`` each has those that the
file names, a JSON object of lists of ids by host. One that loses its
connection comes back as an edge module does: within the time it was told at
first, then with twice the pause after each failure. With ``--times FILE`` each
notes in it when it acknowledged.
"""

import argparse
import asyncio
from collections.abc import Awaitable
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import itertools
import json
import pathlib
import random
import re
import resource
import ssl
import time
from typing import Any

import msgspec

from benchmarks import relays
from edge_module import outbox
from virtco.wire import frames
from virtco.wire import messages

try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment]

COFLOWS = [f'c{number}' for number in range(20)]
ONE_SENDS_OF = 20
#: So little that hardly any rate has to change.
BYTES_PER_MS = 100
AT_ONCE = 64
FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.5, 30.0
_GENERATION = re.compile(rb'"generation":(\d+)')


def pack(kind: str, **fields: Any) -> bytes:
    """Encode a message as a frame."""
    return frames.frame(msgspec.json.encode({'type': kind, **fields}))


def boot_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def counters(ids: Sequence[str], sent_bytes: int) -> list[dict[str, Any]]:
    found: dict[str, Any] = {'sent_bytes': sent_bytes}
    if ids is COFLOWS:
        found |= {'sent_packets': sent_bytes // 1500, 'drops': 0,
                  'backlog_bytes': 0,
                  'destinations': [{'host': 'h2', 'sent_bytes': sent_bytes}]}
    return [{'coflow_id': coflow_id, **found} for coflow_id in ids]


def report(ids: Sequence[str] = ()) -> dict[str, Any]:
    return {'boot_id': 'b', 'boot_ms': boot_ms(), 'epoch': 'e',
            'applied_generation': 1,
            'link': {'dev': 'eth0', 'egress_bps': 1e10, 'ingress_bps': 1e10},
            'ports': [], 'coflows': counters(ids, 0),
            'pairs': [], 'uplink_sent_bytes': 0, 'default_sent_bytes': 0,
            'health': 'ok', 'error': None, 'cpu_s': 0.1}


def host(number: int) -> str:
    return f'host-{number}'


class Edge(asyncio.Protocol):
    """An edge module.

    :param coflows: ids of those that it sends.
    :param connect: makes a connection for it.
    """

    def __init__(self, number: int, coflows: Sequence[str],
                 connect: Callable[['Edge'], Awaitable[Any]],
                 times: relays.Times | None):
        self.number = number
        self._times = times
        self._epoch = 0
        self._host = host(number)
        self._coflows = coflows
        self._began_ms = boot_ms()
        self._generation = 0
        self._spread_s = 0.0
        self._loop = asyncio.get_running_loop()
        self.connect = connect

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._reader = frames.Reader(1 << 28)
        transport.write(messages.frame(messages.Hello(
            frames.VERSION, self._host, self._epoch, self._generation)))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._task = self._loop.create_task(self._come_back())

    async def _come_back(self) -> None:
        spread_s = self._spread_s
        for n_failures in itertools.count(1):
            await asyncio.sleep(random.uniform(0, spread_s))
            try:
                await self.connect(self)
                return
            except OSError:
                spread_s = min(LAST_BACKOFF_S,
                               FIRST_BACKOFF_S * 2 ** min(n_failures, 10))

    def data_received(self, data: bytes) -> None:
        for payload in self._reader.feed(data):
            if payload.startswith(b'{"type":"policy"'):
                found = _GENERATION.search(payload)
                assert found is not None
                self._generation = int(found.group(1))
                self._transport.write(frames.frame(
                    b'{"type":"ack","epoch":%d,"generation":%s}'
                    % (self._epoch, found.group(1))))
                if self._times is not None:
                    self._times.by_number[self.number] = time.perf_counter()
            elif payload.startswith(b'{"type":"alive"'):
                if self._is_due(outbox.EARLY):
                    self._beat()
            elif payload.startswith(b'{"type":"welcome"'):
                self._welcomed(msgspec.json.decode(payload))
            elif payload.startswith(b'{"type":"refused"'):
                raise SystemExit(payload.decode())

    def _welcomed(self, message: dict[str, Any]) -> None:
        self._transport.write(pack('report', report=report(self._coflows)))
        self._heartbeat_s = message['heartbeat_s']
        self._spread_s = message['spread_s']
        self._epoch = message['epoch']
        self._beat_s = (self._loop.time()
                        - random.random() * self._heartbeat_s)
        self._wait(self._transport)
        if self._coflows:
            self._loop.call_later(random.random(), self._tell,
                                  self._transport)

    def _is_due(self, part: float) -> bool:
        return self._loop.time() >= self._beat_s + part * self._heartbeat_s

    def _beat(self) -> None:
        self._beat_s = self._loop.time()
        self._transport.write(outbox.HEARTBEAT)

    def _wait(self, transport: Any) -> None:
        """Send a heartbeat when no sign of life was answered by one."""
        if transport is self._transport:
            if self._is_due(outbox.LATE):
                self._beat()
            self._loop.call_at(self._beat_s + outbox.LATE * self._heartbeat_s,
                               self._wait, transport)

    def _tell(self, transport: Any) -> None:
        now_ms = boot_ms()
        sent_bytes = BYTES_PER_MS * (now_ms - self._began_ms)
        if transport is self._transport:
            transport.write(pack('delta', set={
                'boot_ms': now_ms,
                'uplink_sent_bytes': len(self._coflows) * sent_bytes,
            }, rows={'coflows': {'set': counters(self._coflows, sent_bytes)}}))
            self._loop.call_later(1.0, self._tell, transport)


async def run(ports: list[int], n_hosts: int, tls: bool,
              coflows: Mapping[str, Sequence[str]],
              times: relays.Times | None) -> None:
    context = None
    if tls:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    loop = asyncio.get_running_loop()

    async def connect(edge: Edge) -> None:
        await loop.create_connection(
            lambda: edge, '127.0.0.1', ports[edge.number % len(ports)],
            ssl=context)

    for start in range(0, n_hosts, AT_ONCE):
        await asyncio.gather(*(
            connect(Edge(number, coflows.get(host(number), ()), connect,
                         times))
            for number in range(start, min(n_hosts, start + AT_ONCE))))
    await loop.create_future()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('ports', type=lambda text: [
        int(port) for port in text.split(',')])
    parser.add_argument('hosts', type=int)
    parser.add_argument('--tls', action='store_true')
    sending = parser.add_mutually_exclusive_group()
    sending.add_argument('--reports', action='store_true')
    sending.add_argument('--coflows', type=pathlib.Path)
    parser.add_argument('--times', type=pathlib.Path)
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    times = (relays.Times(args.times, args.hosts) if args.times
             else None)
    coflows = (json.loads(args.coflows.read_text()) if args.coflows else {
        host(number): COFLOWS for number in range(
            0, args.hosts, ONE_SENDS_OF)} if args.reports else {})
    work = run(args.ports, args.hosts, args.tls, coflows, times)
    if uvloop is not None:
        uvloop.run(work)
    else:
        asyncio.run(work)


if __name__ == '__main__':
    main()
