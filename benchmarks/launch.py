# SPDX-License-Identifier: Apache-2.0

"""What a launch costs the controller on a cloud that is in use.

``python -m benchmarks.launch --hosts 200 --coflows 500 [--flows 36] [--json]``
fills the embedded database with hosts and running coflows and starts a
controller over it. Another process then launches groups over HTTP, each with
a matrix of its own, and a second VM of each. Between two launches a host
reports that coflows moved on, so no answer can come from a cache.

All times are processor time of the controller: ``steps`` of the launch's
phases and of the publication of policies after it, ``cpu_*`` of the whole call
but the solve, ``sibling_cpu_p50_ms`` of the second VM's call. Of a call only
the threads that serve it count: the others' turns, such as the leader's beat,
come by the clock, and more of them the slower the machine is.
``neutral`` is the share of launches without a plan. A deadline is one of the
wall clock: with other work on the machine give ``--deadline-s`` more than the
usual 0.7. ``--plot FILE.svg`` measures clouds of several sizes in some
minutes, writes the figures beside it, and prints by which power they grow.
"""

import argparse
from collections.abc import Iterator
import contextlib
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any
import uuid

import msgspec
import numpy as np
import requests
import sqlalchemy as sa
import waitress

from benchmarks import growth
from virtco import app
from virtco.api import deploy
from virtco.cmd import controller as controller_cmd
from virtco.db import codec
from virtco.db import migration
from virtco.db import models
from virtco.model import coflow as coflow_model
from virtco.model import states
from virtco.place import deadline as deadlines
from virtco.wire import reports

N_VMS = 12
LINK_BPS = 1e10
#: How the names of the threads begin that serve calls.
SERVING = ('http', 'waitress', 'placement')
STEPS = ('read', 'solve', 'rank', 'commit', 'publish')


# The cloud as it is found.

def fill(controller: app.App, n_hosts: int, n_coflows: int,
         n_flows: int) -> None:
    """Hosts that report, and groups whose VMs all run."""
    rng = random.Random(1)
    rows: dict[type[models.Base], list[dict[str, Any]]] = {
        models.Host: [
            {'host': name, 'first_seen': 1.0, 'last_report': 1.0,
             'report': msgspec.json.encode(report({})).decode(),
             'minors': '{}',
             'generation_lease': 0} for name in names(n_hosts)],
        models.Group: [], models.Coflow: [], models.Member: []}
    for i in range(n_coflows):
        group = {'id': str(uuid.UUID(int=i)), 'project_id': f'p{i % 20}',
                 'name': f'running-{i}', 'live_key': '', 'n_vms': N_VMS,
                 'created_at': 1.0, 'method': '', 'why': ''}
        rows[models.Group].append(group)
        model = matrix(rng, n_flows)
        rows[models.Coflow].append({
            'id': coflow_id(i), 'group_id': group['id'],
            'project_id': group['project_id'], 'name': group['name'],
            'position': 0, 'state': states.CoflowState.ACTIVE,
            'n_vms': N_VMS, 'n_flows': n_flows,
            'size_bytes': model.size_bytes, 'iterations': 1, 'iteration': 1,
            'tm': codec.encode_matrix(model.matrix), 'progress': '[]',
            'sent_bytes': 0.0, 'priority_class': 0, 'weight': 1.0,
            'why': '', 'created_at': 1.0, 'arrival': 1.0})
        rows[models.Member] += [{
            'group_id': group['id'], 'row_index': row, 'display_name': '',
            'instance_uuid': str(uuid.UUID(int=N_VMS * i + row)),
            'reservation_id': '', 'state': states.MemberState.RUNNING,
            'host': f'host-{rng.randrange(n_hosts)}', 'vcpus': 1.0,
            'memory_mb': 512.0, 'disk_gb': 1.0} for row in range(N_VMS)]
    with controller.database.writer() as session:
        for table, some in rows.items():
            if some:
                session.execute(sa.insert(table), some)


def senders(controller: app.App) -> list[tuple[str, str]]:
    """Id of each coflow, and the host of its first VM, which sends."""
    with controller.database.reader() as session:
        return [(coflow, host) for coflow, host in session.execute(
            sa.select(models.Coflow.id, models.Member.host)
            .join(models.Member,
                  models.Member.group_id == models.Coflow.group_id)
            .where(models.Member.row_index == 0)
            .order_by(models.Coflow.id))]


def names(n_hosts: int) -> list[str]:
    return [f'host-{i}' for i in range(n_hosts)]


def coflow_id(i: int) -> str:
    return str(uuid.UUID(int=2 ** 64 + i))


def matrix(rng: random.Random, n_flows: int) -> coflow_model.Coflow:
    """The first half of the VMs sends to the second."""
    half = N_VMS // 2
    pairs = [(src, dst) for src in range(half) for dst in range(half, N_VMS)]
    return coflow_model.Coflow.from_flows('c', N_VMS, [
        (src, dst, float(round(rng.uniform(1e8, 1e10))))
        for src, dst in (pairs * (n_flows // len(pairs) + 1))[:n_flows]])


def report(sent_bytes: dict[str, float]) -> reports.Report:
    return reports.Report(
        epoch='e', applied_generation=0, ports=(),
        link=reports.Link(LINK_BPS, LINK_BPS, 'u'),
        uplink_sent_bytes=sum(sent_bytes.values()), health='ok',
        coflows=tuple(reports.CoflowCounters(name, value)
                      for name, value in sent_bytes.items()))


# The one who launches, in a process of its own.

def launch_when_told() -> int:
    """Read a command per line, write its answer as a line."""
    session = requests.Session()
    for line in sys.stdin:
        command = json.loads(line)
        data = json.dumps(body(**command['launch'])).encode()
        began_s = time.perf_counter()
        answer = session.put(
            f'{command["url"]}/v1/placements/{command["instance"]}',
            data=data, headers={'Content-Type': 'application/json'},
            timeout=60).json()
        took_s = time.perf_counter() - began_s
        if command.get('builds'):
            session.post(f'{command["url"]}/v1/notifications', json=built(
                command['instance'], answer['hosts'][0]['host']),
                timeout=60).raise_for_status()
        print(json.dumps({'status': answer.get('status'),
                          'why': answer.get('why'), 'took_s': took_s}),
              flush=True)
    return 0


def body(number: int, row: int, n_hosts: int, n_flows: int
         ) -> dict[str, Any]:
    hints = {'virtco:coflow': f'new-{number}'}
    model = matrix(random.Random(number), n_flows)
    hints['virtco:tm'] = json.dumps({'n': N_VMS, 'flows': [
        [flow.src, flow.dst, flow.size_bytes] for flow in model.flows]})
    return {'user_id': 'u', 'project_id': 'p', 'display_name': 'vm',
            'reservation_id': f'r{number}', 'launch_index': row,
            'num_instances': N_VMS, 'hints': hints, 'metadata': {},
            'flavor': {'vcpus': 1, 'memory_mb': 512, 'disk_gb': 1},
            'server_group': None, 'hosts': [
                {'host': name, 'node': name,
                 'free': {'vcpus': 4, 'memory_mb': 65536, 'disk_gb': 900}}
                for name in names(n_hosts)]}


def built(instance_uuid: str, host: str) -> dict[str, Any]:
    """Nova's notification of it."""
    return {'event_type': 'instance.create.end', 'timestamp': None,
            'payload': {'nova_object.data': {'uuid': instance_uuid,
                                             'host': host}}}


# The one that is measured.

class Stopwatch(deadlines.Deadline):
    """Also tells the processor time of the phases, where it is wanted."""

    is_wanted = True

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.marks: list[tuple[str, float]] = []

    def enter(self, phase: str) -> None:
        super().enter(phase)
        self.mark(phase)

    def mark(self, phase: str) -> None:
        if self.is_wanted:
            self.marks.append((phase, time.thread_time()))

    def cpu_s(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for (phase, start_s), (_, end_s) in zip(self.marks, self.marks[1:]):
            found[phase] = found.get(phase, 0.0) + end_s - start_s
        return found


class Bench:
    def __init__(self, controller: app.App, url: str,
                 n_hosts: int, n_flows: int):
        self.controller = controller
        self.samples: dict[str, list[float]] = {
            name: [] for name in (*STEPS, 'cpu', 'sibling')}
        self.n_neutral = self.n_launches = 0
        self._url = url
        self._sizes = {'n_hosts': n_hosts, 'n_flows': n_flows}
        self._senders = senders(controller)
        self._rng = random.Random(2)
        self._sent: dict[str, dict[str, float]] = {}
        self._watches: list[Stopwatch] = []
        self._launcher = subprocess.Popen(
            [sys.executable, '-m', 'benchmarks.launch', '--as-launcher'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        work = controller.place._work

        def watched(placer: Any, request: Any, watch: Any) -> Any:
            try:
                return work(placer, request, watch)
            finally:
                watch.mark('')
                self._watches.append(watch)

        setattr(controller.place, '_work', watched)

    def close(self) -> None:
        assert self._launcher.stdin is not None
        self._launcher.stdin.close()
        self._launcher.wait()

    def launch(self, number: int, warm: bool) -> None:
        """One group's first VM and the next, and what follows from them."""
        self._watches.clear()
        first_s, answer = self._ask(number, 0)
        steps = self._watches[0].cpu_s() if self._watches else {}
        steps['publish'] = self._publish()
        # Nor does telling the time add to that of a sibling.
        Stopwatch.is_wanted = False
        sibling_s, _ = self._ask(number, 1)
        Stopwatch.is_wanted = True
        self._publish()
        if warm:
            self.n_launches += 1
            self.n_neutral += answer['status'] != 'planned'
            for name in STEPS:
                self.samples[name].append(steps.get(name, 0.0))
            self.samples['cpu'].append(first_s - steps.get('solve', 0.0))
            self.samples['sibling'].append(sibling_s)
        for row in (0, 1):
            with contextlib.suppress(Exception):
                self.controller.follow.release(instance(number, row))
        self._move_on()

    def _ask(self, number: int, row: int) -> tuple[float, dict[str, Any]]:
        """Processor time of one call, and its answer."""
        stdin, stdout = self._launcher.stdin, self._launcher.stdout
        assert stdin is not None and stdout is not None
        command = json.dumps({
            'url': self._url, 'instance': instance(number, row),
            'launch': {'number': number, 'row': row, **self._sizes}}) + '\n'
        before_s = serving_s()
        stdin.write(command)
        stdin.flush()
        answer = json.loads(stdout.readline())
        return sum(after_s - before_s.get(thread, 0.0) for thread, after_s
                   in serving_s().items()), answer

    def _publish(self) -> float:
        started_s = time.process_time()
        self.controller.decide.loop.run_once()
        return time.process_time() - started_s

    def _move_on(self) -> None:
        """The hosts of some coflows report that these have sent more."""
        for name, host in self._rng.sample(self._senders,
                                           min(20, len(self._senders))):
            sent = self._sent.setdefault(host, {})
            sent[name] = sent.get(name, 0.0) + self._rng.uniform(1e6, 1e8)
            self.controller.state.report(host, report(sent))
        self.controller.decide.loop.run_once()


def serving_s() -> dict[int, float]:
    """Processor time until now of each thread that serves calls."""
    return {thread.ident: time.clock_gettime(time.pthread_getcpuclockid(
        thread.ident)) for thread in threading.enumerate()
        if thread.ident is not None and thread.name.startswith(SERVING)}


def instance(number: int, row: int) -> str:
    return str(uuid.UUID(int=2 ** 100 + number * N_VMS + row))


@contextlib.contextmanager
def started(home: pathlib.Path, n_hosts: int, n_coflows: int, n_flows: int,
            deadline_s: float, more: str = '') -> Iterator[
                tuple[app.App, str]]:
    """The controller of such a cloud, and its URL.

    :param more: lines of its configuration.
    """
    config = home / 'virtco.conf'
    config.write_text(f'[controller]\nstate_dir = {home}\n'
                      f'[placement]\ndeadline_s = {deadline_s}\n'
                      '[limits]\nmax_groups_per_project = 10000\n'
                      'max_flows_per_project = 10000000\n' + more)
    conf = controller_cmd.make_conf(['--config-file', str(config)])
    deadlines.Deadline = Stopwatch  # type: ignore[misc]
    controller = app.App(conf)
    migration.upgrade(controller.database)
    fill(controller, n_hosts, n_coflows, n_flows)
    controller.start()
    controller.place.load_planner(is_used=True)
    server = waitress.create_server(
        deploy.application(conf, controller), host='127.0.0.1', port=0,
        threads=8, max_request_body_size=64 * 1024 * 1024,
        **controller_cmd.SERVER)
    threading.Thread(target=server.run, daemon=True, name=SERVING[0]).start()
    controller_cmd.spare_libraries()
    try:
        yield controller, f'http://127.0.0.1:{server.effective_port}'
    finally:
        server.close()
        controller.stop()


@contextlib.contextmanager
def running(home: pathlib.Path, n_hosts: int, n_coflows: int, n_flows: int,
            deadline_s: float) -> Iterator[Bench]:
    with started(home, n_hosts, n_coflows, n_flows,
                 deadline_s) as (controller, url):
        # The policies are computed when it is their turn to be measured.
        controller.decide.stop()
        bench = Bench(controller, url, n_hosts, n_flows)
        try:
            yield bench
        finally:
            bench.close()


def measure(n_hosts: int, n_coflows: int, n_flows: int, n_launches: int,
            deadline_s: float) -> dict[str, Any]:
    with (tempfile.TemporaryDirectory() as home,
          running(pathlib.Path(home), n_hosts, n_coflows, n_flows,
                  deadline_s) as bench):
        for number in range(n_launches + 3):
            bench.launch(number, warm=number >= 3)
    samples = bench.samples

    def at(name: str, percent: float) -> float:
        return round(1000 * float(np.percentile(samples[name], percent)), 3)

    return {
        'hosts': n_hosts, 'coflows': n_coflows,
        'steps': {name: {'p50_ms': at(name, 50), 'p99_ms': at(name, 99)}
                  for name in STEPS},
        'cpu_p50_ms': at('cpu', 50), 'cpu_p99_ms': at('cpu', 99),
        'sibling_cpu_p50_ms': at('sibling', 50),
        'neutral': bench.n_neutral / bench.n_launches}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks.launch', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--hosts', type=int, default=200)
    parser.add_argument('--coflows', type=int, default=500)
    parser.add_argument('--flows', type=int, default=36)
    parser.add_argument('--launches', type=int,
                        help='40 unless told, 8 for each point of --plot')
    parser.add_argument('--deadline-s', type=float, default=0.7)
    parser.add_argument('--json', action='store_true')
    parser.add_argument('--plot', metavar='FILE', type=pathlib.Path,
                        help='10 to 10,000 hosts, and 0 to 2,000 coflows; '
                             'writes FILE and its figures as .csv')
    parser.add_argument('--as-launcher', action='store_true',
                        help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.as_launcher:
        return launch_when_told()
    if args.plot:
        points = list(growth.points(args.flows, args.launches or 8,
                                    args.deadline_s))
        print(json.dumps(points) if args.json else growth.report(points))
        growth.write(points, args.plot.with_suffix('.csv'))
        growth.plot(points, args.plot)
        return 0
    found = measure(args.hosts, args.coflows, args.flows,
                    args.launches or 40, args.deadline_s)
    print(json.dumps(found) if args.json else json.dumps(found, indent=1))
    return 0


if __name__ == '__main__':
    sys.exit(main())
