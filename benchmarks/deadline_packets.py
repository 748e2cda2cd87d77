# SPDX-License-Identifier: Apache-2.0

"""Promised deadlines with real TCP: which of them does a coflow keep?

The coflows, their hosts and their arrivals are those of
:mod:`benchmarks.hint_cases`. The controller hears of each half a second
before it begins, as of a VM that still boots. A deadline is 1 + U[0, slack]
times as long as the coflow takes alone (Varys, section 7.4), from its
beginning.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import pathlib
import time

import numpy as np

from benchmarks import hint_cases
from virtco import units
from virtco.wire import coflow_bodies
from virtco_lab.emulation import cases
from virtco_lab.emulation import display
from virtco_lab.emulation import fabric
from virtco_lab.emulation import scenario
from virtco_lab.emulation import untold
from virtco_lab.sim import claims
from virtco_lab.sim import schemes

N_HOSTS = 6
_EARLY_S = 0.5
_SCHEME = schemes.Scheme('promised', 'promised', 'virtco', 'mrtf',
                         ceil='link')


@dataclasses.dataclass(frozen=True, slots=True)
class Promised:
    """What became of the coflows with a deadline, in one run.

    :ivar asked: coflows that have a deadline.
    :ivar promised: of those, before they ended.
    :ivar kept: of the promised ones.
    :ivar on_time: of all that asked.
    :ivar worst_late_s: end of a promised one after its deadline, at most;
        negative: all were early.
    :ivar others_s: CCT of those without a deadline.
    """

    load: float
    slack: float
    seed: int
    asked: int
    promised: int
    kept: int
    on_time: int
    worst_late_s: float
    others_s: float


def run(load: float, slack: float, seeds: Sequence[int], share: float,
        logs: pathlib.Path, shown: display.Display) -> Iterator[Promised]:
    """Send the coflows of each seed.

    :param share: of the coflows that have a deadline.
    """
    scale = cases.Scale(N_HOSTS, hint_cases.RATE_BPS)
    made = [hint_cases.make(seed, N_HOSTS, load) for seed in seeds]
    with untold.Bed(cases.bed(
            scale, logs, slots=max(
                sum(one.coflow.n_vms for one in case.coflows)
                for case in made)), shown.say) as bed:
        bed.wait_measured()
        for seed, case in zip(seeds, made):
            yield once(bed, case, load, slack, seed, share)


def once(bed: untold.Bed, case: hint_cases.Case, load: float, slack: float,
         seed: int, share: float) -> Promised:
    """Send the coflows of one seed and compare their ends with deadlines."""
    rng = np.random.default_rng([seed, 53])
    alone_s = np.array(list(alone(case)))
    after_s = alone_s * (1 + slack * rng.random(len(alone_s)))
    asks = rng.random(len(alone_s)) < share
    claimed = [claims.Claim(
        late_s=-_EARLY_S, deadline_s=_EARLY_S + float(after) if ask else None)
        for after, ask in zip(after_s, asks)]
    found: list[coflow_bodies.Coflow] = []
    began_s = 0.0

    @contextlib.contextmanager
    def watch(groups: Sequence[Sequence[fabric.VmPort]]) -> Iterator[None]:
        nonlocal began_s
        began_s = time.time()
        yield
        found.extend(bed.coflows())

    sent = bed.send(case.coflows, claimed, dict(case.hosts), _SCHEME, watch)
    by_name = {one.group_name: one for one in found}
    late_s = {}
    for number, one in enumerate(case.coflows):
        due_s = by_name[one.coflow.name].deadline
        if due_s is not None:
            late_s[number] = (began_s + one.start_s + sent.ccts_s[number]
                              - due_s)
    promised = [number for number in late_s if by_name[
        case.coflows[number].coflow.name].promise != 'no']
    return Promised(
        load, slack, seed, len(late_s), len(promised),
        sum(late_s[number] <= 0 for number in promised),
        sum(late <= 0 for late in late_s.values()),
        max((late_s[number] for number in promised), default=float('nan')),
        float(np.mean([cct_s for cct_s, ask in zip(sent.ccts_s, asks)
                       if not ask])) if not all(asks) else float('nan'))


def alone(case: hint_cases.Case) -> Iterator[float]:
    """Yield the CCT of each coflow without any other, in seconds."""
    rate_bps = scenario.goodput_bps(hint_cases.RATE_BPS)
    for one in case.coflows:
        at = case.hosts[one.coflow.name]
        yield units.transfer_time_s(max(hint_cases.link_bytes(
            [one.coflow], [at]).values()), rate_bps)
