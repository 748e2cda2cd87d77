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

"""Where the flows of a coflow run, by the hosts of its members. Pure."""

from collections.abc import Mapping
import dataclasses

import numpy as np

from virtco.model import coflow as coflow_model
from virtco.model import live


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """One VM of a group: which, where, and whether it runs there."""

    instance_uuid: str | None
    host: str | None
    running: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """Where the flows of a coflow run, while nothing moves.

    :ivar pairs: (source host, destination host) of flows between hosts.
    :ivar pair_of: index into ``pairs`` per flow, -1 for flows that stay in a
        host or whose VMs are not placed.
    :ivar local: indices of the flows that stay in a host.
    :ivar is_complete: the VMs of all flows are placed.
    """

    pairs: live.Pairs
    pair_of: np.ndarray
    local: np.ndarray
    is_complete: bool

    def per_pair(self, flow_bytes: np.ndarray) -> np.ndarray:
        """Sums of values per flow, shape (n_pairs,)."""
        crossing = self.pair_of >= 0
        sums: np.ndarray = np.bincount(
            self.pair_of[crossing], flow_bytes[crossing], len(self.pairs)
        ).astype(np.float64)
        return sums

    def flows(self, src: str, dst: str | None) -> np.ndarray:
        """Indices of the flows from a host, to one other or to any."""
        wanted = [i for i, pair in enumerate(self.pairs)
                  if pair[0] == src and dst in (None, pair[1])]
        return np.flatnonzero(np.isin(self.pair_of, wanted))


def find_route(model: coflow_model.Coflow, members: Mapping[int, Member],
               running: bool) -> Route:
    """:param running: only VMs that run; False also takes planned ones."""
    hosts = {index: member.host for index, member in members.items()
             if member.host is not None and (member.running or not running)}
    pairs: dict[tuple[str, str], int] = {}
    pair_of = np.full(len(model.flows), -1)
    local = []
    n_placed = 0
    for i, flow in enumerate(model.flows):
        if flow.src not in hosts or flow.dst not in hosts:
            continue
        n_placed += 1
        pair = (hosts[flow.src], hosts[flow.dst])
        if pair[0] == pair[1]:
            local.append(i)
        else:
            pair_of[i] = pairs.setdefault(pair, len(pairs))
    return Route(live.Pairs(pairs), pair_of, np.array(local, np.int64),
                 n_placed == len(model.flows))
