# SPDX-License-Identifier: Apache-2.0

"""Compares the model with Nova and repairs lost notifications."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import itertools
import logging
import threading

from oslo_config import cfg

from virtco import exception
from virtco import metrics
from virtco.db import groups as db_groups
from virtco.db import session as db_session
from virtco.follow import neutron
from virtco.follow import notifications
from virtco.follow import nova
from virtco.model import states

LOG = logging.getLogger(__name__)

STOP_S = 5.0
#: Time between looks for VMs that were built since the last one.
NEWCOMERS_S = 5.0
#: Looks from one that reads the limits of all VMs' ports to the next such.
LIMITS_LOOKS = 6


Vms = list[db_groups.Believed]
# VMs that differ from Nova, each with the change that makes them agree.
Repairs = list[tuple[db_groups.Believed, notifications.Change]]


class Auditor(threading.Thread):
    """A thread of its own, for which nobody waits.

    :param ports: Neutron, for limits of ports.
    :param apply: makes a change in the model.
    """

    def __init__(self, database: db_session.Database, source: nova.Nova,
                 ports: neutron.Neutron,
                 apply: Callable[[notifications.Change], bool],
                 metrics: metrics.Metrics, interval_s: float):
        super().__init__(name='auditor', daemon=True)
        self._database = database
        self._nova = source
        self._neutron = ports
        self._apply = apply
        self._metrics = metrics
        self._interval_s = interval_s
        self._is_away = False
        # Generation of the last look, and the VMs, with their hosts, that ran.
        self._generation = -1
        self._ran: set[tuple[str, str | None]] = set()
        self._looks = itertools.count(1)
        # None until this look needs them.
        self._policies_bps: Mapping[str, neutron.Limits] | None = None
        self._is_neutron_away = False
        # Projects for which Nova failed.
        self._failed: set[str] = set()
        self._is_ending = threading.Event()

    def stop(self) -> None:
        """Stop, and wait a moment for a request under way."""
        self._is_ending.set()
        self.join(STOP_S)

    def run(self) -> None:
        left_s = 0.0
        while not self._is_ending.is_set():
            is_whole = left_s <= 0.0
            outcome = self._outcome(self.compare if is_whole
                                    else self.compare_limits)
            if is_whole:
                left_s = self._interval_s
            if is_whole or outcome == 'failed':
                self._metrics.comparisons.labels(outcome).inc()
            # A failure is left to the next whole comparison.
            pause_s = (min(left_s, NEWCOMERS_S) if outcome == 'done'
                       else left_s)
            self._is_ending.wait(pause_s)
            left_s -= pause_s

    def _outcome(self, work: Callable[[], int]) -> str:
        """Run a comparison, log its failure, and return how it ended."""
        try:
            work()
        except exception.NovaUnavailable as error:
            if not self._is_away:
                LOG.warning('Nothing is compared with Nova: %s', error)
            self._is_away = True
        except exception.VirtcoException as error:
            LOG.warning('Could not repair by the comparison with Nova: '
                        '%s', error)
        except Exception:
            LOG.exception('Could not compare with Nova.')
        else:
            return 'done'
        return 'failed'

    def compare(self) -> int:
        """Compare with Nova and repair; return the number of servers repaired.

        :raises virtco.exception.NovaUnavailable:
        :raises virtco.exception.DatabaseUnavailable:
        """
        believed, _running, _newcomers = self._look()
        return self._each_project(believed, self._wrong)

    def compare_limits(self) -> int:
        """Read the limits of the ports of VMs that were built or moved since
        the last look, and now and then of all; return the number of VMs with
        other ones.

        :raises virtco.exception.DatabaseUnavailable:
        """
        is_of_all = next(self._looks) % LIMITS_LOOKS == 0
        with self._database.reader() as session:
            if not is_of_all and (
                    db_groups.generation(session) == self._generation):
                return 0
        _believed, running, newcomers = self._look()
        return self._each_project(running if is_of_all else newcomers,
                                  self._otherwise_limited)

    def _look(self) -> tuple[Vms, Vms, Vms]:
        """Return the VMs of the model, by project, those of them that run,
        and those that run where they did not at the last look.
        """
        with self._database.reader() as session:
            self._generation = db_groups.generation(session)
        believed = self._believed()
        runs = {(vm.instance_uuid, vm.host): vm for vm in believed
                if vm.state == states.MemberState.RUNNING}
        newcomers = [vm for key, vm in runs.items() if key not in self._ran]
        self._ran = set(runs)
        return believed, list(runs.values()), newcomers

    def _each_project(self, vms: Vms, wrong: Callable[
            [str, Vms], Repairs]) -> int:
        """Repair differences project by project; return their number.

        Nova may fail for one of them alone: then the others go first.
        """
        n_repaired = 0
        self._policies_bps, self._is_neutron_away = None, False
        by_project = {project_id: list(of_project)
                      for project_id, of_project in itertools.groupby(
                          vms, key=lambda vm: vm.project_id)}
        for project_id in sorted(by_project, key=self._failed.__contains__):
            if self._is_ending.is_set():
                break
            self._failed.add(project_id)
            n_repaired += self._repair(
                wrong(project_id, by_project[project_id]))
            self._failed.discard(project_id)
        return n_repaired

    def _believed(self) -> Vms:
        """Return the VMs of the model, by project."""
        with self._database.reader() as session:
            return db_groups.living_vms(session)

    def _repair(self, wrong: Repairs) -> int:
        """Apply changes that no notification told of; return their number."""
        n_repaired = 0
        for vm, change in wrong:
            # A VM that a notification changed meanwhile, perhaps during the
            # repairs before this one, is newer than Nova's list.
            if self._is_unchanged(vm) and self._apply(change):
                n_repaired += 1
                self._metrics.repairs.labels(type(change).__name__).inc()
                LOG.info('No notification told of this: %s', change)
        return n_repaired

    def _is_unchanged(self, vm: db_groups.Believed) -> bool:
        with self._database.reader() as session:
            member = db_groups.member_of(session, vm.instance_uuid)
        return member is not None and vm[2:] == (
            member.state, member.host, member.addresses,
            member.egress_limit_bps, member.ingress_limit_bps)

    def _wrong(self, project_id: str, vms: Vms) -> Repairs:
        """Return the VMs that differ from Nova, each with its repair.

        A server that the list does not hold is asked for by its uuid: it may
        have begun after its page was read.
        """
        uuids = {vm.instance_uuid for vm in vms}
        listed = {server.uuid: server
                  for server in self._nova.servers(project_id)
                  if server.uuid in uuids}
        if self._is_away:
            LOG.info('Nova answers again.')
            self._is_away = False
        return _changes(vms, lambda vm: (
            listed.get(vm.instance_uuid)
            or self._nova.server(vm.instance_uuid)),
            self._limits_bps(project_id))

    def _otherwise_limited(self, project_id: str, vms: Vms
                           ) -> Repairs:
        """Return the VMs whose ports have other limits in Neutron."""
        return _changes(
            vms, lambda vm: nova.Server(vm.instance_uuid, 'ACTIVE', vm.host),
            self._limits_bps(project_id, [vm.instance_uuid for vm in vms]))

    def _limits_bps(self, project_id: str, only: Sequence[str] = ()
                    ) -> Mapping[str, neutron.Limits] | None:
        """Return the limits of a project's VMs that have any; None while
        Neutron does not tell.
        """
        if self._is_neutron_away:
            return None  # The other projects would wait for it, too.
        try:
            if self._policies_bps is None:
                self._is_neutron_away = True
                self._policies_bps = self._neutron.policies_bps()
                self._is_neutron_away = False
            return self._neutron.limits_bps(self._policies_bps, project_id,
                                            only)
        except exception.NovaUnavailable as error:
            LOG.debug('No limits of ports are known: %s', error)
            return None


def start(conf: cfg.ConfigOpts, database: db_session.Database,
          apply: Callable[[notifications.Change], bool],
          metrics: metrics.Metrics) -> Auditor | None:
    """Start comparing; None without credentials for Nova.

    :raises virtco.exception.Invalid: for credentials that cannot be.
    """
    if not conf.nova.auth_type:
        LOG.info('Nothing is compared with Nova: [nova] auth_type is not '
                 'set.')
        return None
    source = nova.Nova(conf)
    found = Auditor(database, source, neutron.Neutron(conf, source.session),
                    apply, metrics, conf.nova.compare_interval_s)
    found.start()
    return found


def _changes(vms: Vms,
             server_of: Callable[[db_groups.Believed], nova.Server | None],
             limits_bps: Mapping[str, neutron.Limits] | None) -> Repairs:
    """Return the VMs that differ from their servers, each with its repair.

    :param limits_bps: limits of the VMs that have any; None: unknown.
    """
    return [(vm, change) for vm in vms if (change := change_of(
        vm, server_of(vm), () if limits_bps is None
        else limits_bps.get(vm.instance_uuid, neutron.UNLIMITED))) is not None]


def change_of(vm: db_groups.Believed, server: nova.Server | None,
              limits_bps: tuple[float | None, ...] = ()
              ) -> notifications.Change | None:
    """Return the change that makes the model agree with Nova.

    :param server: None when Nova has no such server.
    :param limits_bps: limits of its ports; empty while Neutron does not tell.
    """
    if server is None or server.status in nova.OVER:
        return notifications.Gone(vm.instance_uuid)
    if server.is_changing or server.status in nova.UNDECIDED:
        return None
    runs = vm.state == states.MemberState.RUNNING
    if server.status == 'ERROR' and not (runs and server.host):
        # A VM in ERROR that never ran was not built. One that ran may have
        # failed to migrate, say, and still be there; then its host counts as
        # for any other.
        return notifications.Gone(vm.instance_uuid,
                                  server.fault[:500] or 'in ERROR')
    if server.host is None:
        return (notifications.OffHost(vm.instance_uuid)
                if server.status == 'SHELVED_OFFLOADED' and vm.host else None)
    if server.host != vm.host or not runs or (
            server.addresses
            and ' '.join(server.addresses) != vm.addresses) or (
            limits_bps and limits_bps != (vm.egress_limit_bps,
                                          vm.ingress_limit_bps)):
        return notifications.Built(vm.instance_uuid, server.host,
                                   addresses=server.addresses,
                                   limits_bps=limits_bps)
    return None
