# SPDX-License-Identifier: Apache-2.0

"""Placement rules of a group's VMs, read from its record. Pure.

The launch knows wishes from the hint and server groups from Nova's request.
Whoever moves a VM later has neither, so they are stored with the group.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses

import msgspec

from virtco import hints
from virtco.model import snapshot


class ServerGroup(msgspec.Struct, frozen=True):
    """A server group of Nova's.

    :ivar rows: rows of the members that are in it.
    :ivar hosts: hosts of its other instances.
    """

    policy: str
    rows: tuple[int, ...]
    hosts: tuple[str, ...] = ()
    max_per_host: int = 1


class Rules(msgspec.Struct, frozen=True, omit_defaults=True):
    """Wishes as in the hint, and server groups."""

    within: str = ''
    spread: str = ''
    server_groups: tuple[ServerGroup, ...] = ()

    @property
    def wishes(self) -> hints.Wishes:
        """Both wishes."""
        return hints.Wishes(*(
            hints.wish(key, text) if text else None for key, text in (
                (hints.WITHIN, self.within), (hints.SPREAD, self.spread))))

    def record(self) -> str:
        """Encode the rules; empty where there are none."""
        return msgspec.json.encode(self).decode() if self != Rules() else ''

    def asking(self, wishes: hints.Wishes) -> 'Rules':
        """Take wishes over; those that are not told stay."""
        return msgspec.structs.replace(
            self, within=str(wishes.within or self.within),
            spread=str(wishes.spread or self.spread))

    def joined(self, group: ServerGroup | None) -> 'Rules':
        """Put rows into a server group, if there is one.

        It is the same as one of its policy that has some of the rows, with
        more instances.
        """
        if group is None:
            return self
        same = [one for one in self.server_groups
                if one.policy == group.policy
                and not set(one.rows).isdisjoint(group.rows)]
        rows = set(group.rows).union(*(one.rows for one in same))
        return msgspec.structs.replace(self, server_groups=(
            *(one for one in self.server_groups if one not in same),
            msgspec.structs.replace(group, rows=tuple(sorted(rows)))))


def constrained(problem: snapshot.PlacementProblem, rows: Sequence[int],
                groups: Iterable[ServerGroup], own_hosts: Collection[str] = ()
                ) -> snapshot.PlacementProblem:
    """Add server groups to the problem.

    :param rows: row of each VM of the problem.
    :param own_hosts: hosts of the group's own VMs.
    """
    return dataclasses.replace(problem, server_groups=tuple(
        snapshot.ServerGroup(
            snapshot.GroupPolicy(one.policy), members,
            frozenset(one.hosts).difference(own_hosts), one.max_per_host)
        for one in groups if (members := tuple(
            i for i, row in enumerate(rows) if row in one.rows))))


def of_record(text: str) -> Rules:
    """Decode the text of :meth:`Rules.record`."""
    return msgspec.json.decode(text, type=Rules) if text else Rules()
