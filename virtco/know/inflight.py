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

"""One coflow in flight: its rows, its progress and its way. Pure."""

from collections.abc import Mapping
import dataclasses
import json

import numpy as np

from virtco.db import codec
from virtco.db import models
from virtco.know import byte_counters
from virtco.model import coflow as coflow_model
from virtco.model import states


@dataclasses.dataclass
class Row:
    """A row of a group: who fills it, where."""

    instance_uuid: str | None
    host: str | None
    running: bool


@dataclasses.dataclass
class Tracked:
    """A coflow in flight.

    :ivar iteration: the one that is or was under way, from 1; 0 before.
    :ivar upcoming: of the next iteration, while the coflow rests between two;
        the last one is done then.
    :ivar moved_s: when its counters last moved, None = never.
    :ivar backlog_bytes: waiting at each host's class, as last reported.
    :ivar was_placed: all its VMs ran at some time; what is missing since
        then was deleted, and its flows with it.
    :ivar is_dirty: the database does not know the newest yet.
    """

    coflow_id: str
    group_id: str
    project_id: str
    name: str
    state: str
    model: coflow_model.Coflow
    progress: byte_counters.CoflowProgress
    iteration: int = 0
    upcoming: byte_counters.CoflowProgress | None = None
    priority_class: int = 0
    weight: float = 1.0
    arrival_s: float | None = None
    ended_s: float | None = None
    moved_s: float | None = None
    backlog_bytes: dict[str, float] = dataclasses.field(default_factory=dict)
    was_placed: bool = False
    is_dirty: bool = False

    @property
    def counting(self) -> byte_counters.CoflowProgress:
        """Where bytes that are counted now belong."""
        return self.upcoming or self.progress

    @property
    def has_more(self) -> bool:
        """Whether an iteration follows the present one."""
        return (self.model.iterations == 0
                or self.iteration < self.model.iterations)

    @property
    def claimed_bytes(self) -> float:
        """What it may send now and in all that is to come; 0 = no end.

        A report may count the end of an iteration and the beginning of the
        next in one.
        """
        n_left = max(0, self.model.iterations - self.iteration + 1)
        return self.model.size_bytes * n_left

    def counted_bytes(self, flow: int) -> float:
        """Payload of a flow in all iterations, as far as is known."""
        n_ended = self.iteration - (self.upcoming is None)
        return float(max(0, n_ended) * self.model.flows[flow].size_bytes
                     + self.counting.sent_bytes[flow])

    def begin(self, now_s: float) -> None:
        """The first or the next iteration is under way."""
        self.progress, self.upcoming = self.counting, None
        self.state = states.CoflowState.ACTIVE
        self.iteration += 1
        self.arrival_s = now_s
        self.ended_s = None
        self.is_dirty = True

    def end(self, now_s: float) -> None:
        self.state = states.CoflowState.DONE
        self.ended_s = now_s
        self.is_dirty = True

    def rest(self) -> None:
        """Wait for the next iteration, of which nothing was seen so far."""
        self.upcoming = byte_counters.CoflowProgress(self.progress.sizes_bytes)

    def is_busy(self, now_s: float, quiet_s: float) -> bool:
        if any(self.backlog_bytes.values()):
            return True
        return self.moved_s is not None and now_s - self.moved_s < quiet_s


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """Where the flows of a coflow run, while nothing moves.

    :ivar pairs: (source host, destination host) of flows between hosts.
    :ivar pair_of: index into ``pairs`` per flow, -1 for flows that stay in a
        host or whose VMs are not placed.
    :ivar local: indices of the flows that stay in a host.
    :ivar is_complete: the VMs of all flows are placed.
    """

    pairs: tuple[tuple[str, str], ...]
    pair_of: np.ndarray
    local: np.ndarray
    is_complete: bool

    def sums(self, flow_bytes: np.ndarray) -> dict[tuple[str, str], float]:
        """Per pair of hosts, of values per flow."""
        crossing = self.pair_of >= 0
        sums = np.bincount(self.pair_of[crossing], flow_bytes[crossing],
                           len(self.pairs))
        return dict(zip(self.pairs, sums.tolist(), strict=True))

    def flows(self, src: str, dst: str | None) -> np.ndarray:
        """Indices of the flows from a host, to one other or to any."""
        wanted = [i for i, pair in enumerate(self.pairs)
                  if pair[0] == src and dst in (None, pair[1])]
        return np.flatnonzero(np.isin(self.pair_of, wanted))


def load(stored: models.Coflow) -> Tracked:
    model = codec.decode_coflow(stored)
    tracked = Tracked(
        coflow_id=stored.id, group_id=stored.group_id or '',
        project_id=stored.project_id, name=stored.name, state=stored.state,
        model=model,
        progress=byte_counters.CoflowProgress(
            [flow.size_bytes for flow in model.flows],
            json.loads(stored.progress)),
        iteration=stored.iteration, priority_class=stored.priority_class,
        weight=stored.weight, arrival_s=stored.arrival,
        ended_s=stored.ended_at)
    if tracked.state == states.CoflowState.DONE:
        tracked.rest()
    return tracked


def find_route(model: coflow_model.Coflow, rows: Mapping[int, Row],
               running: bool) -> Route:
    """:param running: only VMs that run; False also takes planned ones."""
    hosts = {index: row.host for index, row in rows.items()
             if row.host is not None and (row.running or not running)}
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
    return Route(tuple(pairs), pair_of, np.array(local, np.int64),
                 n_placed == len(model.flows))
