# SPDX-License-Identifier: Apache-2.0

"""Whatever comes in whatever order: what the database and the hosts are told.

Launches by turns, builds, failures, moves, shelving and deletions; the bus
delivers late, twice and in any order; reports come late; the controller is
killed or restarted, and the machine's clock is set.
"""

import collections
import itertools
import os
import pathlib
import tempfile
import uuid

import hypothesis
from hypothesis import stateful
from hypothesis import strategies as st
import pytest

from tests import databases as real_databases
from tests.faults import history
from tests.faults import world as worlds
from virtco.solver import budget

FULL = os.environ.get('VIRTCO_FAULTS') == 'full'
KINDS = real_databases.KINDS if FULL else ('sqlite',)
N_EXAMPLES = 100 if FULL else 10
N_STEPS = 60 if FULL else 40

number = st.integers(0, 99)
host = st.sampled_from(worlds.HOSTS)


class Story(stateful.RuleBasedStateMachine):
    """:cvar make: of an empty database's URL.
    :cvar ids: numbers of the ids that are made.
    """

    make, ids = None, itertools.count()
    injected, statuses = collections.Counter(), collections.Counter()

    def __init__(self):
        super().__init__()
        Story.ids = itertools.count(1)
        self._home = tempfile.TemporaryDirectory()
        connection = type(self).make(pathlib.Path(self._home.name))
        history.record(connection)
        self.world = worlds.World(connection, pathlib.Path(self._home.name))

    def teardown(self):
        try:
            world = self.world
            world.settle()
            world.check_members()
            assert world.overbooked() == []
            world.check_recovery()
            world.check_bytes()
            self.injected.update(world.injected)
            self.statuses.update(world.statuses)
        finally:
            self.world.close()
            self._home.cleanup()

    # What tenants and Nova do.

    @stateful.rule(n_vms=st.integers(1, 4), n_launched=st.integers(1, 4),
                   n_built=st.integers(0, 4))
    def group(self, n_vms, n_launched, n_built):
        name = self.world.new_group(n_vms)
        for _ in range(min(n_launched, n_vms)):
            self.world.launch_next(name, 0)
        for vm in self.world.building()[:n_built]:
            self.world.built(vm)

    @stateful.rule(n_vms=st.integers(2, 3), order=st.randoms())
    def group_that_sends(self, n_vms, order):
        name = self.world.new_group(n_vms, is_apart=True)
        for _ in range(n_vms):
            self.world.launch_next(name, 0)
        for vm in self.world.building():
            self.world.built(vm)
        while self.world.messages:
            self.world.deliver(order.randrange(100), False)
        self.world.send_all(10 ** 6)
        self.world.send_all(10 ** 6)

    @stateful.precondition(lambda self: self.world.unfinished())
    @stateful.rule(pick=number, skips=st.sampled_from([0, 0, 0, 1]))
    def sibling(self, pick, skips):
        self.world.launch_next(_one(self.world.unfinished(), pick), skips)

    @stateful.precondition(lambda self: self.world.building())
    @stateful.rule(pick=number, fails=st.sampled_from([False] * 4 + [True]))
    def build(self, pick, fails):
        end = self.world.failed if fails else self.world.built
        end(_one(self.world.building(), pick))

    @stateful.precondition(lambda self: self.world.running())
    @stateful.rule(pick=number, to=host)
    def move(self, pick, to):
        self.world.moved(_one(self.world.running(), pick), to)

    @stateful.precondition(lambda self: self.world.running())
    @stateful.rule(pick=number)
    def shelve(self, pick):
        self.world.shelved(_one(self.world.running(), pick))

    @stateful.precondition(lambda self: self.world.shelf())
    @stateful.rule(pick=number, to=host)
    def unshelve(self, pick, to):
        self.world.unshelved(_one(self.world.shelf(), pick), to)

    @stateful.precondition(lambda self: self.world.running())
    @stateful.rule(pick=number)
    def delete(self, pick):
        self.world.deleted(_one(self.world.running(), pick))

    @stateful.rule()
    def numbers(self):
        self.world.catch_up()

    # What comes to the controller.

    @stateful.precondition(lambda self: self.world.messages)
    @stateful.rule(picks=st.lists(st.tuples(number, st.booleans()),
                                  min_size=1, max_size=4))
    def deliver(self, picks):
        for pick, twice in picks:
            if self.world.messages:
                self.world.deliver(pick, twice)

    @stateful.rule(name=host, n_bytes=st.sampled_from([0, 10 ** 6, 10 ** 7]),
                   comes=st.sampled_from([True, True, False]))
    def report(self, name, n_bytes, comes):
        self.world.edge(name).send(n_bytes)
        (self.world.edge(name).report if comes
         else self.world.edge(name).keep)()

    @stateful.precondition(lambda self: self.world.late())
    @stateful.rule(pick=number)
    def report_late(self, pick):
        _one(self.world.late(), pick).report_late()

    @stateful.rule(seconds=st.sampled_from([0.1, 1.0, 20.0]))
    def wait(self, seconds):
        self.world.wait(seconds)
        # No slower than a compute service is.
        if seconds > 10:
            self.world.catch_up()

    # What it does by itself, and what happens to it.

    @stateful.rule(turn=st.sampled_from(['compute', 'flush', 'reap']))
    def turn(self, turn):
        getattr(self.world, turn)()

    @stateful.rule(fault=st.sampled_from([
        worlds.World.kill, worlds.World.restart,
        lambda world: world.step_clock(3600),
        lambda world: world.step_clock(-3600)]))
    def fault(self, fault):
        fault(self.world)


def _one(found, pick):
    return found[pick % len(found)]


@pytest.mark.parametrize('kind', KINDS)
def test_whatever_comes_in_whatever_order(kind, databases, monkeypatch):
    # Neither time that a busy machine takes away nor ids, by which ties are
    # decided, may change a story that is told again.
    monkeypatch.setattr(budget, 'clock_of', lambda _: budget.Counter())
    monkeypatch.setattr(uuid, 'uuid4',
                        lambda: uuid.UUID(int=next(Story.ids) << 96,
                                          version=4))

    class Here(Story):
        make = staticmethod(
            lambda home: databases.make_current(kind, home))
        injected, statuses = collections.Counter(), collections.Counter()

    stateful.run_state_machine_as_test(Here, settings=hypothesis.settings(
        max_examples=N_EXAMPLES, stateful_step_count=N_STEPS, deadline=None,
        database=None, derandomize=not FULL, print_blob=True,
        # A shorter story takes minutes to find; VIRTCO_SHRINK=1 does.
        phases=[hypothesis.Phase.generate]
        + [hypothesis.Phase.shrink] * bool(os.environ.get('VIRTCO_SHRINK')),
        suppress_health_check=list(hypothesis.HealthCheck)))
    print(f'injected: {dict(Here.injected)}; answers: {dict(Here.statuses)}')
    assert Here.statuses['planned'] > 0
