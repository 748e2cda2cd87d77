# SPDX-License-Identifier: Apache-2.0

"""Launches by parallel schedulers never book more than a host has."""

import collections
import contextlib
import dataclasses
import time

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
        n_hosts=12, vcpus=16, flavors=(1, 2, 4), unhinted=0.0,
        fullness=0.8):
    """A controller process on a database of that kind, and the launches.

    :param vcpus: of each host.
    :param flavors: vCPUs that a VM may have.
    :param fullness: share of the cloud in use.
    :param unhinted: share of the launches without a hint.
    """
    connection = databases.make_current(kind, home)
    history.record(connection)
    options = OPTIONS | {'database': {'connection': connection}}
    capacities = {f'h{i}': vcpus for i in range(n_hosts)}
    started_s = time.monotonic()
    with harness.running(home, options) as controller, contextlib.closing(
            fake_nova.Nova(controller.url, capacities, seed, flavors=flavors,
                           unhinted=unhinted)) as nova:
        fake_nova.drive(nova, n_launches, n_schedulers, seed,
                        fullness=fullness)
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
