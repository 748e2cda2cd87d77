# SPDX-License-Identifier: Apache-2.0

"""When periodic coflows that share links may send: gates by a snapshot. Pure.

Gates refer to the wall clock and not to the beginning of any job, so that all
edge modules of a job keep the same turns without a word between them. Plans
are deterministic: another controller that knows the same jobs finds the same
turns.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses

import numpy as np

from virtco.know import snapshot as known
from virtco.model import live
from virtco.scheduling.periodic import jobs as jobs_model
from virtco.scheduling.periodic import rehearsal
from virtco.scheduling.periodic import shifts
from virtco.table import edge_policy
from virtco.table import host_policies
from virtco import units

#: Gates are planned for so many jobs at most, the most intense ones.
MOST_JOBS = 64
#: Shorter sending is no longer than what counters and clocks are late.
LEAST_SEND_S = 0.2
#: Jobs with iterations of this length are served in order by the controller;
#: of shorter ones it hears too late, and TCP shares.
IN_ORDER_S = 20.0
#: Rates change with what else is on the links. Jobs whose times changed by
#: less keep their gates.
SAME = 0.1
#: Of all computing; for less no job that runs is shifted.
LEAST_GAIN = 0.01


@dataclasses.dataclass(frozen=True, slots=True)
class Gated:
    """A periodic coflow that has a gate.

    :ivar epoch: of the plan that it is of.
    :ivar out_bytes: of an iteration on the wire, by the host that sends.
    """

    gate: rehearsal.Gate
    epoch: int
    open_s: float
    out_bytes: Mapping[str, float]

    def at(self, host: str) -> edge_policy.Gate:
        """As the host's policy has it."""
        period_s = self.gate.period_s
        return edge_policy.Gate(
            period_s, self.gate.offset_s % period_s,
            min(self.open_s, period_s), self.out_bytes[host], self.epoch)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Gates:
    """A plan.

    :ivar jobs: all that were looked at, by the coflow's id.
    :ivar groups: ids of those that meet at links.
    :ivar gated: those that have a gate.
    """

    jobs: Mapping[str, jobs_model.PeriodicJob] = dataclasses.field(
        default_factory=dict)
    groups: frozenset[frozenset[str]] = frozenset()
    gated: Mapping[str, Gated] = dataclasses.field(default_factory=dict)
    of_host: host_policies.Gates = dataclasses.field(default_factory=dict)


#: Before anything is known.
NONE = Gates()


def plan(snapshot: known.Snapshot, wire_factor: float = 1.0,
         before: Gates = NONE) -> Gates:
    """Gates for the periodic coflows that gain by them.

    :param wire_factor: bytes on the wire for each of the matrix.
    :param before: the plan that holds; the same object where all stays. Jobs
        keep their turns unless others meet them, leave or move, and then if
        another plan gains nothing.
    """
    found = _jobs(snapshot, wire_factor)
    jobs = {job.job_id: before.jobs[job.job_id]
            if _is_close(job, before.jobs.get(job.job_id)) else job
            for job, _ in found}
    if jobs == before.jobs:
        return before
    out_bytes = {job.job_id: sent for job, sent in found}
    epoch = max([int(snapshot.now_s)] + [
        one.epoch + 1 for one in before.gated.values()])
    groups, gated = [], {}
    for group in shifts.components(list(jobs.values())):
        ids = frozenset(job.job_id for job in group)
        groups.append(ids)
        old = {job_id: before.gated[job_id].gate for job_id in ids
               if job_id in before.gated}
        is_known = ids in before.groups and all(
            jobs[job_id] is before.jobs[job_id] for job_id in ids)
        gates = old if is_known else _gates(group, old)
        for job in group:
            gate = gates.get(job.job_id)
            if gate is None or not (edge_policy.MIN_PERIOD_S <= gate.period_s
                                    <= edge_policy.MAX_PERIOD_S):
                continue
            was = before.gated.get(job.job_id)
            gated[job.job_id] = Gated(
                gate, was.epoch if was is not None and was.gate == gate
                else epoch, job.send_s, out_bytes[job.job_id])
    return Gates(jobs, frozenset(groups), gated, _of_host(gated, before))


def are_in_order(jobs: Iterable[jobs_model.PeriodicJob]) -> bool:
    """Whether the controller decides who of them goes first, and not TCP."""
    return min(job.period_s for job in jobs) >= IN_ORDER_S


def _gates(group: list[jobs_model.PeriodicJob],
           old: Mapping[str, rehearsal.Gate]) -> dict[str, rehearsal.Gate]:
    """Of jobs that meet; those they have where no others gain."""
    fair = not are_in_order(group)
    ordered = jobs_model.by_intensity(group)
    found = dict(shifts.plan(ordered, fair).gates)
    if not old:
        return found
    found = _turned(found, old, ordered)
    if all(_is_same(found.get(job_id), gate) for job_id, gate in old.items()):
        return {**found, **old}  # others are let in, and shift nobody
    horizon_s = shifts.REHEARSED_PERIODS * max(
        job.period_s for job in ordered)
    run = rehearsal.Rehearsal(ordered)
    kept, gained = (jobs_model.utilisation(ordered, run.run(
        gates, horizon_s, horizon_s / 2, None, fair).tolist())
        for gates in (old, found))
    return dict(old) if gained < kept + LEAST_GAIN else found


def _turned(found: Mapping[str, rehearsal.Gate],
            old: Mapping[str, rehearsal.Gate],
            ordered: Iterable[jobs_model.PeriodicJob]
            ) -> dict[str, rehearsal.Gate]:
    """The same turns, from where the first one that runs has them now."""
    anchor = next((job.job_id for job in ordered
                   if job.job_id in old and job.job_id in found), None)
    if anchor is None:
        return dict(found)
    shift_s = old[anchor].offset_s - found[anchor].offset_s
    return {job_id: dataclasses.replace(gate, offset_s=gate.offset_s + shift_s)
            for job_id, gate in found.items()}


def _is_same(found: rehearsal.Gate | None, gate: rehearsal.Gate) -> bool:
    return found is not None and np.allclose(
        (found.period_s, found.offset_s % found.period_s),
        (gate.period_s, gate.offset_s % gate.period_s), atol=1e-6)


def _of_host(gated: Mapping[str, Gated], before: Gates
             ) -> host_policies.Gates:
    found: dict[str, dict[str, edge_policy.Gate]] = {}
    for coflow_id, one in gated.items():
        for host in one.out_bytes:
            found.setdefault(host, {})[coflow_id] = one.at(host)
    return before.of_host if found == before.of_host else found


def _jobs(snapshot: known.Snapshot, wire_factor: float
          ) -> list[tuple[jobs_model.PeriodicJob, dict[str, float]]]:
    """Periodic coflows whose hint says enough, and what each host sends."""
    options = snapshot.options
    if options.is_fair or not options.gates:
        return []
    found = {}
    for coflow in snapshot.coflows:
        one = coflow.live
        if one.compute_s > 0 and one.whole is not None and len(one.whole):
            job = _job(one.coflow_id, one, one.whole, snapshot, wire_factor)
            if job is not None and job.send_s >= LEAST_SEND_S:
                found[one.coflow_id] = (job.guarded(),
                                        _out_bytes(one.whole, wire_factor))
    intense = jobs_model.by_intensity(job for job, _ in found.values())
    return [found[job.job_id] for job in intense[:MOST_JOBS]]


def _job(coflow_id: str, one: live.LiveCoflow, whole: live.Flows,
         snapshot: known.Snapshot, wire_factor: float
         ) -> jobs_model.PeriodicJob | None:
    """None where a link of it carries nothing."""
    hosts = snapshot.hosts.names
    ends = whole.pairs.numbers(snapshot.hosts.number_of)
    bits = whole.remaining_bytes * wire_factor * units.BITS_PER_BYTE
    start, passed = snapshot.uplinks.passed(*ends.T)
    busy_s: dict[jobs_model.Link, float] = {}
    for name, number, load, cap_bps in (
            ('out', ends[:, 0], bits, snapshot.egress_bps),
            ('in', ends[:, 1], bits, snapshot.ingress_bps),
            ('up', passed, np.repeat(bits, np.diff(start)),
             snapshot.uplinks.cap_bps)):
        total = np.bincount(number, load, len(cap_bps))
        for place in np.flatnonzero(total > 0).tolist():
            if cap_bps[place] <= 0:
                return None
            busy_s[name, place if name == 'up' else hosts[place]] = float(
                total[place] / cap_bps[place])
    return (jobs_model.PeriodicJob(coflow_id, float(one.compute_s),
                                   busy_s, one.workers) if busy_s else None)


def _out_bytes(whole: live.Flows, wire_factor: float) -> dict[str, float]:
    found: dict[str, float] = {}
    sizes = whole.remaining_bytes.tolist()
    for (src, _), size_bytes in zip(whole.pairs, sizes, strict=True):
        if size_bytes > 0:
            found[src] = found.get(src, 0.0) + size_bytes * wire_factor
    return found


def _is_close(job: jobs_model.PeriodicJob,
              before: jobs_model.PeriodicJob | None) -> bool:
    """Whether a job is what it was, at the same place."""
    return before is not None and (
        job.workers == before.workers
        and job.busy_s.keys() == before.busy_s.keys()
        and _are_near([(job.compute_s, before.compute_s), *(
            (busy_s, before.busy_s[link])
            for link, busy_s in job.busy_s.items())]))


def _are_near(values: Iterable[tuple[float, float]]) -> bool:
    return all(abs(new - old) <= SAME * old for new, old in values)
