# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The members of a group whose host is planned already.

Most questions are of this kind: the first member's question plans for all.
Neither the matrix nor the cloud is looked at again: the group is found by its
name, the matrix is compared by its digest, and the member takes the host that
its row of the database holds for it.
"""

import collections
import threading
from typing import TypeVar

from sqlalchemy import orm

from virtco.ask import problem as problem_builder
from virtco.ask import request as requests
from virtco.db import members
from virtco import hints

T = TypeVar('T')
#: Groups of which the digest and the order of hosts are remembered.
MOST_GROUPS = 1024
#: Hosts that an answer names beside the planned one. Nova takes two or three
#: alternates; any other host weighs less than those that are named.
MOST_ALTERNATES = 32


class Siblings:
    """Remembers of each group what never changes: the digest of its matrix,
    and in which order hosts suited its first member.

    What was forgotten costs time, or leaves alternates to Nova's order.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._digests: collections.OrderedDict[str, str] = (
            collections.OrderedDict())
        self._orders: collections.OrderedDict[str, tuple[str, ...]] = (
            collections.OrderedDict())

    def agree(self, group_id: str, digest: str) -> None:
        """The group's matrix is the one with that digest."""
        if digest:
            with self._lock:
                _put(self._digests, group_id, digest)

    def rank(self, group_id: str, hosts: tuple[str, ...]) -> None:
        """:param hosts: the best first."""
        with self._lock:
            _put(self._orders, group_id, hosts[:2 * MOST_ALTERNATES])

    def find(self, session: orm.Session, request: requests.Placement,
             outline: hints.Outline, digest: str
             ) -> members.Planned | None:
        """The member that the instance becomes, on its planned host.

        None when it takes a closer look: there is no such group, its matrix
        is another one, the instance is a member, the wanted row has a VM, or
        Nova does not offer the planned host.
        """
        found = members.next_planned(
            session, request.project_id, outline.coflow_name,
            request.instance_uuid, outline.index, request.launch_index or 0)
        if found is None or not self._agrees(found.group_id, digest):
            return None
        return found if has_room(request, found) else None

    def _agrees(self, group_id: str, digest: str) -> bool:
        return not digest or self._digests.get(group_id) == digest

    def alternates(self, request: requests.Placement, group_id: str,
                   chosen: str) -> list[str]:
        """Other hosts, in the order in which they suited the first member.
        """
        offered = dict.fromkeys(request.host_names())
        offered.pop(chosen, None)
        with self._lock:
            order = self._orders.get(group_id, ())
        best = [host for host in order if host in offered]
        return list(dict.fromkeys([*best, *offered]))[:MOST_ALTERNATES]


def has_room(request: requests.Placement, planned: members.Planned) -> bool:
    """Whether Nova offers the planned host, with room for the instance."""
    return any(offer.host == planned.host and problem_builder.fits(
        request.flavor.vector, offer.free.vector) for offer in request.hosts)


def _put(known: 'collections.OrderedDict[str, T]', group_id: str,
         value: T) -> None:
    known[group_id] = value
    known.move_to_end(group_id)
    if len(known) > MOST_GROUPS:
        known.popitem(last=False)
