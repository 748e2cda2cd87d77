# SPDX-License-Identifier: Apache-2.0

"""What a cloud costs the controller while nothing is launched.

``python -m benchmarks.steady [--hosts 1000] [--coflows 500] [--seconds 20]``
starts a controller as :mod:`benchmarks.launch` does, and another process that
is the edge modules of all its hosts (:mod:`benchmarks.emulated_edges`). Each
of them tells once a second over its connection how many bytes the coflows of
its VMs sent; half of the VMs send.

``core`` is processor time of the controller per second, with its sockets and
its database, and ``threads`` those of its threads that are there all the time:
``intake`` takes the reports, ``stream`` holds the connections, ``scheduler``
computes the policies. ``reports_per_s`` says whether it kept up.
"""

import argparse
import collections
import json
import pathlib
import sys
import tempfile
import threading
import time
from typing import Any

import psutil
import sqlalchemy as sa

from benchmarks import launch
from benchmarks import launch_edges
from virtco import app
from virtco.db import models
from virtco.wire import reports

N_FLOWS = 36
#: Until the first policies are told and acknowledged.
WARM_S = 10.0


def senders(controller: app.App) -> dict[str, list[str]]:
    """The coflows that each host sends."""
    found = collections.defaultdict(set)
    with controller.database.reader() as session:
        for host, coflow_id in session.execute(sa.select(
                models.Member.host, models.Coflow.id).join(
                    models.Coflow,
                    models.Coflow.group_id == models.Member.group_id
                ).where(models.Member.row_index < launch.N_VMS // 2)):
            found[host].add(coflow_id)
    return {host: sorted(ids) for host, ids in found.items()}


def spent_s() -> dict[str, float]:
    """Processor time of each thread by its name."""
    names = {thread.native_id: thread.name
             for thread in threading.enumerate()}
    return {names[one.id]: one.user_time + one.system_time
            for one in psutil.Process().threads() if one.id in names}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    n_taken = 0

    def taken(_host: str, _report: reports.Report) -> None:
        nonlocal n_taken
        n_taken += 1

    with tempfile.TemporaryDirectory() as name:
        home = pathlib.Path(name)
        coflows = home / 'coflows.json'
        with launch.started(home, args.hosts, args.coflows, N_FLOWS, 5.0,
                            launch_edges.config(args.hosts)
                            ) as (controller, _url):
            coflows.write_text(json.dumps(senders(controller)))
            with launch_edges.connected(controller, args.hosts, '--coflows',
                                        str(coflows)):
                time.sleep(WARM_S)
                controller.state.on_report.append(taken)
                began_s, began_cpu_s = time.monotonic(), time.process_time()
                before_s = spent_s()
                time.sleep(args.seconds)
                took_s = time.monotonic() - began_s
                cpu_s = time.process_time() - began_cpu_s
                after_s = spent_s()
    return {'hosts': args.hosts, 'coflows': args.coflows,
            'reports_per_s': n_taken / took_s, 'core': cpu_s / took_s,
            'threads': {name: (after_s[name] - before_s[name]) / took_s
                        for name in ('intake', 'stream', 'scheduler')}}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks.steady', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--hosts', type=int, default=1000)
    parser.add_argument('--coflows', type=int, default=500)
    parser.add_argument('--seconds', type=float, default=20.0)
    print(json.dumps(measure(parser.parse_args()), indent=1))
    return 0


if __name__ == '__main__':
    sys.exit(main())
