# SPDX-License-Identifier: Apache-2.0

"""Stand-in for Nova that asks the controller as Nova's scheduler would.

Nova needs half a second of processor time per server. This one is used where
only placement and enforcement matter, and hundreds of VMs come and go. It
sends the same requests and notifications, one VM after another, and uses the
host that the controller ranks first.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import uuid

import tenacity

from virtco import exception
from virtco.client import v1
from virtco.wire import notification as notification_wire
from virtco.wire import placement as placement_wire
from virtco_lab.emulation import nova_client

_PROJECT = '6f70656e737461636b20342065766572'
_SLOT_MEMORY_MB = 512
_DISK_GB = 1.0
_HOST_DISK_GB = 1000.0
_NOTIFY_ATTEMPTS = 300


class PlannedCloud:
    """Stand-in for :class:`nova_client.NovaClient`, for one project.

    :param slots: slots of each host, 1 vCPU and 512 MB each.
    :param flavors: name -> slots.
    """

    def __init__(self, controller: v1.Client, hosts: Iterable[str],
                 slots: int, flavors: Mapping[str, int]):
        self._controller = controller
        self._slots_per_host = slots
        self._free = dict.fromkeys(hosts, slots)
        self._flavors = flavors
        self._slots: dict[str, int] = {}

    def create_group(self, name: str, n_vms: int, hints: dict[str, str], *,
                     flavor: str, project: str = _PROJECT
                     ) -> list[nova_client.Server]:
        """Place and start n_vms servers.

        :raises virtco.exception.PlacementInfeasible: when one fits nowhere.
        """
        return self.tell(self.boot(name, [None] * n_vms, flavor), name, hints,
                         project)

    def boot(self, name: str, hosts: Sequence[str | None], flavor: str
             ) -> list[nova_client.Server]:
        """Start a server on each of these hosts, unknown to the controller.

        :param hosts: None is a server that :meth:`tell` places.
        """
        servers = [nova_client.Server(str(uuid.uuid4()), f'{name}-{row}',
                                      'ACTIVE', row, host)
                   for row, host in enumerate(hosts)]
        for server in servers:
            self._slots[server.uuid] = self._flavors[flavor]
            self._take(server)
        return servers

    def _take(self, server: nova_client.Server) -> None:
        if server.host is not None:
            self._free[server.host] -= self._slots[server.uuid]

    def tell(self, servers: Sequence[nova_client.Server], name: str,
             hints: dict[str, str], project: str = _PROJECT
             ) -> list[nova_client.Server]:
        """Ask the controller to place servers; return them with their hosts.

        One that runs already may only be on its own host. All slots of the
        host are offered as free: the controller subtracts its own bookings.

        :raises virtco.exception.PlacementInfeasible: when it does not place
            one of them.
        """
        reservation = uuid.uuid4().hex
        placed = []
        for row, server in enumerate(servers):
            placed.append(dataclasses.replace(server, host=self._ask(
                server, name, row, len(servers), hints, reservation,
                project)))
            if server.host is None:
                self._take(placed[-1])
        for server in placed:
            self._notify('instance.create.end', {
                'uuid': server.uuid, 'host': server.host})
        return placed

    def wait_active(self, servers: Iterable[nova_client.Server],
                    on_count: Callable[[int], object] = lambda count: None
                    ) -> list[nova_client.Server]:
        """Return the servers, which are active already."""
        return list(servers)

    def delete(self, servers: Iterable[nova_client.Server],
               on_count: Callable[[int], object] = lambda count: None) -> None:
        servers = list(servers)
        for number, server in enumerate(servers):
            on_count(len(servers) - number)
            assert server.host is not None
            self._free[server.host] += self._slots.pop(server.uuid)
            self._notify('instance.delete.end', {'uuid': server.uuid})

    @tenacity.retry(
        retry=tenacity.retry_if_exception_type((
            exception.ControllerUnavailable, exception.DatabaseUnavailable)),
        stop=tenacity.stop_after_attempt(_NOTIFY_ATTEMPTS),
        wait=tenacity.wait_fixed(1), reraise=True)
    def _notify(self, event_type: str, payload: dict[str, str | None]) -> None:
        """Send a notification, repeatedly until the controller takes it."""
        self._controller.call(notification_wire.POST, event_type, payload)

    def _ask(self, server: nova_client.Server, name: str, row: int,
             n_vms: int, hints: dict[str, str], reservation: str,
             project: str) -> str:
        """Ask the controller for a VM's host, as Nova's scheduler would.

        Of all hosts the first that it allows is used; for a VM that runs the
        controller's plan decides.
        """
        n_slots = self._slots[server.uuid]
        among = (self._free if server.host is None
                 else {server.host: self._slots_per_host})
        answer = self._controller.call(
            placement_wire.PLACE, server.uuid, project_id=project,
            user_id=project, display_name=f'{name}-{row}',
            reservation_id=reservation, launch_index=row, num_instances=n_vms,
            hints=hints, metadata={},
            flavor={'vcpus': n_slots, 'memory_mb': n_slots * _SLOT_MEMORY_MB,
                    'disk_gb': _DISK_GB},
            hosts=[{'host': host, 'node': host, 'free': {
                'vcpus': free, 'memory_mb': free * _SLOT_MEMORY_MB,
                'disk_gb': _HOST_DISK_GB}}
                for host, free in among.items() if free >= n_slots])
        for ranked in answer.hosts:
            if ranked.feasible and (
                    server.host is None or answer.status == 'planned'):
                return ranked.host
        raise exception.PlacementInfeasible(what=f'{name}-{row}',
                                            why=answer.why)
