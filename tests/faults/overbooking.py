# SPDX-License-Identifier: Apache-2.0

"""Launches by parallel schedulers never book more than a host has.

As a program it prints what happened::

    python -m tests.faults.overbooking --database mariadb --launches 2000
"""

import argparse
import collections
import contextlib
import dataclasses
import pathlib
import sys
import tempfile
import time

from tests import databases as real_databases
from tests.faults import history
from tests.faults import nova as fake_nova
from tests.functional.controller import harness

OPTIONS = {
    'controller': {'db_timeout_s': 20},
    'placement': {'deadline_s': 50, 'budget_s': 0.05},
}


@dataclasses.dataclass
class Outcome:
    """:ivar overbooked: commits by which we put more onto a host than it has.
    :ivar novas: commits by which Nova did: it built a VM on an alternate host
        before it told that another one had left.
    :ivar wrong: instances whose host or state is not Nova's at the end.
    """

    counts: collections.Counter
    slowest_s: float
    n_commits: int
    overbooked: list
    novas: list
    wrong: dict
    n_living_groups_without_members: int
    took_s: float


def run(kind, databases, home, n_launches, n_schedulers=8, seed=0,
        n_hosts=12, slots=6):
    """A controller process on a database of that kind, and the launches."""
    connection = databases.make_current(kind, home)
    history.record(connection)
    options = OPTIONS | {'database': {'connection': connection}}
    capacities = {f'h{i}': slots for i in range(n_hosts)}
    started_s = time.monotonic()
    with harness.running(home, options) as controller, contextlib.closing(
            fake_nova.Nova(controller.url, capacities, seed)) as nova:
        fake_nova.drive(nova, n_launches, n_schedulers, seed)
        nova.settle()
        changes = history.read(connection)
        final = history.final(changes)
        expected = {vm: (host, 'running')
                    for vm, host in nova.claims.items()}
        wrong = {vm: (final.get(vm), expected.get(vm))
                 for vm in final.keys() | expected.keys()
                 if final.get(vm) != expected.get(vm)
                 # Nova never asked us for a place in a full cloud.
                 and vm in final}
        found = history.overbooked(changes, capacities)
        return Outcome(
            nova.counts, nova.slowest_s,
            len({change.generation for change in changes}),
            [one for one in found if not one.is_novas],
            [one for one in found if one.is_novas], wrong,
            history.count_empty_groups(connection),
            time.monotonic() - started_s)


def show(outcome):
    for name, count in sorted(outcome.counts.items()):
        print(f'{count:7d} {name}')
    print(f'{outcome.n_commits:7d} commits, {outcome.took_s:.0f} s; the '
          f'slowest answer took {outcome.slowest_s:.2f} s')
    print(f'{len(outcome.novas):7d} hosts that Nova filled above what was '
          'reserved')
    print(f'{len(outcome.overbooked):7d} over-booked commits')
    for found in outcome.overbooked[:10]:
        print(f'        {found}')
    print(f'{len(outcome.wrong):7d} instances that are elsewhere in Nova')
    print(f'{outcome.n_living_groups_without_members:7d} living groups '
          'without VMs')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--database', choices=real_databases.KINDS,
                        default='sqlite')
    parser.add_argument('--launches', type=int, default=2000)
    parser.add_argument('--schedulers', type=int, default=8)
    parser.add_argument('--seed', type=int, default=0)
    parsed = parser.parse_args()
    databases = real_databases.Databases()
    with tempfile.TemporaryDirectory() as home:
        try:
            outcome = run(parsed.database, databases, pathlib.Path(home),
                          parsed.launches, parsed.schedulers, parsed.seed)
        finally:
            databases.stop()
    show(outcome)
    return 1 if outcome.overbooked or outcome.wrong else 0


if __name__ == '__main__':
    sys.exit(main())
