# SPDX-License-Identifier: Apache-2.0

"""Living groups, their members and their coflows in flight. Pure."""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set
from typing import TYPE_CHECKING

from virtco import units
from virtco.model import snapshot
from virtco.model import states
from virtco.state import inflight
from virtco.state import route as routes
from virtco.state import summary

if TYPE_CHECKING:
    from virtco.db import models

Members = dict[int, routes.Member]


class Groups:
    """Living groups with their members and coflows.

    :ivar coflows: coflows in flight, by id.
    :ivar ended: coflows that ended for good, but not yet in the database.
    :ivar vms: group, row and member of each VM.
    """

    def __init__(self) -> None:
        self.coflows: dict[str, inflight.Tracked] = {}
        self.ended: dict[str, inflight.Tracked] = {}
        self.vms: dict[str, tuple[str, int, routes.Member]] = {}
        self._members: dict[str, Members] = {}
        self._coflows_of: Mapping[str, list[inflight.Tracked]] = {}

    def load(self, members: 'Iterable[models.Member]',
             coflows: 'Iterable[models.Coflow]', only: Set[str] | None,
             anew: bool, ended: Set[str] = frozenset()) -> None:
        """Load groups.

        See :meth:`virtco.state.live_state.LiveState.load_groups`.
        """
        groups: dict[str, Members] = {}
        for member in members:
            groups.setdefault(member.group_id, {})[
                member.row_index] = routes.Member(
                    member.instance_uuid, member.host,
                    member.state == states.MemberState.RUNNING,
                    (units.number(member.egress_cap_bps),
                     units.number(member.ingress_cap_bps)),
                    (units.number(member.egress_limit_bps),
                     units.number(member.ingress_limit_bps)),
                    tuple((member.addresses or '').split()))
        read = groups.keys() | self._members if only is None else only
        self._drop_vms(read)
        for group_id in read - groups.keys():
            self._members.pop(group_id, None)
        self._members |= groups
        found = {coflow_id: tracked
                 for coflow_id, tracked in self.coflows.items()
                 if tracked.group_id not in read}
        for stored in coflows:
            if stored.id not in self.ended and stored.id not in ended:
                found[stored.id] = self._load_coflow(
                    stored, None if anew else self.coflows.get(stored.id))
        # Readers of reports look coflows up without the lock.
        self.coflows = found
        self._index(read)

    def _load_coflow(self, stored: 'models.Coflow',
                     known: inflight.Tracked | None) -> inflight.Tracked:
        """Load a coflow of the database.

        :param known: keeps its progress, which is newer here.
        """
        tracked = known or summary.load(stored)
        if (tracked.priority_class, tracked.weight) != (
                stored.priority_class, stored.weight):
            tracked.priority_class = stored.priority_class
            tracked.weight = stored.weight
            tracked.touch()
        tracked.planned_cct_s = stored.cct_s
        tracked.place(self._members.get(tracked.group_id, {}))
        return tracked

    def _drop_vms(self, groups: Iterable[str]) -> None:
        """Remove the VMs of groups from the look-ups."""
        for group_id in groups:
            for vm in self.rows_of(group_id):
                found = self.vms.get(vm)
                # A VM may have moved to a group that was read before.
                if found is not None and found[0] == group_id:
                    del self.vms[vm]

    def _index(self, groups: Iterable[str]) -> None:
        """Add the VMs of groups to the look-ups."""
        for group_id in groups:
            members = self._members.get(group_id, {})
            for vm, row in self.rows_of(group_id).items():
                self.vms[vm] = group_id, row, members[row]
        self._coflows_of = collections.defaultdict(list)
        for tracked in self.coflows.values():
            self._coflows_of[tracked.group_id].append(tracked)

    def hosts(self, running: bool = False) -> set[str]:
        """Return the hosts of the members.

        :param running: whether planned members are left out.
        """
        return {member.host for members in self._members.values()
                for member in members.values()
                if member.host is not None and (member.running or not running)}

    def hosts_of(self, group_id: str) -> list[str]:
        """Return the hosts of a group's members, running or planned."""
        return sorted({member.host for member in self._members.get(
            group_id, {}).values() if member.host is not None})

    def coflow_of(self, vm: str) -> inflight.Tracked | None:
        """Return any coflow in flight of the VM's group; None without one."""
        group_id = self.vms[vm][0] if vm in self.vms else ''
        return next(iter(self._coflows_of.get(group_id, ())), None)

    def rows_of(self, group_id: str) -> dict[str, int]:
        """Return the row of each VM of a group."""
        return {member.instance_uuid: row
                for row, member in self._members.get(group_id, {}).items()
                if member.instance_uuid}

    def vms_of(self, groups: Set[str] | None) -> set[str]:
        """Return the VMs of groups; None: of all."""
        if groups is None:
            return set(self.vms)
        return {vm for group_id in groups for vm in self.rows_of(group_id)}

    def awaited_hosts(self) -> set[str]:
        """Return the hosts of planned members that do not run yet."""
        return set().union(*(tracked.awaited_hosts
                             for tracked in self.coflows.values()))

    def count_members(self, host: str) -> int:
        """Count the members that are or will be on the host."""
        return sum(member.host == host for members in self._members.values()
                   for member in members.values())

    def loads(self, except_group: str | None
              ) -> tuple[snapshot.ActiveCoflow, ...]:
        """Return the remaining bytes per host of other groups' coflows."""
        return tuple(tracked.load for tracked in self.coflows.values()
                     if tracked.group_id != except_group
                     and tracked.load.out_bytes)

    def readdress(self, vms: Iterable[str]) -> None:
        """Forget the entries of the groups of VMs whose addresses changed."""
        for group_id in {self.vms[vm][0] for vm in vms if vm in self.vms}:
            for tracked in self._coflows_of.get(group_id, ()):
                tracked.readdress()

    def has_sibling(self, tracked: inflight.Tracked) -> bool:
        """Return whether another coflow of its group is in flight."""
        return any(other is not tracked and other.coflow_id in self.coflows
                   for other in self._coflows_of.get(tracked.group_id, ()))

    def in_turn(self) -> list[inflight.Tracked]:
        """Return the coflows whose VMs run; those between two iterations last,
        then by arrival and id: ties of the schedule go to the first.
        """
        return sorted((tracked for tracked in self.coflows.values()
                       if tracked.state != states.CoflowState.PLANNED),
                      key=lambda tracked: (tracked.upcoming is not None,
                                           tracked.arrival_s or 0.0,
                                           tracked.coflow_id))

    def find(self, coflow_id: str) -> inflight.Tracked | None:
        """Return a coflow that is in flight or just ended."""
        return self.coflows.get(coflow_id) or self.ended.get(coflow_id)

    def end(self, tracked: inflight.Tracked) -> None:
        """Move a coflow to the ended ones."""
        self.coflows.pop(tracked.coflow_id, None)
        self.ended[tracked.coflow_id] = tracked

    def take_dirty(self) -> list[inflight.Tracked]:
        """Return the coflows with changes that the database lacks."""
        found = [tracked for tracked in (*self.coflows.values(),
                                         *self.ended.values())
                 if tracked.is_dirty]
        for tracked in self.coflows.values():
            tracked.is_dirty = False
        return found
