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

With ``--adversary`` as many VMs are launched once more while an edge module
and a tenant flood the controller (:mod:`benchmarks.adversary`): ``adversary``
has the same figures of them.
"""

import argparse
from collections.abc import Iterator
import concurrent.futures
import contextlib
import json
import pathlib
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


@contextlib.contextmanager
def connected(controller: app.App, n_edges: int, reports: bool
              ) -> Iterator[psutil.Process]:
    """The process of the edge modules, all of them connected."""
    place, = controller.distribute.servers()
    process = subprocess.Popen(
        [sys.executable, '-m', 'benchmarks.emulated_edges',
         str(place.port), str(n_edges),
         *(['--reports'] if reports else [])])
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
            args.deadline_s,
            '[distributor]\nport = 0\n'
            f'max_connections_per_address = {args.edges + 64}\n'
    ) as (controller, url):
        phases = Phases(controller.place)
        with (connected(controller, args.edges, args.reports) as others,
              contextlib.ExitStack() as stack):
            clients = [stack.enter_context(contextlib.closing(
                Client(url, args.edges))) for _ in range(args.clients)]
            for number, client in enumerate(clients):
                client.ask(10_000 + number, 0)
            found = run(args, controller, phases, others, clients, 0)
            if args.adversary:
                place, = controller.distribute.servers()
                with adversary.beside(place.port, url):
                    found['adversary'] = run(args, controller, phases,
                                             others, clients, 1)
    return {'edges': args.edges, 'coflows': args.coflows, **found}


def run(args: argparse.Namespace, controller: app.App, phases: Phases,
        others: psutil.Process, clients: list[Client], turn: int
        ) -> dict[str, Any]:
    """Launch, and say what it took.

    :param turn: launches of another one have other names.
    """
    before = figures(controller, others)
    calls = launch_all(clients, args.vms, turn * args.vms)
    after = figures(controller, others)
    took_s = after['at_s'] - before['at_s']
    whole_ms = [1e3 * call['took_s'] for call in calls]
    beyond_ms = [1e3 * (call['took_s'] - phases.spent_s.get(
        call['instance'], {}).get('solve', 0.0)) for call in calls]
    slowest = calls[int(np.argmax(beyond_ms))]
    return {
        'vms': len(calls),
        **{f'{name}_p{percent}_ms': round(float(np.percentile(
            values, percent)), 3) for name, values in (
                ('call', beyond_ms), ('whole', whole_ms))
           for percent in (50, 99)},
        'slowest_ms': {name: round(1e3 * spent_s, 1) for name, spent_s in
                       phases.spent_s.get(slowest['instance'], {}).items()},
        'neutral': sum(call['status'] != 'planned'
                       for call in calls) / len(calls),
        'policies': after['policies'] - before['policies'],
        'controller_core': (after['here_s'] - before['here_s']) / took_s,
        'edges_core': (after['there_s'] - before['there_s']) / took_s}


def figures(controller: app.App, others: psutil.Process) -> dict[str, float]:
    times = others.cpu_times()
    return {'at_s': time.perf_counter(), 'here_s': time.process_time(),
            'there_s': times.user + times.system,
            'policies': sum(
                sample.value for sample in next(iter(
                    controller.metrics.policies_sent.collect())).samples
                if sample.name.endswith('_total'))}


def launch_all(clients: list[Client], n_vms: int, first_group: int = 0
               ) -> list[dict[str, Any]]:
    """The groups go round among the clients; a group's VMs come in turn."""
    sizes = [min(launch.N_VMS, n_vms - start)
             for start in range(0, n_vms, launch.N_VMS)]

    def work(first: int) -> list[dict[str, Any]]:
        return [clients[first].ask(first_group + number, row)
                for number in range(first, len(sizes), len(clients))
                for row in range(sizes[number])]

    with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
        return [call for calls in pool.map(work, range(len(clients)))
                for call in calls]


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
                        help='launch once more beside ones that flood')
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args(argv)
    found = measure(args)
    print(json.dumps(found) if args.json else json.dumps(found, indent=1))
    return 0


if __name__ == '__main__':
    sys.exit(main())
