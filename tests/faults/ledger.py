# SPDX-License-Identifier: Apache-2.0

"""A state machine of launches against the truth of Nova's side.

Two schedulers ask two controllers over one database. Each scheduler reads the
numbers of the compute services, which come late, and goes on with what it
read. Placement's claims are exact. No answer books a host above its capacity,
less the VMs of others that the controller was told of.
"""

import contextlib
import dataclasses
import random
from unittest import mock

import hypothesis
from hypothesis import stateful
from hypothesis import strategies as st

from tests.unit.place import asking
from virtco.db import models
from virtco.follow import notifications
from virtco.follow import transitions
from virtco.model import booking
from virtco.model import states
from virtco.solver import budget as budgets
from virtco.solver import planner
from virtco.solver import together

HOSTS = {'h0': (8.0, 40.0, 80.0), 'h1': (6.0, 80.0, 40.0),
         'h2': (10.0, 30.0, 90.0)}
#: vCPUs, MB of memory, GB of disk: another resource limits each of them.
FLAVORS = [(1.0, 1.0, 1.0), (4.0, 5.0, 6.0), (6.0, 3.0, 2.0),
           (1.0, 13.0, 5.0), (2.0, 2.0, 21.0)]
SCHEDULERS = 2
#: A failure is not made smaller: planners heed the time, so it may not repeat.
SETTINGS = hypothesis.settings(
    max_examples=60, stateful_step_count=25, deadline=None,
    phases=(hypothesis.Phase.generate,),
    suppress_health_check=list(hypothesis.HealthCheck))


@dataclasses.dataclass
class Vm:
    """A server in Nova.

    :ivar hosts: where Placement holds room for it: host -> demand.
    :ivar counted: by compute services, likewise.
    :ivar shown: by the numbers in Nova's database.
    :ivar target: the host beside the one of its row that it was answered, or
        that told of its build.
    :ivar is_told: a notification told the controller where it is.
    """

    uuid: str
    demand: tuple
    group: str | None = None
    hosts: dict = dataclasses.field(default_factory=dict)
    shown: dict = dataclasses.field(default_factory=dict)
    target: str | None = None
    is_built: bool = False
    is_told: bool = False


def add(a, b):
    return tuple(x + y for x, y in zip(a, b, strict=True))


def place_anywhere(rng, problems):
    """Place groups again where there is room, whether it pays or not."""
    joined = together.join(problems)
    plan = planner.plan(joined, budget_s=0.01)
    names = [host.name for host in joined.hosts]
    for _attempt in range(20):
        hosts = tuple(vm.pinned or rng.choice(names) for vm in joined.vms)
        if fits(joined, hosts):
            return together._parts(
                problems, dataclasses.replace(plan, hosts=hosts),
                budgets.Budget(budgets.Counter(), 1.0))
    return None


def fits(problem, hosts):
    left = {host.name: host.free for host in problem.hosts}
    for vm, host in zip(problem.vms, hosts):
        if not vm.counted:
            left[host] = tuple(
                have - need for have, need in zip(left[host], vm.demand))
    return min(map(min, left.values())) >= 0 and all(
        host in (vm.allowed or hosts)
        for vm, host in zip(problem.vms, hosts))


class Launches(stateful.RuleBasedStateMachine):
    """On SQLite in memory."""

    def make_database(self):
        return None

    def __init__(self):
        super().__init__()
        # However slow the machine is, who was overtaken tries once more.
        placement = {'deadline_s': 60.0}
        first = asking.Asking(self.make_database(), placement=placement)
        self.database = first.database
        self.controllers = [first, asking.Asking(
            self.database, placement=placement)]
        self.vms = {}
        self.n_made = 0
        self.n_groups = 0
        self.groups = {}
        # What each scheduler read: host -> free.
        self.read = [dict(HOSTS) for _ in range(SCHEDULERS)]
        self.nested = None
        self.moved = []
        for controller in self.controllers:
            self._open(controller)

    def teardown(self):
        self.database.dispose()

    def _open(self, controller):
        """Let another question be answered while one is planned."""
        planning = controller.placer._planning
        solution = planning.solution

        def interleaved(*args):
            found = solution(*args)
            self._meanwhile()
            return found
        planning.solution = interleaved

    def _meanwhile(self):
        nested, self.nested = self.nested, None
        if nested is not None:
            nested()

    # Nova.

    def used(self, host):
        total = (0.0,) * 3
        for vm in self.vms.values():
            if host in vm.hosts:
                total = add(total, vm.hosts[host])
        return total

    def claim(self, vm, host, demand=None):
        demand = demand or vm.demand
        fits = all(used + need <= most + 1e-9 for used, need, most in zip(
            self.used(host), demand, HOSTS[host]))
        if fits:
            vm.hosts[host] = add(vm.hosts.get(host, (0.0,) * 3), demand)
        return fits

    def make(self, demand, group=None):
        self.n_made += 1
        vm = Vm(f'vm-{self.n_made}', demand, group)
        self.vms[vm.uuid] = vm
        return vm

    def tell(self, vm, host):
        vm.is_told, vm.target = True, None
        self._tell(notifications.Built, vm, host)

    def tell_of_begin(self, vm, host):
        vm.is_told = vm.group is None
        if vm.group is not None:
            vm.target = host
        self._tell(notifications.Begun, vm, host)

    def _tell(self, kind, vm, host):
        for _twice in (1, 2):
            self._apply(kind(vm.uuid, host, tuple(zip(
                ('vcpus', 'memory_mb', 'disk_gb'), vm.demand))))

    def _apply(self, change):
        self.transitions().apply(change)

    def transitions(self):
        return transitions.Transitions(self.database,
                                       self.controllers[0].clock)

    def ask(self, number, vm, hosts, index=None, n_rows=1, n_vms=1):
        """Ask one controller; its host, or any other, is claimed."""
        if not hosts:
            return None
        request = asking.request(
            matrix={'n': n_rows, 'flows': [
                [i, (i + 1) % n_rows, 1e9] for i in range(n_rows)
            ] if n_rows > 1 else []}, flavor=vm.demand,
            hosts={host: tuple(max(0.0, value) for value in free)
                   for host, free in hosts.items()},
            hints={'virtco:coflow': vm.group}, instance_uuid=vm.uuid,
            launch_index=index or 0, num_instances=n_vms,
            reservation_id=vm.group)
        with self.none_is_overbooked():
            return self.controllers[number].placer.place(
                request, asking.deadlines.Deadline(60))

    @contextlib.contextmanager
    def none_is_overbooked(self):
        before = self.booked()
        yield
        for host, booked in self.booked().items():
            assert booked == before[host] or all(
                have <= most + booking.ROUNDING or have <= had for
                have, most, had in zip(booked, HOSTS[host], before[host])
            ), (host, before[host], booked)

    # What happens.

    @stateful.rule(number=st.integers(0, SCHEDULERS - 1))
    def read_numbers(self, number):
        free = {}
        for host, most in HOSTS.items():
            shown = (0.0,) * 3
            for vm in self.vms.values():
                if host in vm.shown:
                    shown = add(shown, vm.shown[host])
            free[host] = tuple(m - s for m, s in zip(most, shown))
        self.read[number] = free

    @stateful.rule(which=st.lists(st.integers(0, 30), max_size=8))
    def numbers_come(self, which):
        """Some compute services write what they know of some VMs."""
        vms = list(self.vms.values())
        for one in which:
            if one < len(vms):
                vms[one].shown = dict(vms[one].hosts)

    @stateful.rule(seconds=st.sampled_from([1.0, 20.0, 61.0]))
    def time_passes(self, seconds):
        """After a minute the numbers are right, and have been read; those of
        VMs without a group are soon after the notification.
        """
        for controller in self.controllers:
            controller.now_s += seconds
        for vm in self.vms.values():
            if seconds > booking.SETTLED_S or (
                    vm.group is None and seconds > booking.NUMBERS_S):
                vm.shown = dict(vm.hosts)
        for number in range(SCHEDULERS):
            self.read_numbers(number)
        self.transitions().expire()

    def launch_now(self, number, flavors, asked, fails, batch):
        self.n_groups += 1
        name = f'g{self.n_groups}'
        n_rows, free = len(flavors), dict(self.read[number])
        flavors = flavors[:1] * n_rows if batch else flavors
        for index in range(min(asked, n_rows)):
            vm = self.make(flavors[index], name)
            self._launch(number, vm, free, index, n_rows,
                         n_rows if batch else 1, fails and index == asked - 1)
        self.groups[name] = (n_rows, number)

    def _launch(self, number, vm, free, index, n_rows, n_vms, fails,
                is_again=False):
        answer = self.ask(number, vm, {
            host: left for host, left in free.items()
            if all(u + d <= m for u, d, m in zip(
                self.used(host), vm.demand, HOSTS[host]))},
            index, n_rows, n_vms)
        order = [] if answer is None else [one.host for one in answer.hosts]
        first = next((host for host in order if self.claim(vm, host)), None)
        if first is None or fails:
            del self.vms[vm.uuid]
            self._apply(notifications.Gone(vm.uuid, 'no valid host'))
            return
        if answer.status != 'planned':
            vm.group = None
        elif is_again and first == answer.host:
            vm.target = first
        free[first] = tuple(
            left - need for left, need in zip(free[first], vm.demand))

    @stateful.rule(number=st.integers(0, SCHEDULERS - 1),
                   flavors=st.lists(st.sampled_from(FLAVORS), min_size=1,
                                    max_size=4),
                   asked=st.integers(1, 4), fails=st.booleans(),
                   batch=st.booleans(),
                   meanwhile=st.none() | st.tuples(
                       st.lists(st.sampled_from(FLAVORS), min_size=1,
                                max_size=3), st.booleans()))
    def launch(self, number, flavors, asked, fails, batch, meanwhile):
        """Of some rows only; another scheduler launches meanwhile."""
        if meanwhile is not None:
            self.nested = lambda: self.launch_now(
                1 - number, meanwhile[0], len(meanwhile[0]), False,
                meanwhile[1])
        self.launch_now(number, flavors, asked, fails, batch)
        self.nested = None

    @stateful.rule(number=st.integers(0, SCHEDULERS - 1),
                   flavors=st.lists(st.sampled_from(FLAVORS), min_size=2,
                                    max_size=4),
                   seed=st.integers(0, 1000),
                   meanwhile=st.none() | st.lists(
                       st.sampled_from(FLAVORS), min_size=1, max_size=3))
    def plan_again(self, number, flavors, seed, meanwhile):
        """Of a group with one VM yet, and others; another scheduler launches
        meanwhile.
        """
        self.launch_now(number, flavors, 1, False, False)
        if meanwhile is not None:
            self.nested = lambda: self.launch_now(
                1 - number, meanwhile, len(meanwhile), False, False)

        def again(problems, _hosts, **_options):
            parts = place_anywhere(random.Random(seed), problems)
            self._meanwhile()
            return parts

        with self.none_is_overbooked(), mock.patch.object(
                together, 'again', again):
            self.moved += self.controllers[number].placer.replanning.turn()
        self.nested = None

    @stateful.rule(which=st.integers(0, 20), flavor=st.sampled_from(FLAVORS),
                   number=st.integers(0, SCHEDULERS - 1))
    def join(self, which, flavor, number):
        """One more VM of a group, of a flavor of its own."""
        if self.groups:
            name = sorted(self.groups)[which % len(self.groups)]
            self._launch(number, self.make(flavor, name),
                         dict(self.read[number]), 0, self.groups[name][0], 1,
                         False)

    @stateful.rule(which=st.integers(0, 20))
    def build(self, which):
        waiting = [vm for vm in self.vms.values() if not vm.is_built]
        if waiting:
            vm = waiting[which % len(waiting)]
            vm.is_built = True
            if vm.group is not None or which % 2:
                self.tell(vm, min(vm.hosts))

    @stateful.rule(which=st.integers(0, 20))
    def retry(self, which):
        """A build failed on its host: Nova asks for another one."""
        waiting = [vm for vm in self.vms.values()
                   if vm.group is not None and not vm.is_built]
        if not waiting:
            return
        vm = waiting[which % len(waiting)]
        (host,) = vm.hosts
        vm.hosts = {}
        offered = dict(self.read[0])
        offered.pop(host)
        self._launch(0, vm, offered, 0, self.groups[vm.group][0], 1, False,
                     True)

    @stateful.rule(which=st.integers(0, 20),
                   host=st.sampled_from(sorted(HOSTS)))
    def build_elsewhere(self, which, host):
        """A build failed on its host: Nova takes another one unasked."""
        waiting = [vm for vm in self.vms.values()
                   if not vm.is_built and host not in vm.hosts]
        if waiting:
            vm = waiting[which % len(waiting)]
            vm.hosts = {}
            if self.claim(vm, host):
                self.tell_of_begin(vm, host)
            else:
                del self.vms[vm.uuid]
                self._apply(notifications.Gone(vm.uuid, 'no valid host'))

    @stateful.rule(which=st.integers(0, 20), flavor=st.sampled_from(FLAVORS))
    def resize(self, which, flavor):
        """Room is taken on both hosts until it is finished."""
        running = [vm for vm in self.vms.values()
                   if vm.group is not None and vm.is_told
                   and len(vm.hosts) == 1]
        if not running:
            return
        vm = running[which % len(running)]
        (source,) = vm.hosts
        old, vm.demand = vm.demand, flavor
        answer = self.ask(0, vm, {
            host: free for host, free in self.read[0].items()
            if host != source}, 0, self.groups[vm.group][0])
        order = [one.host for one in answer.hosts]
        target = next((host for host in order if self.claim(vm, host)), None)
        if target is None:
            vm.demand = old
            self._apply(notifications.Built(vm.uuid, source))
        elif answer.status == 'planned' and target == answer.host:
            vm.target = target

    @stateful.rule(which=st.integers(0, 20))
    def finish_resize(self, which):
        moving = [vm for vm in self.vms.values() if len(vm.hosts) == 2]
        if moving:
            vm = moving[which % len(moving)]
            source, target = vm.hosts
            vm.hosts.pop(source)
            self.tell(vm, target)

    @stateful.rule(host=st.sampled_from(sorted(HOSTS)),
                   flavor=st.sampled_from(FLAVORS), is_told=st.booleans(),
                   begins=st.booleans())
    def launch_unhinted(self, host, flavor, is_told, begins):
        vm = self.make(flavor)
        if not self.claim(vm, host):
            del self.vms[vm.uuid]
            return
        vm.is_built = not begins
        if begins:
            self.tell_of_begin(vm, host)
        elif is_told:
            self.tell(vm, host)

    @stateful.rule(which=st.integers(0, 20))
    def delete(self, which):
        if self.vms:
            uuid = sorted(self.vms)[which % len(self.vms)]
            del self.vms[uuid]
            self._apply(notifications.Gone(uuid))

    # What holds.

    def booked(self):
        """Host -> what rows, VMs on their way and VMs of others take."""
        found = dict.fromkeys(HOSTS, (0.0,) * 3)
        with self.database.reader() as session:
            rows = [row for row in session.query(models.Member)
                    if row.host is not None]
            taken = [(row.host, row.vcpus, row.memory_mb, row.disk_gb)
                     for row in rows]
            of_rows = {row.instance_uuid: row.host for row in rows}
        # Asked for again, it may go back to the host of its row.
        taken += [(vm.target, *vm.demand) for vm in self.vms.values()
                  if vm.target not in (None, of_rows.get(vm.uuid))]
        # One that was asked for again in vain may have a row there.
        taken += [(host, *demand) for vm in self.vms.values()
                  if vm.group is None and vm.is_told
                  for host, demand in vm.hosts.items()
                  if host != of_rows.get(vm.uuid)]
        for host, *demand in taken:
            found[host] = add(found[host], demand)
        return found

    @stateful.invariant()
    def rows_are_where_they_may_be(self):
        with self.database.reader() as session:
            for row in session.query(models.Member):
                assert (row.host is None) == (
                    row.state == states.MemberState.VACANT)
