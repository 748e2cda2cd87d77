# SPDX-License-Identifier: Apache-2.0

"""Coflows whose claims are not the truth: liars, bad estimates, no hints.

The production entry point, :func:`virtco.scheduling.schedule`, is called at
each event with what a controller would know: the claim, and the bytes that
the edges counted. The truth only decides when flows end.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from virtco import scheduling
from virtco import units
from virtco.model import live
from virtco.scheduling import policing

#: Longest time between two readings of the counters, seconds.
REPORT_S = 1.0
#: A flow with less than this left has ended.
ENDED_BYTES = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """A coflow and its tenant's claim about it.

    :ivar flows: the truth.
    :ivar claimed_bytes: 0 = no hint.
    :ivar hint_delay_s: after the arrival; before it there is no hint.
    """

    coflow_id: str
    project_id: str
    arrival_s: float
    flows: live.Flows
    claimed_bytes: float
    hint_delay_s: float = 0.0

    @property
    def size_bytes(self) -> float:
        return float(sum(self.flows.remaining_bytes.tolist()))


def expected_remaining_bytes(claimed_bytes: float, sent_bytes: float,
                             beta: float, unhinted_bytes: float = 10e6
                             ) -> float:
    """Estimate the remaining size to schedule by, above 0 while active.

    Within the allowance what is left of it; beyond it what is left of twice
    the allowance, then of four times, and so on: a guess that shrinks while
    it is served, so that those who overran end one after the other instead of
    taking turns byte by byte. Without a claim the limit of the queue that the
    coflow would be in under Aalo's discretised least attained service, so
    that a small one is soon through and large ones take turns by arrival.

    :param unhinted_bytes: limit of the first queue; each next is ten times
        as long.
    """
    if claimed_bytes <= 0:
        limit = unhinted_bytes
        while limit <= sent_bytes:
            limit *= 10
        return limit
    limit = policing.allowance_bytes(claimed_bytes, beta)
    while limit <= sent_bytes:
        limit *= 2
    return max(0.01 * claimed_bytes, limit - sent_bytes)


def _rates(item: live.CoflowSchedule
           ) -> Iterator[tuple[tuple[str, str], float]]:
    return zip(item.flow_rates.pairs, item.flow_rates.rate_bps.tolist())


class _Active:
    def __init__(self, claim: Claim):
        self.claim = claim
        self.left = dict(zip(claim.flows.pairs,
                             claim.flows.remaining_bytes.tolist()))
        self.sent_bytes = 0.0

    def claimed_bytes(self, now_s: float) -> float:
        known_s = self.claim.arrival_s + self.claim.hint_delay_s
        return self.claim.claimed_bytes if now_s >= known_s else 0.0

    def seen(self, now_s: float, beta: float, is_believed: bool
             ) -> live.LiveCoflow:
        """Return the coflow as the controller sees it.

        The claim may be wrong; the flows' shares of it are right.

        :param is_believed: order by the claim; otherwise by the bytes that
            were counted.
        """
        claimed = self.claimed_bytes(now_s)
        expected = expected_remaining_bytes(
            claimed, self.sent_bytes, beta)
        factor = expected / sum(self.left.values())
        whole = self.claim.flows
        return live.LiveCoflow(
            self.claim.coflow_id, live.Flows(live.Pairs(self.left), np.array([
                left * factor for left in self.left.values()])),
            arrival_s=self.claim.arrival_s, served_s=now_s,
            sent_bytes=self.sent_bytes, claimed_bytes=claimed,
            served=None if is_believed else live.Flows(
                whole.pairs, whole.remaining_bytes
                * (self.sent_bytes / self.claim.size_bytes)),
            project_id=self.claim.project_id)

    def move(self, item: live.CoflowSchedule, dt_s: float) -> float:
        """Send for dt_s; returns the bytes."""
        before = self.sent_bytes
        for pair, rate_bps in _rates(item):
            sent = min(self.left[pair],
                       units.bps_to_bytes_per_s(rate_bps) * dt_s)
            self.left[pair] -= sent
            self.sent_bytes += sent
            if self.left[pair] < ENDED_BYTES:
                del self.left[pair]
        return self.sent_bytes - before

    def event_s(self, item: live.CoflowSchedule, claimed: float, beta: float
                ) -> float:
        """Compute the seconds until a flow ends or the allowance is used up.
        """
        soonest_s = math.inf
        total_bps = 0.0
        for pair, rate_bps in _rates(item):
            soonest_s = min(soonest_s, units.transfer_time_s(
                self.left[pair], rate_bps))
            total_bps += rate_bps
        left = policing.allowance_bytes(claimed, beta) - self.sent_bytes
        if 0 < left < math.inf:
            soonest_s = min(soonest_s, units.transfer_time_s(
                left + ENDED_BYTES, total_bps))
        return soonest_s


def simulate(claims: Sequence[Claim], ports: live.Ports, *,
             beta: float = 0.1, policed: bool = True, policy: str = 'mrtf'
             ) -> dict[str, float]:
    """Simulate the coflows; return the CCT of each, in s.

    :param beta: overestimate, and tolerance of the policing.
    :param policed: whether overruns have consequences.
    """
    todo = sorted(claims, key=lambda claim: claim.arrival_s, reverse=True)
    active: dict[str, _Active] = {}
    accounts: dict[str, policing.Account] = {}
    ccts: dict[str, float] = {}
    now_s = 0.0
    while todo or active:
        if not active:
            now_s = max(now_s, todo[-1].arrival_s)
        while todo and todo[-1].arrival_s <= now_s:
            claim = todo.pop()
            active[claim.coflow_id] = _Active(claim)
        made = scheduling.schedule([entry.seen(
            now_s, beta, not policed or not (
                accounts.get(entry.claim.project_id,
                             policing.Account()).in_debt
                or policing.overrun_bytes(entry.claimed_bytes(now_s),
                                          entry.sent_bytes, beta) > 0))
            for entry in active.values()], ports, policy=policy, now_s=now_s)
        dt_s = REPORT_S
        if todo:
            dt_s = min(dt_s, todo[-1].arrival_s - now_s)
        for item in made.coflows:
            entry = active[item.coflow_id]
            dt_s = min(dt_s, entry.event_s(
                item, entry.claimed_bytes(now_s), beta))
        now_s += dt_s
        reports: dict[str, list[policing.Report]] = {}
        for item in made.coflows:
            entry = active[item.coflow_id]
            new = entry.move(item, dt_s)
            reports.setdefault(entry.claim.project_id, []).append(
                policing.Report(item.coflow_id, entry.claimed_bytes(now_s),
                                entry.sent_bytes, new))
            if not entry.left:
                ccts[item.coflow_id] = now_s - entry.claim.arrival_s
                del active[item.coflow_id]
        for project, rows in reports.items():
            accounts[project] = policing.charge(
                accounts.get(project, policing.Account()), rows, beta)
    return ccts
