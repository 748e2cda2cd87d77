# SPDX-License-Identifier: Apache-2.0

"""The members of a group whose host is planned already.

Most questions are of this kind: the first member's question plans for all.
Neither the matrix nor the cloud is looked at again: the group is found by its
name, the matrix is compared by its digest, and the member takes the host that
its row of the database holds for it.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
import dataclasses
import itertools

import sqlalchemy as sa

from virtco.db import members
from virtco.model import snapshot
from virtco.place import answer as answers
from virtco.place import newest
from virtco.wire import placement as wire

# Project and name.
Key = tuple[str, str]
MOST_GROUPS = 1024
#: Hosts that an answer names after the planned one. Nova takes two or three
#: alternates; any other host weighs less than those that are named.
MOST_ALTERNATES = 32


@dataclasses.dataclass(frozen=True, slots=True)
class _Group:
    """Constant facts of a group.

    :ivar digest: digest of the group's matrix; empty for none seen.
    :ivar order: hosts, in the order in which they suited its first member.
    """

    group_id: str
    digest: str
    order: tuple[str, ...]


class Siblings:
    """Memory of the latest groups; a forgotten one costs time only.

    :param drained: hosts that are no alternates.
    """

    def __init__(self, drained: Callable[[], Collection[str]] = frozenset
                 ) -> None:
        self._drained = drained
        self._groups: newest.Newest[Key, _Group] = newest.Newest(MOST_GROUPS)

    def remember(self, key: Key, group_id: str, digest: str,
                 order: tuple[str, ...] = ()) -> None:
        """Remember a group by its key.

        :param digest: digest of the group's matrix, if there was one.
        :param order: hosts in their order, the best first, if it is known.
        """
        before = self._groups.get(key)
        if before is not None and before.group_id == group_id:
            digest = digest or before.digest
            order = order or before.order
        self._groups.put(key, _Group(group_id, digest,
                                     order[:2 * MOST_ALTERNATES]))

    def expects(self, key: Key, digest: str) -> bool:
        """Tell whether a recent group has this name and matrix."""
        known = self._groups.get(key)
        return known is not None and digest in ('', known.digest)

    def find(self, connection: sa.Connection, request: wire.Placement,
             key: Key, index: int | None) -> members.Planned | None:
        """Find the member that the instance becomes, on its planned host.

        None when it takes a closer look: there is no such group any more, the
        instance is a member, the wanted one is a VM, or Nova does not offer
        the planned host.
        """
        known = self._groups.get(key)
        found = members.next_planned(connection, *key,
                                     request.instance_uuid, index,
                                     request.launch_index or 0)
        return found if (
            found is not None and known is not None
            and found.group_id == known.group_id
            and found.host in request.offers) else None

    def answer(self, request: wire.Placement, planned: members.Planned,
               allowed: list[str] | None,
               notes: Iterable[tuple[str, str]] = ()) -> wire.Answer:
        """Build the answer for a member that is planned.

        :param allowed: hosts that keep to a required wish, if there is one.
        """
        alternates = self._alternates(
            request, planned, request.offers if allowed is None
            else dict.fromkeys(allowed))
        return wire.Answer(
            instance_uuid=request.instance_uuid, status='planned',
            host=planned.host, group=planned.group_id,
            group_name=planned.group_name, row=planned.index,
            why='; '.join(['as planned', *(detail for _, detail in notes)]),
            hosts=answers.ranked([planned.host, *alternates], 'as planned'),
            cct_s=planned.cct_s, lower_bound_s=planned.lower_bound_s,
            bound_scope=snapshot.Scope.CONSTRAINTS, gap=planned.gap,
            method=planned.method, bottleneck=planned.bottleneck,
            allowed=allowed)

    def _alternates(self, request: wire.Placement,
                    planned: members.Planned, offered: Collection[str]
                    ) -> list[str]:
        """List other hosts in the first member's order of preference."""
        not_these = {planned.host, *self._drained()}
        known = self._groups.get((request.project_id, planned.group_name))
        best = [host for host in known.order if host in offered
                ] if known is not None else []
        others = (host for host in itertools.chain(best, offered)
                  if host not in not_these)
        # No host comes more than twice.
        return list(dict.fromkeys(itertools.islice(
            others, 2 * MOST_ALTERNATES)))[:MOST_ALTERNATES]
