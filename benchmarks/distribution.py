# SPDX-License-Identifier: Apache-2.0

"""How fast policies reach every edge module, and what that takes.

``python -m benchmarks.distribution [--hosts 1000] [--changed M] [--tls]
[--reports] [--resync] [--relays N] [--json]``; policies of about 3 kB, all
different, over the real protocol on loopback. The edges are emulated by
another process.

``median_ms``, ``p99_ms`` and ``last_ms`` from the publishing of computed
policies to an edge's acknowledgement, each the median of several rounds;
``cpu_ms`` of processor time that the distributing process took for it;
``rss_bytes`` of the process that distributes; ``idle_core`` its CPU time per
second while nothing happens but heartbeats; ``connect_s`` until all edges
have connected, and ``connect_core`` what that took; with ``--reports``
``reports_core`` its CPU time per second while one in twenty of the edges has
20 coflows that send, and reports each second what changed, and the others send
a heartbeat each 10 s. ``edges_core`` is the other process's share meanwhile.
With ``--resync`` the distributor ends, and another one has a new policy for
each: ``resync_s`` until all came back, which the protocol spreads, and
acknowledged it, ``resync_core`` and ``resync_peak_rss_bytes`` meanwhile,
``resync_refused`` of connections that were refused since the start. By TLS
they come back at 300 per second, since a handshake takes some milliseconds.

With ``--adversary`` the rounds are run once more while an edge module floods
the distributor (:mod:`benchmarks.adversary`): ``adversary_median_ms`` and so
on.

With ``--relays`` N ``virtco-distributor`` hold the connections of the edges
and pass on what these say: processor times are of all of them,
``relay_rss_bytes`` is the largest one's, and an acknowledgement counts when
the edge sends it.
"""

import argparse
from collections.abc import Callable
import contextlib
import dataclasses
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from msgspec import structs
import psutil

from benchmarks import adversary
from benchmarks import relays
from virtco import app
from virtco.cmd import controller as controller_cmd
from virtco.db import leader
from virtco.db import migration
from virtco.decide import publisher
from virtco.distribute import certificates
from virtco.distribute import connection
from virtco.distribute import edge_session as session
from virtco.distribute import intake
from virtco.distribute import server
from virtco.wire import edge_policy
from virtco.wire import messages

ROUNDS = 5
PATIENCE_S = 240.0


def policy_of(host: str, seed: int) -> edge_policy.EdgePolicy:
    """About 3 kB that no other host has."""
    rnd = random.Random(f'{host} {seed}')
    classes, flows = [], []
    for number in range(4):
        coflow_id = f'{rnd.getrandbits(128):032x}'
        minor = 0x10 + 8 * number
        rate_bps = rnd.uniform(1e6, 1e9)
        classes.append(edge_policy.CoflowClass(
            coflow_id, f'coflow-{number}', minor, rate_bps, rate_bps, number,
            tuple(edge_policy.Destination(
                f'host-{rnd.randrange(10_000)}', minor + 1 + child, 0.5,
                rate_bps / 2, rate_bps / 2) for child in range(2))))
        flows += [edge_policy.FlowEntry(
            coflow_id, f'{rnd.getrandbits(128):032x}',
            f'10.{number}.0.{child + 1}', f'10.{number}.1.{child + 1}',
            minor + 1 + child) for child in range(2)]
    return edge_policy.EdgePolicy(
        host, 0, 60.0, 1e10, 1e10, 1e8, tuple(classes), tuple(flows))


@dataclasses.dataclass(frozen=True)
class Computed:
    """A computed policy, of which the publisher asks the document."""

    document: edge_policy.EdgePolicy

    def policy(self, generation: int) -> edge_policy.EdgePolicy:
        return structs.replace(self.document, generation=generation)


class Observed(server.Server):
    """Notes when which policy was acknowledged."""

    acked_s: dict[str, float]

    def heard(self, seat: connection.Seat, event: session.Event,
              payload: bytes) -> None:
        if isinstance(event, messages.Ack):
            self.acked_s[seat.host] = time.perf_counter()
        super().heard(seat, event, payload)

    def n_open(self) -> int:
        return len(self._open)


class Bench:
    """One process that distributes and one that is the edges."""

    def __init__(self, home: pathlib.Path, n_hosts: int, tls: bool,
                 reports: bool, n_relays: int):
        self.hosts = [f'host-{number}' for number in range(n_hosts)]
        config = home / 'virtco.conf'
        text = (
            f'[controller]\nstate_dir = {home}\n[distributor]\nport = 0\n'
            f'max_connections_per_address = {2 * n_hosts + 64}\n'
            + ('heartbeat_s = 10\n' if reports else '')
            + (certificate(home) if tls else ''))
        config.write_text(text)
        self.conf = controller_cmd.make_conf(['--config-file', str(config)])
        self.rooms = app.App(self.conf)
        migration.upgrade(self.rooms.database)
        self.rooms.state.load()
        self.publisher = publisher.Publisher()
        self.intake = intake.Intake(self.rooms.state.report,
                                    self.rooms.state.heard)
        self.intake.start()
        self.seen: leader.Seen
        self.distributor = self._distributor()
        with self.rooms.database.writer() as session:
            leader.take_over(session, leader.current(session), 'benchmark',
                             f'127.0.0.1:{self.distributor.port}')
            self.seen = leader.current(session)
        self.publisher.lead(self.seen.epoch)
        self.publisher.on_publish.append(
            lambda hosts: self.distributor.published(hosts))
        self.publisher.publish({  # type: ignore[arg-type]
            host: Computed(policy_of(host, 0)) for host in self.hosts})
        if reports:
            self.rooms.decide.start()
            self.rooms.state.lead()
            self.rooms.turns.start()
        self.distributor.start()
        self.apart, self.times = None, None
        if n_relays:
            self.times = relays.Times(home / 'times', n_hosts)
            self.apart = relays.Relays(home, text, n_relays)
        controller_cmd.spare_libraries()
        ports = (self.apart.ports if self.apart is not None
                 else [self.distributor.port])
        self.edges = subprocess.Popen(
            [sys.executable, '-m', 'benchmarks.emulated_edges',
             ','.join(map(str, ports)), str(n_hosts),
             *(['--times', str(home / 'times')] if n_relays else []),
             *(['--tls'] if tls else []),
             *(['--reports'] if reports else [])])

    def _distributor(self) -> Observed:
        found = Observed(
            self.conf, server.Doors(
                epoch=lambda: self.seen.epoch, is_led=lambda: True,
                peer_key=lambda: self.seen.ticket_key, policy=self._policy,
                n_hosts=lambda: len(self.hosts), said=self._said,
                heard=self.intake.add_heard,
                spent_s=self.intake.take_spent_s),
            self.rooms.metrics, certificates.of(
                self.conf.distributor, 'server', self.rooms.metrics))
        found.acked_s = {}
        return found

    def resync(self) -> dict[str, float]:
        """All lose the distributor, and the next one has a new policy for
        each.
        """
        self.conf.set_override('port', self.distributor.port, 'distributor')
        self.distributor.stop()
        self.wait(lambda: not self.distributor.is_alive(), 'the end')
        self.publisher.publish({  # type: ignore[arg-type]
            host: Computed(policy_of(host, -1)) for host in self.hosts})
        self.distributor = self._distributor()
        process = psutil.Process()
        peaks = [process.memory_info().rss]
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        self.distributor.start()

        def are_back() -> bool:
            time.sleep(0.05)
            peaks.append(process.memory_info().rss)
            return (self.distributor.n_open() == len(self.hosts)
                    == len(self.distributor.acked_s))

        self.wait(are_back, 'coming back')
        came_s = sorted(self.distributor.acked_s.values())
        took_s = came_s[-1] - began_s
        return {
            'resync_s': took_s,
            'resync_median_s': statistics.median(came_s) - began_s,
            'resync_core': (time.process_time() - began_cpu_s) / took_s,
            'resync_peak_rss_bytes': max(peaks),
            'resync_refused': sum(
                sample.value for metric in
                self.rooms.metrics.refused_connections.collect()
                for sample in metric.samples
                if sample.name.endswith('_total'))}

    def _policy(self, host: str, known: int) -> server.Numbered | None:
        found = self.publisher.get(host)
        if found is None or found.generation == known:
            return None
        return found.generation, messages.frame(messages.Policy(
            found.generation, found, self.seen.epoch))

    def _said(self, host: str, event: session.Event, _payload: bytes) -> None:
        if isinstance(event, session.Report) and event.report is not None:
            self.intake.add_report(host, event.report, event.report.epoch)

    def wait(self, done: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not done():
            if time.monotonic() > deadline_s or self.edges.poll() is not None:
                raise SystemExit(f'{what} did not happen')
            time.sleep(0.001)

    def cpu_s(self) -> float:
        """Of all processes that distribute."""
        return time.process_time() + (
            self.apart.cpu_s() if self.apart is not None else 0.0)

    def acked_s(self) -> list[float]:
        """When each edge acknowledged that did since :meth:`forget`."""
        return (self.times.came_s() if self.times is not None
                else list(self.distributor.acked_s.values()))

    def forget(self) -> None:
        self.distributor.acked_s = {}
        if self.times is not None:
            self.times.clear()

    def connect(self) -> dict[str, float]:
        began_s, began_cpu_s = time.perf_counter(), self.cpu_s()
        n_hosts = len(self.hosts)

        def are_there() -> bool:
            time.sleep(0.02)
            return len(self.acked_s()) == n_hosts

        self.wait(are_there, 'connecting')
        took_s = time.perf_counter() - began_s
        return {'connect_s': took_s, 'connect_core': (
            self.cpu_s() - began_cpu_s) / took_s}

    def round(self, n_changed: int, seed: int) -> dict[str, float]:
        changed = random.Random(seed).sample(self.hosts, n_changed)
        computed = {host: Computed(policy_of(host, seed)) for host in changed}
        self.forget()
        began_s, began_cpu_s = time.perf_counter(), self.cpu_s()
        self.publisher.publish(computed)  # type: ignore[arg-type]
        while len(self.acked_s()) < n_changed:
            if time.perf_counter() - began_s > PATIENCE_S:
                raise SystemExit('an acknowledgement did not come')
            time.sleep(0.0005 if n_changed < 100 else 0.02)
        took_ms = sorted(1e3 * (at_s - began_s) for at_s in self.acked_s())
        return {'median_ms': statistics.median(took_ms),
                'p99_ms': took_ms[int(0.99 * (n_changed - 1))],
                'last_ms': took_ms[-1],
                'cpu_ms': 1e3 * (self.cpu_s() - began_cpu_s)}

    def core(self, seconds: float) -> tuple[float, float]:
        """CPU time per second of this process and of the edges."""
        other = psutil.Process(self.edges.pid)

        def now_s() -> tuple[float, float, float]:
            times = other.cpu_times()
            return (time.perf_counter(), self.cpu_s(),
                    times.user + times.system)

        before = now_s()
        time.sleep(seconds)
        wall_s, here_s, there_s = (
            after - at for after, at in zip(now_s(), before))
        return here_s / wall_s, there_s / wall_s

    def close(self) -> None:
        self.edges.terminate()
        self.edges.wait()
        if self.apart is not None:
            self.apart.close()
        self.distributor.stop()
        self.intake.stop()
        self.rooms.decide.stop()
        self.rooms.turns.stop()
        self.rooms.database.dispose()


def certificate(home: pathlib.Path) -> str:
    """Options that name a certificate of this machine's own."""
    path = home / 'server.pem'
    subprocess.run(
        ['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt',
         'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', str(path),
         '-out', str(home / 'cert.pem'), '-subj', '/CN=localhost', '-addext',
         'subjectAltName=DNS:localhost,IP:127.0.0.1', '-days',
         '2'], check=True, capture_output=True)
    with path.open('a') as file:
        file.write((home / 'cert.pem').read_text())
    return f'cert_file = {path}\nca_file = {home / "cert.pem"}\n'


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in rounds)
            for name in rounds[0]}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    n_changed = args.changed or args.hosts
    with tempfile.TemporaryDirectory() as home, contextlib.closing(Bench(
            pathlib.Path(home), args.hosts, args.tls, args.reports,
            args.relays)) as bench:
        found: dict[str, Any] = {
            'hosts': args.hosts, 'changed': n_changed,
            'policy_bytes': len(messages.frame(messages.Policy(
                0, policy_of('h', 1)))),
            **bench.connect()}
        rounds = [bench.round(n_changed, seed)
                  for seed in range(1, 1 + ROUNDS)]
        found |= medians(rounds)
        found['best_last_ms'] = min(one['last_ms'] for one in rounds)
        if args.adversary:
            with adversary.beside(bench.distributor.port):
                found |= {f'adversary_{name}': value for name, value in
                          medians([bench.round(n_changed, seed) for seed in
                                   range(1 + ROUNDS, 1 + 2 * ROUNDS)]
                                  ).items()}
        name = 'reports_core' if args.reports else 'idle_core'
        found[name], found['edges_core'] = bench.core(args.seconds)
        found['rss_bytes'] = psutil.Process().memory_info().rss
        if bench.apart is not None:
            found['relay_rss_bytes'] = max(bench.apart.rss_bytes())
        if args.resync:
            found |= bench.resync()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--hosts', type=int, default=1000)
    parser.add_argument('--changed', type=int,
                        help='of how many hosts; all when it is not given')
    parser.add_argument('--tls', action='store_true')
    parser.add_argument('--reports', action='store_true')
    parser.add_argument('--resync', action='store_true',
                        help='restart the distributor at the end')
    parser.add_argument('--adversary', action='store_true',
                        help='measure also beside one that floods')
    parser.add_argument('--seconds', type=float, default=20.0,
                        help='how long CPU time is measured')
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--relays', type=int, default=0,
                        help='processes that hold the connections; 0: this '
                        'one does')
    args = parser.parse_args()
    if args.relays and args.resync:
        parser.error('--resync is for one process')
    if args.relays and args.adversary:
        parser.error('--adversary is for one process')
    found = measure(args)
    if args.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f'{name:15} {value:g}')


if __name__ == '__main__':
    main()
