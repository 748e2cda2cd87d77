# SPDX-License-Identifier: Apache-2.0

"""What the controller takes: the policies of all hosts, and a report.

``python -m benchmarks.controller [--hosts 10000] [--coflows 2000] [--vms 12]
[--json]``; half of each coflow's VMs send to the other half. Times are CPU
milliseconds of this process, medians of several runs.

The policies (progress, snapshot, order, policy per host, publication):
``few_moved_ms`` when 40 coflows have sent more, ``all_moved_ms`` when each has
sent up to a fifth of what it had left, ``arrival_ms`` when one more is there,
``measured_ms`` after one more measurement, ``idle_ms`` when nothing happened;
``few_moved_hosts`` and so on count the hosts whose policy changed by it.
``report_ms`` to take one report in, ``policy_ms`` to write the policy of one
host out.
"""

import argparse
from collections.abc import Callable
import itertools
import json
import pathlib
import random
import statistics
import tempfile
import time
from typing import Any

from virtco import app
from virtco.cmd import controller as controller_cmd
from virtco.db import codec
from virtco.db import migration
from virtco.db import models
from virtco.model import coflow as coflow_model
from virtco.model import states
from virtco.wire import reports

RUNS = 7
N_FEW = 40
LINK_BPS = 1e10


class Cloud:
    """A controller, and the counters of its hosts."""

    def __init__(self, home: str, n_hosts: int, n_coflows: int, n_vms: int):
        config = pathlib.Path(home) / 'virtco.conf'
        config.write_text(
            f'[distributor]\nport = 0\n[controller]\nstate_dir = {home}\n')
        self.rooms = app.App(controller_cmd.make_conf(
            ['--config-file', str(config)]))
        migration.upgrade(self.rooms.database)
        self.hosts = [f'h{i}' for i in range(n_hosts)]
        self._n_vms = n_vms
        self._rng = random.Random(1)
        self._ports: dict[str, list[reports.Port]] = {
            host: [] for host in self.hosts}
        self._sent: dict[str, dict[str, float]] = {
            host: {} for host in self.hosts}
        self._sizes: dict[str, dict[str, float]] = {}
        self._now_s = time.time()
        members, coflows = [], []
        for i in range(n_coflows):
            more, coflow = self._group(i)
            members += more
            coflows.append(coflow)
        self.rooms.state.live.load_groups(members, coflows)
        for host in self.hosts:
            self.report(host)
        for host in self._rng.sample(self.hosts, min(100, n_hosts // 2)):
            self.measure(host)
        self.move_all()
        self.compute()
        controller_cmd.spare_libraries()

    def _group(self, i: int) -> tuple[list[Any], Any]:
        """Members anywhere, and their coflow."""
        at = [self._rng.choice(self.hosts) for _ in range(self._n_vms)]
        model = coflow_model.Coflow.from_flows('c', self._n_vms, [
            (src, dst, self._rng.uniform(1e9, 1e11))
            for src in range(self._n_vms // 2)
            for dst in range(self._n_vms // 2, self._n_vms)])
        sizes = self._sizes[f'c{i}'] = {}
        for flow in model.flows:
            if at[flow.src] != at[flow.dst]:
                sizes[at[flow.src]] = (sizes.get(at[flow.src], 0.0)
                                       + flow.size_bytes)
        for row, host in enumerate(at):
            self._ports[host].append(reports.Port(
                f'{i}-{row}', ips=(f'10.{i // 250}.{i % 250}.{row}',)))
        return [models.Member(
            group_id=f'g{i}', row_index=row, instance_uuid=f'{i}-{row}',
            host=host, state=states.MemberState.RUNNING)
            for row, host in enumerate(at)], models.Coflow(
                id=f'c{i}', group_id=f'g{i}', project_id=f'p{i % 20}',
                name='c', state=states.CoflowState.ACTIVE,
                n_vms=self._n_vms, tm=codec.encode_matrix(model.matrix),
                progress='[]', dst_port=None, iterations=1, iteration=1,
                priority_class=0, weight=1.0, arrival=self._now_s,
                ended_at=None)

    def report(self, host: str) -> None:
        sent = self._sent[host]
        self.rooms.state.live.intake(host, reports.Report(
            epoch='e', applied_generation=0,
            link=reports.Link(LINK_BPS, LINK_BPS),
            ports=tuple(self._ports[host]), coflows=tuple(
                reports.CoflowCounters(name, value)
                for name, value in sent.items()),
            uplink_sent_bytes=sum(sent.values())), self._now_s)

    def move(self, names: list[str]) -> None:
        """A host of each coflow reports some of its bytes."""
        reporting = set()
        for name in names:
            for host, size_bytes in self._sizes[name].items():
                sent = self._sent[host]
                before = sent.get(name, 0.0)
                sent[name] = before + 0.2 * self._rng.random() * (
                    size_bytes - before)
                reporting.add(host)
                break
        for host in reporting:
            self.report(host)

    def move_few(self) -> None:
        self.move(self._rng.sample(sorted(self._sizes),
                                   min(N_FEW, len(self._sizes))))

    def move_all(self) -> None:
        self.move(sorted(self._sizes))

    def arrive(self) -> None:
        i = len(self._sizes)
        members, coflow = self._group(i)
        self.rooms.state.live.load_groups(members, [coflow], {f'g{i}'})

    def measure(self, host: str = 'h0') -> None:
        self.rooms.state.rates.add(reports.Measurement(
            probe_id='', src=host, dst=self._rng.choice(self.hosts),
            rate_bps=self._rng.uniform(0.95, 1) * LINK_BPS), time.time())

    def compute(self) -> None:
        """A moment after what happened: all coflows are busy."""
        self._now_s += 0.01
        self.rooms.decide.loop.publish(self._now_s)

    def generations(self) -> dict[str, int]:
        return self.rooms.decide.publisher.generations()


def median_ms(work: Callable[[], Any],
              prepare: Callable[[], Any] = lambda: None) -> float:
    """:param prepare: is called before each run and not measured."""
    taken_ms = []
    for _run in range(RUNS):
        prepare()
        started = time.process_time()
        work()
        taken_ms.append(1000 * (time.process_time() - started))
    return round(statistics.median(taken_ms), 3)


def measure(n_hosts: int, n_coflows: int, n_vms: int) -> dict[str, Any]:
    found: dict[str, Any] = {'hosts': n_hosts, 'coflows': n_coflows,
                             'flows': n_coflows * (n_vms // 2) ** 2}
    with tempfile.TemporaryDirectory() as home:
        cloud = Cloud(home, n_hosts, n_coflows, n_vms)
        for event, happen in {
                'idle': lambda: None, 'few_moved': cloud.move_few,
                'arrival': cloud.arrive, 'measured': cloud.measure,
                'all_moved': cloud.move_all}.items():
            changes = []

            def prepare(happen: Callable[[], Any] = happen) -> None:
                happen()
                changes.append(cloud.generations())

            found[f'{event}_ms'] = median_ms(cloud.compute, prepare)
            changes.append(cloud.generations())
            found[f'{event}_hosts'] = statistics.median(
                sum(after[host] != number for host, number in before.items())
                for before, after in itertools.pairwise(changes))
        host = cloud.hosts[0]
        found['report_ms'] = median_ms(lambda: cloud.report(host))

        def move() -> None:
            cloud.move_all()
            cloud.compute()

        found['policy_ms'] = median_ms(
            lambda: cloud.rooms.decide.publisher.get(host), move)
        cloud.rooms.database.dispose()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks.controller', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--hosts', type=int, default=10_000)
    parser.add_argument('--coflows', type=int, default=2000)
    parser.add_argument('--vms', type=int, default=12,
                        help='VMs per coflow')
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    found = measure(args.hosts, args.coflows, args.vms)
    if args.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f'{name:16} {value:g}')


if __name__ == '__main__':
    main()
