# SPDX-License-Identifier: Apache-2.0

"""What a cloud costs the controller while nothing is launched.

``python -m benchmarks.steady [--hosts 1000] [--coflows 500] [--seconds 20]
[--profile FILE]`` starts a controller as :mod:`benchmarks.launch` does. Each
host reports once a second what the coflows of its VMs sent since; half of the
VMs send.

``core`` is processor time per second of the process, without what it takes to
make the reports; they are decoded and taken in as from the stream, whose
sockets are not measured (:mod:`benchmarks.distribution` does).
``reports_per_s`` says whether it kept up. ``--profile`` writes what the intake
of reports takes for :mod:`pstats`.
"""

import argparse
import collections
import cProfile
import json
import pathlib
import sys
import tempfile
import time
from typing import Any

import sqlalchemy as sa

from benchmarks import emulated_edges
from benchmarks import launch
from virtco import app
from virtco.db import models
from virtco.wire import frames
from virtco.wire import messages

N_FLOWS = 36
RATE_BYTES_PER_S = 1e5
WARM_S = 3.0


class Hosts:
    """Frames of all hosts' reports, whose counters move on."""

    def __init__(self, controller: app.App, n_hosts: int):
        self._coflows: dict[str, set[str]] = collections.defaultdict(set)
        with controller.database.reader() as session:
            for host, coflow_id in session.execute(sa.select(
                    models.Member.host, models.Coflow.id).join(
                        models.Coflow,
                        models.Coflow.group_id == models.Member.group_id
                    ).where(models.Member.row_index < launch.N_VMS // 2)):
                self._coflows[host].add(coflow_id)
        self._names = launch.names(n_hosts)
        self._n_turns = 0

    def turn(self) -> list[tuple[str, bytes]]:
        self._n_turns += 1
        sent_bytes = self._n_turns * RATE_BYTES_PER_S
        return [(host, emulated_edges.pack('report', report=launch.report(
            dict.fromkeys(sorted(self._coflows[host]), sent_bytes)))[
                frames.HEADER_BYTES:]) for host in self._names]


def take(controller: app.App, turn: list[tuple[str, bytes]]) -> None:
    """Take the reports in, spread over a second."""
    began_s = time.monotonic()
    for number, (host, payload) in enumerate(turn):
        wait_s = began_s + number / len(turn) - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        message = messages.decode(payload)
        assert isinstance(message, messages.Whole)
        controller.state.report(host, message.report)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as home, launch.started(
            pathlib.Path(home), args.hosts, args.coflows, N_FLOWS, 5.0,
            '[distributor]\nport = 0\n') as (controller, _url):
        hosts, profile = Hosts(controller, args.hosts), cProfile.Profile()
        until_s = time.monotonic() + WARM_S
        while time.monotonic() < until_s:
            take(controller, hosts.turn())
        made_s, n_reports = 0.0, 0
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        began_own_s = time.thread_time()
        while time.monotonic() - began_s < args.seconds:
            making_s = time.thread_time()
            turn = hosts.turn()
            made_s += time.thread_time() - making_s
            if args.profile:
                profile.runcall(take, controller, turn)
            else:
                take(controller, turn)
            n_reports += len(turn)
        took_s = time.monotonic() - began_s
        own_s = time.thread_time() - began_own_s - made_s
        cpu_s = time.process_time() - began_cpu_s - made_s
    if args.profile:
        profile.dump_stats(args.profile)
    return {'hosts': args.hosts, 'coflows': args.coflows,
            'reports_per_s': n_reports / took_s, 'core': cpu_s / took_s,
            'intake_core': own_s / took_s}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks.steady', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--hosts', type=int, default=1000)
    parser.add_argument('--coflows', type=int, default=500)
    parser.add_argument('--seconds', type=float, default=20.0)
    parser.add_argument('--profile')
    print(json.dumps(measure(parser.parse_args()), indent=1))
    return 0


if __name__ == '__main__':
    sys.exit(main())
