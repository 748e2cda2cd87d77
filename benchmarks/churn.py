# SPDX-License-Identifier: Apache-2.0

"""What grows in a controller while groups come and go.

``python -m benchmarks.churn [--minutes 60] [--plot FILE.svg] [--json]`` starts
a controller process and, as Nova and edge modules do, launches groups of four
VMs, builds them, reports their bytes until their coflow is done, and deletes
them: ``GROUPS`` at a time on ``HOSTS`` hosts, without a pause. Each sample is
taken between two rounds, when no VM is left: resident memory, descriptors,
threads, and the rows of all tables, of which retired groups are kept for
``KEPT_S``.

``neutral`` counts VMs without a plan. ``grown`` compares the mean of the last
fifth of the samples with that of the second: 1.0 is no growth. ``--plot``
draws all of them over the groups.
"""

import argparse
import collections
import json
import pathlib
import statistics
import sys
import tempfile
import time
from typing import Any

import psutil
import sqlalchemy as sa

from tests.functional.controller import harness
from virtco.db import models

GROUPS, HOSTS, VMS = 8, 16, 4
SIZE_BYTES = 2e9
KEPT_S = 60
#: As the product has them, unlike in the harness; but old rows go sooner.
CONSTANTS = {'virtco.state.state.FLUSH_S': 1.0,
             'virtco.follow.follow.REAP_S': 5.0,
             'virtco.follow.follow.PURGE_EVERY': 4}
FIGURES = ('rss_mb', 'descriptors', 'threads', 'rows')


class Cloud:
    """Nova and the edge modules, as far as the controller sees them."""

    def __init__(self, controller: Any):
        self.n_neutral = 0
        self._tenant = controller.tenant()
        self._edges = {host: harness.Edge(self._tenant, host, link_bps=1e9)
                       for host in (f'h{n}' for n in range(HOSTS))}
        self._report()

    def _report(self) -> None:
        for edge in self._edges.values():
            edge.report()

    def _launch(self, vm: int) -> str | None:
        """The host on which it is built; None without a plan."""
        body = harness.placement(
            vm, f'g{vm // VMS}', slots=GROUPS * VMS, launch_index=vm % VMS,
            num_instances=VMS, project_id=self._tenant.project,
            hosts={self._tenant.host(host): GROUPS * VMS
                   for host in self._edges})
        answer = self._tenant.call(
            'PUT', f'/v1/placements/{self._tenant.instance(vm)}', body)
        if answer['status'] != 'planned':
            # A busy machine; Nova would place it.
            self.n_neutral += 1
            return None
        host: str = self._tenant.name(answer['host'])
        self._tenant.notify('instance.create.end', vm, host=host)
        return host

    def round(self, number: int) -> None:
        """Launch groups, let their coflows end, and delete them."""
        first = number * GROUPS * VMS
        at: dict[int, str] = {}
        for vm in range(first, first + GROUPS * VMS):
            host = self._launch(vm)
            if host is not None:
                at[vm] = host
                self._edges[host].vms.append(vm)
        self._report()
        for coflow in self._tenant.coflows(state='planned'):
            for host in coflow['hosts']:
                self._edges[host].wait_class(coflow['id'])
                self._edges[host].count(coflow['id'], SIZE_BYTES)
        self._report()
        harness.wait_for(lambda: not self._tenant.coflows(state='active'),
                         'the end of the coflows')
        for instance, host in at.items():
            self._tenant.notify('instance.delete.end', instance, host=host)
        for edge in self._edges.values():
            edge.vms.clear()
            edge.sent.clear()
        self._report()


def sample(controller: Any, engine: sa.Engine) -> dict[str, float]:
    process = psutil.Process(controller.process.pid)
    with engine.connect() as connection:
        rows = {table.name: connection.scalar(
            sa.select(sa.func.count()).select_from(table)) or 0
            for table in models.Base.metadata.sorted_tables}
    return {'rss_mb': process.memory_info().rss / 2 ** 20,
            'descriptors': process.num_fds(),
            'threads': process.num_threads(), 'rows': sum(rows.values()),
            **{f'rows of {name}': n for name, n in rows.items()}}


def grown(values: list[float]) -> float:
    """Mean of the last fifth over that of the second fifth."""
    fifth = max(1, len(values) // 5)
    return statistics.mean(values[-fifth:]) / max(
        1e-9, statistics.mean(values[fifth:2 * fifth]))


def measure(minutes: float) -> list[dict[str, float]]:
    found = []
    with tempfile.TemporaryDirectory() as home, harness.running(
            home, {'controller': {'keep_retired_s': KEPT_S}}, is_exec=True,
            constants=CONSTANTS) as controller:
        engine = sa.create_engine(f'sqlite:///{controller.database}')
        cloud = Cloud(controller)
        until_s = time.monotonic() + 60 * minutes
        number = 0
        while time.monotonic() < until_s:
            cloud.round(number)
            number += 1
            found.append(sample(controller, engine) | {
                'groups': number * GROUPS, 'neutral': cloud.n_neutral})
        engine.dispose()
    return found


def plot(found: list[dict[str, float]], path: pathlib.Path) -> None:
    from matplotlib import figure
    drawing = figure.Figure((7, 6), layout='constrained')
    for axes, name in zip(drawing.subplots(len(FIGURES), sharex=True),
                          FIGURES):
        axes.plot([one['groups'] for one in found],
                  [one[name] for one in found])
        axes.set(ylabel=name.replace('_', ' '), ylim=(0, None))
    axes.set_xlabel('groups launched and deleted')
    drawing.savefig(path)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks.churn', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--minutes', type=float, default=60)
    parser.add_argument('--plot', type=pathlib.Path, metavar='FILE')
    parser.add_argument('--json', action='store_true')
    args = parser.parse_args()
    found = measure(args.minutes)
    by_name = collections.defaultdict(list)
    for one in found:
        for name, value in one.items():
            by_name[name].append(value)
    result = {'minutes': args.minutes, 'groups': found[-1]['groups'],
              'samples': len(found), 'neutral': found[-1]['neutral'], **{
                  name: {'last': values[-1], 'grown': round(grown(values), 3)}
                  for name, values in by_name.items()
                  if name not in ('groups', 'neutral') and any(values)}}
    print(json.dumps(result, indent=None if args.json else 1))
    if args.plot:
        plot(found, args.plot)
    return 0


if __name__ == '__main__':
    sys.exit(main())
