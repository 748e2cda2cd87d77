# SPDX-License-Identifier: Apache-2.0

"""What launches take while a cloud's edge modules are connected.

``python -m benchmarks.launch_edges [--edges 1000] [--vms 50] [--coflows 500]
[--clients 2] [--reports] [--json]`` starts a controller as
:mod:`benchmarks.launch` does, and another process that is the edge modules of
all its hosts (:mod:`benchmarks.emulated_edges`). Clients then launch groups of
12 VMs by turns, one call for each VM, and notify of each that it is built,
while the controller computes policies and distributes them. Each group has a
matrix of its own.

``call_*_ms`` is wall time as the client sees it, less the solve until the
answer; ``whole_*_ms`` is with it, and ``slowest_ms`` has the phases of the
call that took longest beyond it. ``neutral`` is the share of calls without a
plan, ``policies`` how many were sent meanwhile.
``controller_core`` and ``edges_core`` are processor time per second.

With ``--adversary`` as many VMs are launched once more while edge modules and
a tenant flood the controller (:mod:`benchmarks.adversary`): ``adversary`` has
the same figures of them. Blocks without and with the flood take turns in the
order ABBA, so that a drift of the machine moves both alike. The figures of a
kind are those of the calls of all its blocks. ``call_p99_ratio`` is the
quotient of the two ``call_p99_ms``, and ``call_p99_ratio_interval`` has 95 %
of its values in a bootstrap over the groups, whose calls depend on each other.
"""

import argparse
from collections.abc import Iterator
from collections.abc import Sequence
import concurrent.futures
import contextlib
import dataclasses
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
import psutil

from benchmarks import adversary
from benchmarks import launch
from virtco import app

N_FLOWS = 36
PATIENCE_S = 120.0
#: Blocks of each kind, an even number: half of them begin a turn.
N_BLOCKS = 4
N_RESAMPLES = 2000


class Client:
    """Launches whole groups, in a process of its own."""

    def __init__(self, url: str, n_hosts: int):
        self._url = url
        self._n_hosts = n_hosts
        self._process = subprocess.Popen(
            [sys.executable, '-m', 'benchmarks.launch', '--as-launcher'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, number: int, row: int) -> dict[str, Any]:
        """The answer, and the time it took (``took_s``)."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps({
            'url': self._url, 'instance': launch.instance(number, row),
            'builds': True,
            'launch': {'number': number, 'row': row,
                       'n_hosts': self._n_hosts, 'n_flows': N_FLOWS}}) + '\n')
        stdin.flush()
        found: dict[str, Any] = json.loads(stdout.readline())
        return found | {'instance': launch.instance(number, row)}

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Phases:
    """Wall time of each phase of each instance's call until its answer.

    A solve that nobody waits for any more goes on after the answer.
    """

    def __init__(self, place: Any):
        self.spent_s: dict[str, dict[str, float]] = {}
        work, in_time = place._work, place._in_time
        begun: dict[str, Any] = {}

        def working(placer: Any, request: Any, deadline: Any) -> Any:
            begun[request.instance_uuid] = deadline
            return work(placer, request, deadline)

        def answering(placer: Any, request: Any, is_gone: Any) -> Any:
            try:
                return in_time(placer, request, is_gone)
            finally:
                deadline = begun.pop(request.instance_uuid, None)
                if deadline is not None:
                    self.spent_s[request.instance_uuid] = deadline.spent_s()

        setattr(place, '_work', working)
        setattr(place, '_in_time', answering)


def config(n_edges: int) -> str:
    """Lines of the configuration of a controller of so many edge modules."""
    return ('[distributor]\nport = 0\n'
            f'max_connections_per_address = {n_edges + 64}\n')


@contextlib.contextmanager
def connected(controller: app.App, n_edges: int, *options: str
              ) -> Iterator[psutil.Process]:
    """The process of the edge modules, all of them connected.

    :param options: of :mod:`benchmarks.emulated_edges`.
    """
    place, = controller.distribute.servers()
    process = subprocess.Popen(
        [sys.executable, '-m', 'benchmarks.emulated_edges',
         str(place.port), str(n_edges), *options])
    try:
        until_s = time.monotonic() + PATIENCE_S
        while (controller.metrics.registry.get_sample_value(
                'virtco_edge_connections') or 0) < n_edges:
            if time.monotonic() > until_s or process.poll() is not None:
                raise SystemExit('not all edge modules connected')
            time.sleep(0.05)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def measure(args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as home, launch.started(
            pathlib.Path(home), args.edges, args.coflows, N_FLOWS,
            args.deadline_s, config(args.edges)) as (controller, url):
        phases = Phases(controller.place)
        with (connected(controller, args.edges,
                        *(['--reports'] if args.reports else [])) as others,
              contextlib.ExitStack() as stack):
            clients = [stack.enter_context(contextlib.closing(
                Client(url, args.edges))) for _ in range(args.clients)]
            for number, client in enumerate(clients):
                client.ask(10_000 + number, 0)
            bench = Bench(controller, phases, others, clients)
            if not args.adversary:
                found = summary([bench.run(args.vms)])
            else:
                found = compared(bench, url, args.vms)
    return {'edges': args.edges, 'coflows': args.coflows, **found}


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Launches without a pause, and what they took.

    :ivar beyond_ms: time of each call without the solve, by group.
    :ivar whole_ms: time of each call.
    :ivar slowest: phases of the call that took longest beyond its solve, and
        how long.
    :ivar used: what changed of :func:`figures`.
    """

    beyond_ms: list[list[float]]
    whole_ms: list[float]
    slowest: tuple[float, dict[str, float]]
    n_neutral: int
    used: dict[str, float]


class Bench:
    """Launches one block after another, each of new groups."""

    def __init__(self, controller: app.App, phases: Phases,
                 others: psutil.Process, clients: list[Client]):
        self.controller = controller
        self._phases = phases
        self._others = others
        self._clients = clients
        self._n_groups = 0

    def run(self, n_vms: int) -> Block:
        before = figures(self.controller, self._others)
        groups = launch_all(self._clients, n_vms, self._n_groups)
        after = figures(self.controller, self._others)
        self._n_groups += len(groups)
        beyond_ms = [[1e3 * (call['took_s'] - self._spent_s(call).get(
            'solve', 0.0)) for call in group] for group in groups]
        calls = [call for group in groups for call in group]
        slowest_ms, slowest = max(
            zip(itertools.chain(*beyond_ms), calls),
            key=lambda one: one[0])
        return Block(beyond_ms, [1e3 * call['took_s'] for call in calls],
                     (slowest_ms, self._spent_s(slowest)),
                     sum(call['status'] != 'planned' for call in calls),
                     {name: value - before[name]
                      for name, value in after.items()})

    def _spent_s(self, call: dict[str, Any]) -> dict[str, float]:
        return self._phases.spent_s.get(call['instance'], {})


def compared(bench: Bench, url: str, n_vms: int) -> dict[str, Any]:
    """Launch in blocks without and with a flood, and compare them."""
    blocks: dict[bool, list[Block]] = {False: [], True: []}
    size = -(-n_vms // N_BLOCKS)
    for is_flooded in (False, True, True, False) * (N_BLOCKS // 2):
        with flooded(bench.controller, url) if is_flooded else (
                contextlib.nullcontext()):
            blocks[is_flooded].append(bench.run(size))
    quiet, flood = ([group for block in blocks[kind]
                     for group in block.beyond_ms]
                    for kind in (False, True))
    return {**summary(blocks[False]), 'adversary': summary(blocks[True]),
            'call_p99_ratio': round(p99(flood) / p99(quiet), 3),
            'call_p99_ratio_interval': ratio_interval(quiet, flood)}


@contextlib.contextmanager
def flooded(controller: app.App, url: str) -> Iterator[None]:
    """Flood the controller; nothing of the flood is left at the end."""
    place, = controller.distribute.servers()
    with adversary.beside(place.port, url):
        yield
    server = controller.distribute._server
    assert server is not None
    for host in adversary.HOSTS:
        # The kernel keeps what was sent, which would be read on.
        seat = server.seats().get(host)
        if seat is not None:
            server.loop.call_soon_threadsafe(seat.connection.close)


def p99(groups: Sequence[Sequence[float]]) -> float:
    return float(np.percentile(np.concatenate(groups), 99))


def ratio_interval(quiet: Sequence[Sequence[float]],
                   flood: Sequence[Sequence[float]]) -> list[float]:
    """Ends of the interval that has 95 % of the resampled ratios of p99."""
    rng = random.Random(1)

    def resampled(groups: Sequence[Sequence[float]]) -> float:
        return p99(rng.choices(groups, k=len(groups)))

    return [round(float(end), 3) for end in np.percentile(
        [resampled(flood) / resampled(quiet) for _ in range(N_RESAMPLES)],
        (2.5, 97.5))]


def summary(blocks: Sequence[Block]) -> dict[str, Any]:
    """Say what the launches of blocks took together."""
    whole_ms = [ms for block in blocks for ms in block.whole_ms]
    beyond_ms = [ms for block in blocks for group in block.beyond_ms
                 for ms in group]
    _, slowest_s = max((block.slowest for block in blocks),
                       key=lambda one: one[0])
    used = {name: sum(block.used[name] for block in blocks)
            for name in blocks[0].used}
    return {
        'vms': len(whole_ms),
        **{f'{name}_p{percent}_ms': round(float(np.percentile(
            values, percent)), 3) for name, values in (
                ('call', beyond_ms), ('whole', whole_ms))
           for percent in (50, 99)},
        'slowest_ms': {name: round(1e3 * spent_s, 1)
                       for name, spent_s in slowest_s.items()},
        'neutral': sum(block.n_neutral for block in blocks) / len(whole_ms),
        'policies': used['policies'],
        'controller_core': used['here_s'] / used['at_s'],
        'edges_core': used['there_s'] / used['at_s']}


def figures(controller: app.App, others: psutil.Process) -> dict[str, float]:
    times = others.cpu_times()
    return {'at_s': time.perf_counter(), 'here_s': time.process_time(),
            'there_s': times.user + times.system,
            'policies': sum(
                sample.value for sample in next(iter(
                    controller.metrics.policies_sent.collect())).samples
                if sample.name.endswith('_total'))}


def launch_all(clients: list[Client], n_vms: int, first_group: int = 0
               ) -> list[list[dict[str, Any]]]:
    """The calls of each group. The groups go round among the clients; a
    group's VMs come in turn.
    """
    sizes = [min(launch.N_VMS, n_vms - start)
             for start in range(0, n_vms, launch.N_VMS)]

    def work(first: int) -> list[list[dict[str, Any]]]:
        return [[clients[first].ask(first_group + number, row)
                 for row in range(sizes[number])]
                for number in range(first, len(sizes), len(clients))]

    with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
        return [group for groups in pool.map(work, range(len(clients)))
                for group in groups]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks.launch_edges', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--edges', type=int, default=1000)
    parser.add_argument('--vms', type=int, default=50)
    parser.add_argument('--coflows', type=int, default=500)
    parser.add_argument('--clients', type=int, default=2)
    parser.add_argument('--deadline-s', type=float, default=0.7)
    parser.add_argument('--reports', action='store_true',
                        help='one edge in twenty tells each second what 20 '
                             'coflows sent')
    parser.add_argument('--adversary', action='store_true',
                        help='launch once more beside ones that flood, in '
                             'blocks that take turns')
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args(argv)
    found = measure(args)
    print(json.dumps(found) if args.json else json.dumps(found, indent=1))
    return 0


if __name__ == '__main__':
    sys.exit(main())
