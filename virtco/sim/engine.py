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

"""The event loop of the fluid simulator, compiled.

Between two events every rate is constant. An event is the end of a flow or of
a coflow, a coflow that crosses into another queue, one that starts to starve,
or the time at which the caller wants control back. At each event the same
kernels as in production order the coflows and rate them anew.
"""

from typing import NamedTuple

import numpy as np

from virtco import jit
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling import ordering
from virtco.scheduling import policies
from virtco.scheduling import rates

#: Events closer together than this fraction of the clock are one.
SAME_TIME = 1e-12
#: First queue's limit, growth and number of the queues of Aalo (NSDI-style
#: discretised least attained service): 10 MB, times ten, ten queues.
QUEUE_BITS = 8e7
QUEUE_GROWTH = 10.0
N_QUEUES = 10


class State(NamedTuple):
    """What changes while coflows run; shapes (C,) unless said otherwise.

    :ivar bound: bottleneck time at scale 1, seconds.
    :ivar left: flows that have not ended.
    :ivar whole_s: bottleneck time when the coflow became active.
    :ivar arrival_s: when it became active.
    :ivar served_s: when it last had been served for a quantum in all.
    :ivar credit_s: for how long it was served since then.
    :ivar lifted_s: until when starvation keeps it in front.
    :ivar end_s: when its last flow ended, NaN before.
    :ivar sent_bits: for queues by attained service.
    :ivar level: coarse rank, see ordering.levels.
    :ivar weight: for weighted fair sharing.
    :ivar key: scratch.
    :ivar rank_level: scratch.
    :ivar alone_s: remaining time alone.
    :ivar pace: see kernels.
    :ivar residual: shape (P,).
    :ivar flows: scratch, shape (F,).
    :ivar extra_flow: shape (F + P,).
    :ivar extra_rate: shape (F + P,).
    """

    bound: np.ndarray
    left: np.ndarray
    whole_s: np.ndarray
    arrival_s: np.ndarray
    served_s: np.ndarray
    credit_s: np.ndarray
    lifted_s: np.ndarray
    end_s: np.ndarray
    sent_bits: np.ndarray
    level: np.ndarray
    weight: np.ndarray
    key: np.ndarray
    rank_level: np.ndarray
    alone_s: np.ndarray
    pace: np.ndarray
    residual: np.ndarray
    flows: np.ndarray
    extra_flow: np.ndarray
    extra_rate: np.ndarray


class Rules(NamedTuple):
    """A policy as numbers, for the kernels."""

    key: int
    sharing: int
    backfill: int
    each_flow: bool
    trickle: float
    theta_s: float
    quantum_s: float


@jit.compiled
def queue_of(sent_bits: float) -> int:
    """Queue by attained service, and 0 is served first."""
    queue = 0
    limit = QUEUE_BITS
    while sent_bits >= limit * (1.0 - 1e-9) and queue < N_QUEUES - 1:
        limit *= QUEUE_GROWTH
        queue += 1
    return queue


@jit.compiled
def put_in_order(fabric: fabric_model.Fabric, state: State, rules: Rules,
                 order: np.ndarray, now_s: float) -> int:
    """Sort ``order``; returns how many starving coflows lead it."""
    n_lifted = 0
    for c in order:
        state.alone_s[c] = state.bound[c] * fabric.scale[c]
        state.rank_level[c] = state.level[c]
        if rules.key == policies.BY_REMAINING:
            state.key[c] = state.alone_s[c]
        elif rules.key == policies.BY_WHOLE:
            state.key[c] = state.whole_s[c]
        else:
            state.key[c] = state.arrival_s[c]
            if rules.key == policies.BY_QUEUE:
                state.rank_level[c] = queue_of(state.sent_bits[c])
        waited_s = now_s - max(state.served_s[c], state.arrival_s[c])
        if waited_s >= rules.theta_s * (1.0 - 1e-9):
            state.lifted_s[c] = now_s + rules.quantum_s
        if state.lifted_s[c] > now_s:
            n_lifted += 1
            state.rank_level[c] = -1
            state.key[c] = state.served_s[c]
    ordering.sort(order, state.rank_level, state.key)
    return n_lifted


@jit.compiled
def rerate(fabric: fabric_model.Fabric, state: State, rules: Rules,
           order: np.ndarray, now_s: float) -> int:
    """Order coflows and rate them anew; the length of the extra list."""
    n_lifted = put_in_order(fabric, state, rules, order, now_s)
    return rates.allocate(
        fabric, order, n_lifted, rules.sharing, rules.backfill,
        rules.trickle, state.weight, state.alone_s, state.residual,
        state.pace, state.flows, state.extra_flow, state.extra_rate)


@jit.compiled
def next_flow_end_s(fabric: fabric_model.Fabric, state: State,
                    order: np.ndarray, n_extra: int) -> float:
    """Seconds until a flow ends, inf when nothing moves."""
    dt_s = np.inf
    for c in order:
        if state.pace[c] > 0.0:
            dt_s = min(dt_s, fabric.scale[c] / state.pace[c])
    for i in range(n_extra):
        dt_s = min(dt_s, flow_end_s(fabric, state, i))
    return dt_s


@jit.compiled
def next_coflow_end_s(fabric: fabric_model.Fabric, state: State,
                      order: np.ndarray, n_extra: int) -> float:
    """Seconds until a coflow's last flow ends at rates that do not change.

    Where only that matters, all flows that end before make one event.
    """
    last_s = np.zeros(len(state.left))
    n_served = np.zeros(len(state.left), np.int64)
    for i in range(n_extra):
        c = fabric.owner[state.extra_flow[i]]
        last_s[c] = max(last_s[c], flow_end_s(fabric, state, i))
        n_served[c] += 1
    dt_s = np.inf
    for c in order:
        if n_served[c] < state.left[c]:
            last_s[c] = (fabric.scale[c] / state.pace[c]
                         if state.pace[c] > 0.0 else np.inf)
        dt_s = min(dt_s, last_s[c])
    return dt_s


@jit.compiled
def flow_end_s(fabric: fabric_model.Fabric, state: State, i: int) -> float:
    """Seconds until flow i of the extra list ends."""
    f = state.extra_flow[i]
    c = fabric.owner[f]
    rate = state.extra_rate[i] + fabric.base[f] * state.pace[c]
    return fabric.base[f] * fabric.scale[c] / rate if rate > 0.0 else np.inf


@jit.compiled
def next_turn_s(fabric: fabric_model.Fabric, state: State, rules: Rules,
                order: np.ndarray, n_extra: int, now_s: float) -> float:
    """Seconds until a queue or starvation changes the order."""
    dt_s = np.inf
    if rules.key == policies.BY_QUEUE:
        dt_s = min(dt_s, next_queue_s(fabric, state, order, n_extra))
    if rules.theta_s < np.inf:
        served = served_now(fabric, state, n_extra)
        for c in order:
            if state.lifted_s[c] > now_s:
                dt_s = min(dt_s, state.lifted_s[c] - now_s)
            elif state.pace[c] > 0.0 or served[c]:
                dt_s = min(dt_s, rules.quantum_s - state.credit_s[c])
            else:
                start = max(state.served_s[c], state.arrival_s[c])
                dt_s = min(dt_s, max(0.0, start + rules.theta_s - now_s))
    return dt_s


@jit.compiled
def next_queue_s(fabric: fabric_model.Fabric, state: State,
                 order: np.ndarray, n_extra: int) -> float:
    speed = np.zeros(len(state.left))
    for i in range(n_extra):
        speed[fabric.owner[state.extra_flow[i]]] += state.extra_rate[i]
    soonest_s = np.inf
    for c in order:
        queue = queue_of(state.sent_bits[c])
        if speed[c] > 0.0 and queue < N_QUEUES - 1:
            limit = QUEUE_BITS * QUEUE_GROWTH ** queue
            soonest_s = min(soonest_s,
                            (limit - state.sent_bits[c]) / speed[c])
    return soonest_s


@jit.compiled
def served_now(fabric: fabric_model.Fabric, state: State, n_extra: int
               ) -> np.ndarray:
    served = np.zeros(len(state.left), np.bool_)
    for i in range(n_extra):
        if state.extra_rate[i] > 0.0:
            served[fabric.owner[state.extra_flow[i]]] = True
    return served


@jit.compiled
def end_flow(fabric: fabric_model.Fabric, state: State, f: int) -> None:
    for e in (fabric.src[f], fabric.dst[f]):
        fabric.alive[e] -= 1
        fabric.load[e] = (max(0.0, fabric.load[e] - fabric.base[f])
                          if fabric.alive[e] > 0 else 0.0)
    fabric.base[f] = 0.0
    fabric.skip[f] = f + 1
    e = fabric.src[f]
    if fabric.row_at[e] >= 0:
        fabric.row_alive[fabric.row_at[e] + f - fabric.first[e]] = 0
    state.left[fabric.owner[f]] -= 1


@jit.compiled
def end_coflow(fabric: fabric_model.Fabric, state: State, c: int,
               now_s: float) -> None:
    for f in range(fabric.flow_ptr[c], fabric.flow_ptr[c + 1]):
        fabric.base[f] = 0.0
        fabric.skip[f] = f + 1
    for e in range(fabric.entry_ptr[c], fabric.entry_ptr[c + 1]):
        fabric.load[e] = 0.0
        fabric.alive[e] = 0
    state.left[c] = 0
    state.bound[c] = 0.0
    state.pace[c] = 0.0
    fabric.scale[c] = 0.0
    state.end_s[c] = now_s


@jit.compiled
def rebound(fabric: fabric_model.Fabric, state: State, c: int) -> None:
    """Recompute coflow c's bottleneck time at scale 1."""
    longest = 0.0
    for e in range(fabric.entry_ptr[c], fabric.entry_ptr[c + 1]):
        if fabric.load[e] > 0.0:
            cap = fabric.cap[fabric.port[e]]
            longest = max(longest,
                          fabric.load[e] / cap if cap > 0.0 else np.inf)
    state.bound[c] = longest


@jit.compiled
def move(fabric: fabric_model.Fabric, state: State, rules: Rules,
         order: np.ndarray, n_extra: int, dt_s: float, now_s: float) -> int:
    """Let dt_s pass; returns the length of the extra list that is left.

    ``now_s`` is the time after it. Flows that end are taken out.
    """
    slack_s = dt_s + now_s * SAME_TIME
    touched = np.zeros(len(state.left), np.bool_)
    # Loads matter to MADD only; sharing between flows goes without them.
    loads = (rules.sharing == policies.SHARE_MADD
             or rules.sharing == policies.SHARE_COFLOWS)
    kept = 0
    for i in range(n_extra):
        f = state.extra_flow[i]
        rate = state.extra_rate[i]
        c = fabric.owner[f]
        touched[c] = True
        state.sent_bits[c] += rate * dt_s
        ends_s = flow_end_s(fabric, state, i)
        after = fabric.scale[c] - state.pace[c] * dt_s
        if ends_s <= slack_s or after <= 0.0:
            end_flow(fabric, state, f)
            continue
        less = rate * dt_s / after
        fabric.base[f] -= less
        if loads:
            fabric.load[fabric.src[f]] -= less
            fabric.load[fabric.dst[f]] -= less
        state.extra_flow[kept] = f
        # Its part of the pace shrinks with its base; its rate does not.
        state.extra_rate[kept] = rate + less * state.pace[c]
        kept += 1
    for c in order:
        if state.pace[c] > 0.0 or touched[c]:
            state.credit_s[c] += dt_s
            # Scraps between two others are no progress to speak of.
            if state.credit_s[c] >= rules.quantum_s * (1.0 - 1e-9):
                state.served_s[c] = now_s
                state.credit_s[c] = 0.0
        if state.pace[c] > 0.0:
            ends_s = fabric.scale[c] / state.pace[c]
            fabric.scale[c] -= state.pace[c] * dt_s
            if ends_s <= slack_s:
                end_coflow(fabric, state, c, now_s)
        if loads and touched[c] and state.left[c] > 0:
            rebound(fabric, state, c)
        if state.left[c] == 0 and np.isnan(state.end_s[c]):
            end_coflow(fabric, state, c, now_s)
    return kept


@jit.compiled
def advance(fabric: fabric_model.Fabric, state: State, rules: Rules,
            live: np.ndarray, n_live: int, now_s: float, until_s: float,
            max_events: int, stop_at_end: bool) -> tuple[float, int, int]:
    """Run the live coflows until ``until_s`` or for ``max_events`` events.

    :param live: indices of active coflows in its first n_live places; ended
        ones are taken out.
    :param stop_at_end: return as soon as a coflow has ended.
    :returns: the time reached, the number of coflows still live, events used.
    """
    # A turn depends on what each flow has sent.
    by_flow = (rules.each_flow or rules.key == policies.BY_QUEUE
               or rules.theta_s < np.inf)
    events = 0
    rate_anew = True
    n_extra = 0
    while n_live > 0 and now_s < until_s:
        if rate_anew and events >= max_events:
            break
        order = live[:n_live]
        if rate_anew:
            n_extra = rerate(fabric, state, rules, order, now_s)
        turn_s = next_turn_s(fabric, state, rules, order, n_extra, now_s)
        dt_s = (next_flow_end_s(fabric, state, order, n_extra) if by_flow
                else next_coflow_end_s(fabric, state, order, n_extra))
        is_turn = turn_s <= dt_s
        dt_s = min(dt_s, turn_s)
        if now_s + dt_s > until_s:
            dt_s = until_s - now_s
            now_s = until_s
        elif dt_s == np.inf:
            break
        else:
            now_s += dt_s
        n_extra = move(fabric, state, rules, order, n_extra, dt_s, now_s)
        kept = 0
        for c in order:
            if state.left[c] > 0:
                live[kept] = c
                kept += 1
        rate_anew = rules.each_flow or kept < n_live or is_turn
        ended = kept < n_live
        n_live = kept
        events += 1
        if ended and stop_at_end:
            break
    return now_s, n_live, events
