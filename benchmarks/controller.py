# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""What the controller takes: a computation of all policies, a report.

``python -m benchmarks.controller [--coflows 500] [--hosts 150] [--vms 12]
[--json]``; half of each coflow's VMs send to the other half, and each pair of
hosts has been measured. Times are CPU seconds of this process, medians of
several runs.

A computation of all policies (advance, schedule, sheets, publish):
``all_move_s`` when every coflow has sent up to a fifth of what it had left,
``few_move_s`` when one in a hundred has, ``arrival_s`` when one more is there,
``measured_s`` after one more measurement; ``all_move_hosts`` and so on count
the hosts whose policy changed by it. ``policy_s`` to write out the policy of
one host, ``host_rates_s`` for the hosts' rates when nothing was measured
since, ``report_s`` to take one report in.
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
from virtco.db import migration
from virtco.know import byte_counters
from virtco.know import inflight
from virtco.model import coflow as coflow_model

RUNS = 7


def make_controller(home: str) -> app.Controller:
    config = pathlib.Path(home) / 'virtco.conf'
    config.write_text(f'[controller]\nstate_dir = {home}\n'
                      '[placement]\ndeadline_s = 60\n')
    conf = controller_cmd.make_conf(['--config-file', str(config)])
    controller = app.Controller(conf)
    migration.upgrade(controller.database)
    controller.resolver.run_once()
    controller_cmd.spare_libraries()
    return controller


def report(ports: list[dict[str, Any]],
           sent: dict[str, float]) -> dict[str, Any]:
    return {'epoch': 'e', 'applied_generation': 0,
            'link': {'egress_bps': 1e9, 'ingress_bps': 1e9},
            'ports': ports, 'uplink_sent_bytes': sum(sent.values()),
            'coflows': [{'coflow_id': name, 'sent_bytes': value}
                        for name, value in sent.items()]}


def fill(controller: app.Controller, n_coflows: int, n_hosts: int,
         n_vms: int) -> dict[str, list[dict[str, Any]]]:
    """Active coflows with VMs anywhere; the ports per host."""
    rnd = random.Random(1)
    ports: dict[str, list[dict[str, Any]]] = {
        f'h{i}': [] for i in range(n_hosts)}
    for i in range(n_coflows):
        for row, host in start(controller, rnd, i, sorted(ports),
                               n_vms).items():
            ports[host].append({
                'vm': f'{i}-{row}',
                'ips': [f'10.{i // 250}.{i % 250}.{row}']})
    for host, found in ports.items():
        controller.state.intake(host, report(found, {}), 1.0)
    now_s = controller.clock()
    for src, dst in itertools.permutations(ports, 2):
        controller.rates.add({'src': src, 'dst': dst,
                              'rate_bps': rnd.uniform(0.9e9, 1e9)}, now_s)
    return ports


def start(controller: app.Controller, rnd: random.Random, i: int,
          hosts: list[str], n_vms: int) -> dict[int, str]:
    """An active coflow; the host of each of its VMs."""
    at = {row: rnd.choice(hosts) for row in range(n_vms)}
    model = coflow_model.Coflow.from_flows('c', n_vms, [
        (src, dst, rnd.random() * 1e9) for src in range(n_vms // 2)
        for dst in range(n_vms // 2, n_vms)])
    controller.state.groups[f'g{i}'] = {
        row: inflight.Row(f'{i}-{row}', host, True)
        for row, host in at.items()}
    controller.state.coflows[f'c{i}'] = inflight.Tracked(
        f'c{i}', f'g{i}', 'p', 'c', 'active', model,
        byte_counters.CoflowProgress([f.size_bytes for f in model.flows]),
        arrival_s=0.0)
    return at


def generations(controller: app.Controller) -> dict[str, int]:
    return {host: policy.generation
            for host in controller.publisher.hosts()
            if (policy := controller.publisher.get(host)) is not None}


def measure_resolves(controller: app.Controller, n_coflows: int,
                     n_hosts: int, n_vms: int) -> dict[str, float]:
    """Times of a resolve after different events, and hosts changed by it."""
    rnd = random.Random(2)
    names = sorted(controller.state.coflows)
    few = max(1, n_coflows // 100)
    new = itertools.count(n_coflows)
    hosts = [f'h{i}' for i in range(n_hosts)]

    def move(moving: list[str]) -> None:
        for name in moving:
            one = controller.state.coflows[name].progress
            one.sent_bytes += (one.sizes_bytes - one.sent_bytes) * (
                rnd.random() * 0.2)

    events = {
        'all_move': lambda: move(names),
        'few_move': lambda: move(rnd.sample(names, few)),
        'arrival': lambda: start(controller, rnd, next(new), hosts, n_vms),
        'measured': lambda: controller.rates.add(
            {'src': 'h0', 'dst': 'h1', 'rate_bps': 9.5e8},
            controller.clock())}
    found: dict[str, float] = {}
    for event, happen in events.items():
        changes = []

        def prepare() -> None:
            happen()
            changes.append(generations(controller))

        found[f'{event}_s'] = median_s(controller.resolver.run_once, prepare)
        changes.append(generations(controller))
        found[f'{event}_hosts'] = statistics.median(
            sum(after[host] != before[host] for host in before)
            for before, after in itertools.pairwise(changes))
    return found


def median_s(work: Callable[[], Any],
             prepare: Callable[[], Any] = lambda: None) -> float:
    """:param prepare: is called before each run and not measured."""
    taken = []
    for _run in range(RUNS):
        prepare()
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return statistics.median(taken)


def measure(n_coflows: int, n_hosts: int, n_vms: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as home:
        controller = make_controller(home)
        ports = fill(controller, n_coflows, n_hosts, n_vms)

        controller.resolver.run_once()
        found = measure_resolves(controller, n_coflows, n_hosts, n_vms)
        hosts_s = median_s(lambda: controller.rates.hosts(
            controller.clock()))
        host = sorted(ports)[0]
        policy = controller.publisher.get(host)
        assert policy is not None
        steps = iter(range(1, 1 + RUNS))

        def one_report() -> None:
            step = next(steps)
            controller.state.intake(host, report(ports[host], {
                c.coflow_id: 1e4 * step for c in policy.classes}), 1.0 + step)

        report_s = median_s(one_report)
        generation = itertools.count(policy.generation + 1)
        policy_s = median_s(lambda: controller.policy(host, None, 0.0, bool),
                            lambda: controller.publisher.overtake(
                                host, next(generation)))
        controller.database.dispose()
    return {'coflows': n_coflows, 'hosts': n_hosts,
            'flows': n_coflows * (n_vms // 2) * (n_vms - n_vms // 2),
            **found, 'host_rates_s': hosts_s, 'report_s': report_s,
            'policy_s': policy_s}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--coflows', type=int, default=500)
    parser.add_argument('--hosts', type=int, default=150)
    parser.add_argument('--vms', type=int, default=12,
                        help='VMs per coflow')
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    found = measure(args.coflows, args.hosts, args.vms)
    if args.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f'{name:15} {value:g}')


if __name__ == '__main__':
    main()
