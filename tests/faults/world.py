# SPDX-License-Identifier: Apache-2.0

"""A small cloud around one controller in this process, and what is recorded.

Nova's placement is exact, the numbers that its schedulers read lag behind, and
its notifications wait on a bus until somebody delivers them. Nothing passes by
itself: time comes from the test, and work is done when the test says so.
"""

import collections
import dataclasses
import datetime
import itertools
import json
import uuid

import msgspec
import sqlalchemy as sa

from tests.faults import history
from virtco import app
from virtco import clock as clocks
from virtco.cmd import controller as controller_cmd
from virtco.db import leader
from virtco.db import models
from virtco.decide import policy_documents
from virtco.model import booking
from virtco.wire import placement as wire
from virtco.wire import reports

SLOTS = 3
HOSTS = ('h0', 'h1', 'h2', 'h3')
LINK_BPS = 1e8
SIZE_BYTES = 10_000_000
TTL_S = 300
CONFIG = '''
[database]
connection = {connection}
[controller]
state_dir = {home}
db_timeout_s = 10
[api]
port = 0
[placement]
deadline_s = 60
budget_s = 0.005
reservation_ttl_s = {ttl_s}
[scheduler]
wire_overhead_fraction = 0
'''


@dataclasses.dataclass
class Vm:
    """As Nova knows it.

    :ivar host: None while it is built nowhere, or shelved.
    :ivar waits_since_s: since when it is neither built nor given up.
    """

    uuid: str
    group: str
    host: str | None
    is_running: bool = False
    waits_since_s: float = 0.0


@dataclasses.dataclass
class Group:
    name: str
    n_vms: int
    vms: list[str] = dataclasses.field(default_factory=list)
    is_apart: bool = False


class World:
    """:ivar messages: notifications that are still to come.
    :ivar injected: what was done to the controller, and how often.
    """

    def __init__(self, connection, home):
        self.wall_s, self.steady_s, self.stepped_s = 1.8e9, 1000.0, 0
        self.vms, self.groups, self.edges = {}, {}, {}
        self.messages, self.injected = [], collections.Counter()
        self.statuses = collections.Counter()
        self.generations, self._departures = {}, []
        #: A VM left, and its notification comes after Nova's numbers count
        #: as right: until then its room counts twice.
        self.is_lost = self.ages_are_unknown = False
        self._numbers = itertools.count(1)
        self._connection = connection
        # What schedulers read as used, per host.
        self.shown = dict.fromkeys(HOSTS, 0)
        config = home / 'virtco.conf'
        config.write_text(CONFIG.format(connection=connection, home=home,
                                        ttl_s=TTL_S))
        self._conf = controller_cmd.make_conf(['--config-file', str(config)])
        self.app = None
        self.start()

    # The controller's process.

    def start(self):
        if self.stepped_s:
            # Who begins now cannot know how old is what was written down: it
            # may take it for older than the lag of Nova's numbers, or for
            # older than a reservation may be.
            self.stepped_s = 0
            self.ages_are_unknown = True
            self.catch_up()
            self.is_lost |= bool(self.messages)
            for vm in self.vms.values():
                vm.waits_since_s -= TTL_S * bool(vm.waits_since_s)
        self.app = self._load()

    def _load(self, epoch=None):
        found = app.App(self._conf, clock=clocks.Clock(
            lambda: self.wall_s, lambda: self.steady_s))
        if epoch is None:
            with found.database.writer() as session:
                seen = leader.current(session)
                epoch = leader.take_over(session, seen, 'test', '')
        found.decide.loop.leads = lambda: True
        options = found.decide.loop.options
        found.decide.loop.options = lambda: dataclasses.replace(
            options(), rate_tolerance_fraction=0.0)
        found._policies.lead(epoch)
        found.state.load()
        found._epoch = epoch
        found.place.load_planner(False)
        found.decide.loop.run_once()
        return found

    def kill(self):
        """Nothing is written down that was not."""
        self.injected['kill'] += 1
        self.close()
        self.start()

    def restart(self):
        """It ends in order."""
        self.injected['restart'] += 1
        self.app.state.flush()
        self.close()
        self.start()

    def close(self):
        self.app.place._pool.shutdown()
        self.app.database.dispose()

    def wait(self, seconds):
        self.wall_s += seconds
        self.steady_s += seconds
        self.is_lost |= any(
            self.steady_s - sent_s > booking.SETTLED_S / 2
            for *_message, sent_s in self.messages)

    def step_clock(self, seconds):
        self.injected[f'clock {seconds:+d} s'] += 1
        self.wall_s += seconds
        self.stepped_s += seconds

    # Nova.

    def used(self, host):
        return sum(vm.host == host for vm in self.vms.values())

    def catch_up(self):
        """Compute services write their numbers."""
        self.shown = {host: self.used(host) for host in HOSTS}

    def new_group(self, n_vms, is_apart=False):
        name = f'g{next(self._numbers)}'
        self.groups[name] = Group(name, n_vms, is_apart=is_apart)
        return name

    def unfinished(self):
        """Groups of which VMs are still to be launched."""
        return sorted(name for name, group in self.groups.items()
                      if len(group.vms) < group.n_vms)

    def launch_next(self, name, skips):
        """The next VM of a group; placement refuses the first ``skips``."""
        group = self.groups[name]
        index, number = len(group.vms), next(self._numbers)
        vm = str(uuid.UUID(int=number))
        offers = [host for host in HOSTS if self.used(host) < SLOTS]
        group.vms.append(vm)
        if not offers:
            self.statuses['no room in Nova'] += 1
            return
        # Of a VM that left, Nova's numbers may tell before its message does;
        # only of a row that is known to be young is that doubted.
        self.is_lost |= self.ages_are_unknown and bool(self.messages)
        body = {
            'project_id': 'p', 'display_name': f'{name}-{index}',
            'reservation_id': name, 'launch_index': index,
            'num_instances': group.n_vms, 'metadata': {},
            'hints': {'virtco:coflow': name, 'virtco:tm': _ring(group.n_vms)},
            'flavor': {'vcpus': 1, 'memory_mb': 512, 'disk_gb': 1},
            'hosts': [{'host': host, 'free': {
                'vcpus': max(0, SLOTS - self.shown[host]),
                'memory_mb': 65536, 'disk_gb': 900}} for host in offers]}
        if group.is_apart:
            body['server_group'] = {
                'policy': 'anti-affinity', 'members': group.vms[:-1],
                'hosts': [self.vms[one].host for one in group.vms
                          if one in self.vms and self.vms[one].host]}
        answer = self.app.place.answer(msgspec.structs.replace(
            msgspec.convert(body, wire.Placement), instance_uuid=vm))
        self.statuses[answer.status] += 1
        assert answer.status in ('planned', 'neutral'), answer
        if answer.status == 'neutral':
            # There was no room that nobody holds; never an error.
            assert 'no valid placement' in answer.why, answer.why
        order = [entry.host for entry in answer.hosts] or offers
        host = order[min(skips, len(order) - 1)]
        if self.used(host) >= SLOTS:
            host = offers[0]
        self.vms[vm] = Vm(vm, name, host, waits_since_s=self.steady_s)

    def building(self):
        return sorted(vm.uuid for vm in self.vms.values()
                      if not vm.is_running and vm.waits_since_s)

    def built(self, uuid_):
        vm = self.vms[uuid_]
        vm.is_running, vm.waits_since_s = True, 0.0
        self._notify('instance.create.end', vm)

    def failed(self, uuid_):
        del self.vms[uuid_]
        self._notify('compute_task.build_instances.error',
                     Vm(uuid_, '', None))

    def running(self):
        return sorted(vm.uuid for vm in self.vms.values() if vm.is_running)

    def _leaves(self, vm):
        """Its room is Nova's to give away from now on."""
        with self.app.database.reader() as session:
            self._departures.append((vm.uuid, vm.host, session.scalar(
                sa.select(models.Cluster.generation))))

    def moved(self, uuid_, host):
        if self.used(host) < SLOTS:
            self._leaves(self.vms[uuid_])
            self.vms[uuid_].host = host
            self._notify('instance.live_migration_post_dest.end',
                         self.vms[uuid_])

    def shelved(self, uuid_):
        vm = self.vms[uuid_]
        self._leaves(vm)
        vm.host, vm.is_running = None, False
        self._notify('instance.shelve_offload.end', vm)

    def shelf(self):
        return sorted(vm.uuid for vm in self.vms.values() if vm.host is None)

    def unshelved(self, uuid_, host):
        if self.used(host) < SLOTS:
            vm = self.vms[uuid_]
            vm.host, vm.is_running = host, True
            self._notify('instance.unshelve.end', vm)

    def deleted(self, uuid_):
        vm = self.vms.pop(uuid_)
        self._leaves(vm)
        self._notify('instance.delete.end', vm)

    def _notify(self, event_type, vm):
        self.wait(0.001)  # No two events of a VM are at the same time.
        at = datetime.datetime.fromtimestamp(1.8e9 + self.steady_s,
                                             datetime.UTC)
        self.messages.append((event_type, {'nova_object.data': {
            'uuid': vm.uuid, 'instance_uuid': vm.uuid, 'host': vm.host}},
            at.isoformat(), self.steady_s))

    def deliver(self, number, keeps):
        """One of the messages, which may come once more."""
        index = number % len(self.messages)
        if index:
            self.injected['notification out of order'] += 1
        message = (self.messages[index] if keeps
                   else self.messages.pop(index))
        self.injected['notification twice'] += keeps
        self.app.follow.notified(*message[:3])

    # Edge modules.

    def edge(self, host):
        return self.edges.setdefault(host, Edge(self, host))

    def send_all(self, n_bytes):
        for host in HOSTS:
            self.edge(host).report()
        self.compute()
        for host in HOSTS:
            self.edge(host).send(n_bytes)
            self.edge(host).keep()
            self.edge(host).send(n_bytes)
            self.edge(host).report()

    def late(self):
        """Those with a report that others may overtake."""
        return [self.edges[host] for host in sorted(self.edges)
                if self.edges[host].late is not None]

    # What the controller does by itself.

    def flush(self):
        self.app.state.flush()

    def reap(self):
        self.app.follow.reap()

    def compute(self):
        self.app.decide.loop.run_once()
        found = self.app.decide.loop.policies
        _no_port_above_capacity(found)
        assert said(found) == said(policy_documents.compute(found.snapshot))
        for host in found.of_host:
            policy = self.app.decide.publisher.get(host)
            before = self.generations.get(host, 0)
            assert policy.generation >= before
            self.generations[host] = policy.generation

    # What holds.

    def check_bytes(self):
        """Nothing that was sent is counted twice."""
        sent = collections.Counter()
        for edge in self.edges.values():
            for (coflow_id, _host), n_bytes in edge.sent.items():
                sent[coflow_id] += n_bytes
        self.app.state.flush()
        # What passes within a host is taken as sent.
        local = history.neighbours(history.read(self._connection))
        with self.app.database.reader() as session:
            for coflow in session.scalars(sa.select(models.Coflow)):
                if coflow.group_id not in local:
                    assert coflow.sent_bytes <= sent[coflow.id] + 1

    def check_recovery(self):
        """Who begins now tells the hosts the same."""
        for _ in range(2):
            for host in HOSTS:
                self.edge(host).report()
            self.compute()
            self.wait(3)  # Longer than a coflow counts as sending.
        self.compute()
        self.app.state.flush()
        other = self._load(self.app._epoch)
        for host in HOSTS:
            self.edge(host).report(other)
        other.decide.loop.run_once()
        try:
            found = differences(said(other.decide.loop.policies),
                                said(self.app.decide.loop.policies))
            assert found == [], found
        finally:
            other.place._pool.shutdown()
            other.database.dispose()

    def settle(self):
        """All messages come at last, whoever listens."""
        while self.messages:
            self.deliver(0, False)
        self.compute()

    def check_members(self):
        """The database has what Nova has, once."""
        with self.app.database.reader() as session:
            rows = _members(session)
        found = collections.Counter(row[0] for row in rows)
        assert not [vm for vm, count in found.items() if count > 1]
        final = {vm: (host, state) for vm, host, state, _group in rows}
        for vm in self.vms.values():
            if vm.uuid not in final:
                continue  # a neutral answer: Nova alone knows it
            host, state = final[vm.uuid]
            if vm.is_running:
                assert (host, state) == (vm.host, 'running'), vm
            elif vm.host is None:
                assert (host, state) == (None, 'vacant'), vm
            elif self.steady_s - vm.waits_since_s < TTL_S:
                assert state == 'reserved', (vm, state)
        assert final.keys() <= self.vms.keys()
        # Each group with a VM lives once, with its coflow.
        alive = {row[3] for row in rows}
        assert len(alive) == len({self.vms[row[0]].group for row in rows})
        with self.app.database.reader() as session:
            assert _coflows(session) == dict.fromkeys(alive, 1)

    def overbooked(self):
        if self.is_lost:
            return []
        changes = history.leaving(history.read(self._connection),
                                  self._departures)
        return [one for one in history.overbooked(
            changes, dict.fromkeys(HOSTS, SLOTS)) if not one.is_novas]


class Edge:
    """One host's edge module: its counters only grow."""

    def __init__(self, world, host):
        self._world, self.host = world, host
        self.sent = collections.Counter()
        self.uplink = 0
        self.late = None

    def send(self, n_bytes):
        """By the classes that the host has."""
        policy = self._world.app.decide.publisher.get(self.host)
        for one in policy.classes if policy is not None else ():
            for destination in one.destinations:
                self.sent[one.coflow_id, destination.host] += n_bytes
                self.uplink += n_bytes

    def make(self):
        world, coflows = self._world, collections.defaultdict(dict)
        world.wait(0.001)
        for (coflow_id, host), n_bytes in self.sent.items():
            coflows[coflow_id][host] = n_bytes
        return msgspec.convert({
            'boot_id': 'b', 'boot_ms': int(world.steady_s * 1000),
            'epoch': 'e', 'applied_generation':
                world.generations.get(self.host, 0),
            'link': {'dev': 'eth0', 'egress_bps': LINK_BPS,
                     'ingress_bps': LINK_BPS},
            'ports': [{'vm': vm.uuid, 'dev': f'tap{vm.uuid[-6:]}',
                       'mac': '02:00:00:00:00:01',
                       'ips': [f'10.0.{int(vm.uuid[-4:], 16) // 256}.'
                               f'{int(vm.uuid[-4:], 16) % 256}']}
                      for vm in sorted(world.vms.values(),
                                       key=lambda vm: vm.uuid)
                      if vm.host == self.host and vm.is_running],
            'coflows': [{'coflow_id': name, 'sent_bytes': sum(
                to.values()), 'drops': 0, 'backlog_bytes': 0,
                'destinations': [{'host': host, 'sent_bytes': n_bytes}
                                 for host, n_bytes in to.items()]}
                for name, to in coflows.items()],
            'uplink_sent_bytes': self.uplink, 'health': 'ok'},
            reports.Report)

    def report(self, to=None):
        (to or self._world.app).state.report(self.host, self.make())

    def keep(self):
        self.late = self.make()

    def report_late(self):
        """One that was made before others came."""
        self._world.injected['report late'] += 1
        self._world.app.state.report(self.host, self.late)


def said(found):
    """What all hosts are told, unnumbered."""
    return {host: json.loads(msgspec.json.encode(unnumbered.policy(1)))
            for host, unnumbered in found.of_host.items()}


def differences(one, other):
    """What hosts are told otherwise: (host, field, of one, of the other)."""
    return [(host, field, one.get(host, {}).get(field),
             other.get(host, {}).get(field))
            for host in sorted(one.keys() | other.keys())
            for field in sorted(one.get(host, {}).keys()
                                | other.get(host, {}).keys())
            if one.get(host, {}).get(field) != other.get(host, {}).get(field)]


def _no_port_above_capacity(found):
    into = collections.Counter()
    for host, unnumbered in found.of_host.items():
        policy = unnumbered.policy(1)
        out_bps = sum(one.rate_bps for one in policy.classes)
        assert out_bps <= LINK_BPS * 1.0001, (host, policy)
        for one in policy.classes:
            for destination in one.destinations:
                into[destination.host] += destination.rate_bps
    least_bps = LINK_BPS * 0.01  # each class's, see snapshot.Options
    for host, in_bps in into.items():
        assert in_bps <= LINK_BPS + least_bps * len(found.snapshot.coflows), (
            host, in_bps)


def _members(session):
    return session.execute(sa.text(
        'SELECT m.instance_uuid, m.host, m.state, m.group_id FROM members m '
        'JOIN groups g ON g.id = m.group_id '
        "WHERE m.instance_uuid IS NOT NULL AND g.live_key = ''")).all()


def _coflows(session):
    return {group: count for group, count in session.execute(sa.text(
        'SELECT c.group_id, count(*) FROM coflows c JOIN groups g ON '
        "g.id = c.group_id WHERE g.live_key = '' GROUP BY c.group_id"))}


def _ring(n_vms):
    flows = ', '.join(f'[{i}, {(i + 1) % n_vms}, {SIZE_BYTES}]'
                      for i in range(n_vms)) if n_vms > 1 else ''
    return f'{{"n": {n_vms}, "flows": [{flows}]}}'
