# SPDX-License-Identifier: Apache-2.0

"""VMs of a group that share a rack or a host, without naming either."""

from collections.abc import Callable
from collections.abc import Sequence
import hashlib
import hmac
from typing import Literal

from virtco.db import groups as db_groups
from virtco.db import models
from virtco.state import state as states
from virtco.topology import tree
from virtco.wire import group as wire

_ID_DIGITS = 16


class Clusters:
    """Answers on which VMs of a group share a rack or a host.

    :param plane: plane of the network that carries the coflows.
    """

    def __init__(self, state: states.State,
                 plane: Callable[[], tree.Plane | None]):
        self._state = state
        self._plane = plane

    def show(self, project_id: str | None, group: str,
             level: Literal['rack', 'host']
             ) -> wire.Clusters:
        """Show the members of a living group with an opaque cluster each.

        :param project_id: project of the group; None = any.
        :param group: id or name.
        :param level: level that is shared; hosts in no rack stand for
            themselves.
        :raises virtco.exception.NotFound: without such a group.
        """
        with self._state.database.reader() as session:
            found = db_groups.only_living(session, project_id, group)
            members = db_groups.members(session, found.id)
            group_id, name = found.id, found.name
            # Ids can be compared within one group only, and nobody can try
            # names of hosts against them. All processes have the same.
            key = f'{db_groups.secret(session)} {group_id}'.encode()
        return wire.Clusters(
            group_id=group_id, group_name=name, level=level,
            members=self._members(key, members, level))

    def _members(self, key: bytes, members: Sequence[models.Member],
                 level: str) -> list[wire.Clustered]:
        """Show members with an opaque id of their host or rack."""
        racks = self._racks() if level == 'rack' else {}
        addresses = self._state.live.addresses_of(
            [member.instance_uuid or '' for member in members])
        return [
            wire.Clustered(
                row=member.row_index, instance_uuid=member.instance_uuid,
                display_name=member.display_name, addresses=tuple(ips),
                cluster=None if member.host is None else _id(
                    key, racks.get(member.host, f'host {member.host}')))
            for member, ips in zip(members, addresses)]

    def _racks(self) -> dict[str, str]:
        plane = self._plane()
        # Names of racks need not be unique among planes or pods.
        return {} if plane is None else {
            host: f'rack {number}'
            for number, node in enumerate(plane.walk()) for host in node.hosts}


def _id(key: bytes, place: str) -> str:
    return hmac.digest(key, place.encode(), hashlib.sha256).hex()[:_ID_DIGITS]
