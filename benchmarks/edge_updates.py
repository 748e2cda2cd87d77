# SPDX-License-Identifier: Apache-2.0

"""How long the edge module takes to change the kernel.

``python -m benchmarks.edge_updates`` (root) makes a namespace of its own,
with one uplink and one VM port, and applies policies to it: class changes in
place, new classes, new classification entries, a restart that finds all of it
right. Wall and CPU time per update; the best of several is what the code
costs, the median what a busy machine makes of it.

``--classes N`` does it with a document that asks for N classes, as it comes
from the controller: from empty, the same by ``tc -batch``, and with a tenth of
them changed, while reports are made four times a second.
"""

import argparse
from collections.abc import Callable
import ctypes
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from oslo_config import cfg

from edge_module import edge_options as edge_conf
from edge_module import kept_state as state
from edge_module import reporting as report
from edge_module.classify import bpf
from edge_module.classify import classified as classify
from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import htb
from edge_module.tcplan import model
from tests import enforcers
from virtco.wire import edge_policy
from virtco.wire import reports

_CLONE_NEWNET = 0x40000000
_LINK_BPS = 10e9


def enter_own_namespace() -> None:
    """Leave the machine's interfaces alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        error = ctypes.get_errno()
        sys.exit(f'Cannot make a network namespace: {os.strerror(error)}. '
                 'This benchmark needs root.')
    for command in ('ip link set dev lo up',
                    'ip link add dev uplink0 type veth peer name wire0',
                    'ip link add dev tap1 type veth peer name vm1',
                    'ip link set dev uplink0 up', 'ip link set dev wire0 up',
                    'ip link set dev tap1 up', 'ip link set dev vm1 up'):
        subprocess.run(command.split(), check=True)


def policy(classes: int, entries: int, rate_bps: float, shift: int = 0
           ) -> edge_policy.EdgePolicy:
    """Coflows with one destination each; the entries spread over them."""
    coflows = []
    for index in range(classes):
        minor = edge_policy.FIRST_MINOR + 2 * index
        child = edge_policy.Destination('h2', minor + 1, 1.0, rate_bps,
                                        _LINK_BPS)
        coflows.append(edge_policy.CoflowClass(
            f'c{index}', f'c{index}', minor, rate_bps, _LINK_BPS, 0,
            (child,)))
    flows = []
    for index in range(entries):
        number = index + shift
        coflow = coflows[number % classes]
        flows.append(edge_policy.FlowEntry(
            coflow.coflow_id, 'vm', '10.0.0.1',
            f'10.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}',
            coflow.minor + 1))
    return edge_policy.EdgePolicy('h1', 1, 60.0, _LINK_BPS, _LINK_BPS, 1e6,
                                  tuple(coflows), tuple(flows))


def cpu_s() -> float:
    """Of this thread, and of the processes that it waited for."""
    children = os.times()
    return (time.thread_time() + children.children_user
            + children.children_system)


class Bench:
    """One enforcer, and the times of what it did."""

    def __init__(self) -> None:
        self.enforcer = self.fresh()
        self.rows: list[dict[str, object]] = []

    def fresh(self) -> enforcers.Enforcer:
        made = enforcers.Enforcer(htb.Uplink(kernel, 'uplink0'),
                                 bpf.BpfClassifier(kernel),
                                 lambda: _LINK_BPS, grace_s=0.0)
        made.ports = (classify.VmPort(
            'vm', 'tap1', socket.if_nametoindex('tap1'), '', ('10.0.0.1',)),)
        return made

    def apply(self, wanted: edge_policy.EdgePolicy) -> None:
        self.enforcer.set_policy(wanted, time.monotonic())

    def timed(self, what: str, repeat: int, prepare: Callable[[int], object],
              action: Callable[[Any], object]) -> None:
        wall, cpu = [], []
        for index in range(repeat):
            given = prepare(index)
            start = time.perf_counter(), cpu_s()
            action(given)
            wall.append(time.perf_counter() - start[0])
            cpu.append(cpu_s() - start[1])
        self.rows.append({
            'what': what,
            'best_ms': round(min(wall) * 1e3, 1),
            'median_ms': round(statistics.median(wall) * 1e3, 1),
            'cpu_ms': round(statistics.median(cpu) * 1e3, 1)})

    def run(self, repeat: int) -> None:
        self.timed('create 500 coflows (1,000 classes)', 1,
                   lambda index: policy(500, 0, 1e6), self.apply)
        self.timed('change 1,000 classes', repeat,
                   lambda index: policy(500, 0, 1e6 + 8e3 * (1 + index)),
                   self.apply)
        self.timed('the same policy again', repeat,
                   lambda index: self.enforcer.policy, self.apply)
        rate_bps = self.enforcer.policy.classes[0].rate_bps
        self.timed('add 10,000 entries', 1,
                   lambda index: policy(500, 10_000, rate_bps), self.apply)
        self.timed('replace 10,000 entries', repeat,
                   lambda index: policy(500, 10_000, rate_bps,
                                        10_000 * (1 + index)), self.apply)
        self.timed('replace 100 of 10,000 entries', repeat,
                   lambda index: policy(
                       500, 10_000, rate_bps,
                       10_000 * repeat + 100 * (1 + index)), self.apply)
        last = self.enforcer.policy
        self.timed('restart with all of it right', repeat,
                   lambda index: self.fresh(),
                   lambda made: made.set_policy(last, time.monotonic()))
        self.timed('read the counters of 10,000 pairs', repeat,
                   lambda index: None,
                   lambda _: self.enforcer.classifier.dump())
        self.timed('read the counters of 1,000 classes', repeat,
                   lambda index: None,
                   lambda _: self.enforcer.uplink.snapshot())


class Reports:
    """Reports as the agent makes them, and the longest time between two."""

    def __init__(self, made: enforcers.Enforcer, state_dir: str):
        conf = cfg.ConfigOpts()
        edge_conf.register_opts(conf)
        conf([])
        conf.set_override('report_interval_s', 0.25, 'edge')
        self.longest_s = 0.0
        self._stop = threading.Event()
        self._reporter = report.Reporter(
            conf, made, state.StateDir(state_dir), self._stop,
            lambda: {'applied_generation': 0},
            lambda error: sys.exit(str(error)), self._deliver)
        self._last_s = time.monotonic()
        self._thread = threading.Thread(target=self._reporter.report)
        self._thread.start()

    def _deliver(self, made: reports.Report) -> None:
        now_s = time.monotonic()
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def tc_batch(tree: model.Tree) -> str:
    """Commands that make the same tree."""
    lines = ['qdisc add dev uplink0 root handle 1: htb default 2 r2q 1984']
    for item in tree.values():
        parent = f'1:{item.parent:x}' if item.parent else '1:'
        lines.append(
            f'class add dev uplink0 parent {parent} classid 1:{item.minor:x} '
            f'htb rate {item.rate_bps}bit ceil {item.ceil_bps}bit '
            f'prio {item.prio} quantum {item.quantum_bytes}')
    lines += [f'qdisc add dev uplink0 parent 1:{item.minor:x} handle '
              f'{item.minor:x}: tbf rate 8000gbit burst {item.packet_bytes} '
              f'limit {item.limit_bytes}'
              for item in tree.values() if item.limit_bytes]
    return '\n'.join(lines) + '\n'


def run_batch(commands: str) -> None:
    subprocess.run(['tc', '-batch', '-'], input=commands.encode(), check=True)


def run_many(classes: int, repeat: int) -> list[dict[str, object]]:
    """Documents with so many classes: coflows with one destination each."""
    bench = Bench()
    before = policy(classes // 2, 0, 1.2e6)
    document = before.to_dict()

    def apply(given: object) -> None:
        bench.apply(edge_policy.EdgePolicy.from_dict(given))

    def changed(index: int) -> dict[str, object]:
        changed = json.loads(json.dumps(document))
        for coflow in changed['classes'][::10]:
            for item in (coflow, *coflow['destinations']):
                item['rate_bps'] = 1.2e6 + 8e3 * (1 + index)
        return changed

    bench.enforcer.policy = before
    tree = bench.enforcer.desired_tree()
    commands = tc_batch(tree)
    bench.timed(f'tc -batch, {len(tree):,} classes of the kernel', 1,
                lambda index: commands, run_batch)
    bench.enforcer.uplink.delete_root()
    bench.enforcer = bench.fresh()
    with tempfile.TemporaryDirectory() as directory:
        reports = Reports(bench.enforcer, directory)
        bench.timed(f'{classes:,} classes from empty', 1,
                    lambda index: document, apply)
        bench.timed(f'{classes // 10:,} of {classes:,} changed', repeat,
                    changed, apply)
        reports.close()
    bench.rows.append({
        'what': 'longest time between two reports, asked for 250',
        'best_ms': round(reports.longest_s * 1e3, 1),
        'median_ms': '', 'cpu_ms': ''})
    bench.enforcer.cleanup()
    return bench.rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--repeat', type=int, default=7)
    parser.add_argument('--classes', type=int,
                        help='so many instead of all that')
    parser.add_argument('--json', action='store_true')
    arguments = parser.parse_args()
    enter_own_namespace()
    if arguments.classes:
        rows = run_many(arguments.classes, arguments.repeat)
    else:
        bench = Bench()
        bench.run(arguments.repeat)
        bench.enforcer.cleanup()
        rows = bench.rows
    if arguments.json:
        print(json.dumps(rows))
        return
    print(f'{"":48} {"best":>8} {"median":>8} {"CPU":>8}  (ms)')
    for row in rows:
        print(f'{row["what"]:48} {row["best_ms"]:>8} '
              f'{row["median_ms"]:>8} {row["cpu_ms"]:>8}')


if __name__ == '__main__':
    main()
