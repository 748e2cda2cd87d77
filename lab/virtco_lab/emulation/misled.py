# SPDX-License-Identifier: Apache-2.0

"""Workload of coflows with wrong, late or no sizes in their hints.

Coflows of 1 to 3 senders and as many receivers start on the hypervisors, one
a second on average, with log-normal sizes (sigma 1). Together they need half
of the capacity of the links. The VMs exist before; each coflow is a project of
its own.
"""

import collections
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
import re

import numpy as np

from virtco import hints
from virtco import units
from virtco.model import coflow as coflow_model
from virtco.scheduling import pilots
from virtco.state import schedule_input
from virtco_lab.emulation import cases
from virtco_lab.emulation import scenario
from virtco_lab.emulation import traffic
from virtco_lab.sim import controlled

N_COFLOWS = 6
GAP_S = 1.0
LOAD = 0.5
#: Bytes that the liar claims, relative to the truth.
FACTORS = (0.3, 1.0, 3.0)
#: Number of coflows that are larger than the liar's.
_LARGER = 1
_PORT = 5001
_SIGMA = 1.0
UNKNOWN, HALF_UNKNOWN = 'unknown sizes', 'half of them unknown'
SPOILS = ('exact', '50 % wrong', 'half of the truth', 'twice the truth')
LATE = ('exact', '0.5 s late', '1 s late', '2 s late', 'never')
UNSIZED = ('exact', HALF_UNKNOWN, UNKNOWN, 'never')
#: Time of a hint that never comes.
NEVER_S = 1e6
_LATE = re.compile(r'([0-9.]+) s late')


@dataclasses.dataclass(frozen=True, slots=True)
class Coflow:
    """A coflow and when it starts; bytes for the rate of the testbed."""

    coflow: coflow_model.Coflow
    start_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """Claim of a tenant about a coflow.

    :ivar factor: claimed bytes over the truth.
    :ivar is_sized: whether the hint has sizes.
    :ivar late_s: when it comes, after the coflow's start; None: with its VMs.
    :ivar deadline_s: that is asked for, after the hint; None: none.
    """

    factor: float = 1.0
    is_sized: bool = True
    late_s: float | None = None
    deadline_s: float | None = None


def workload(seed: int, scale: cases.Scale) -> list[Coflow]:
    """Generate coflows in the order of their starts."""
    rng = np.random.default_rng([seed, 14])
    starts_s = np.cumsum(rng.exponential(GAP_S, N_COFLOWS))
    mean_bytes = LOAD * GAP_S * scale.n_hosts * units.bps_to_bytes_per_s(
        scenario.goodput_bps(scale.rate_bps))
    sizes = rng.lognormal(0.0, _SIGMA, N_COFLOWS)
    sizes *= mean_bytes * N_COFLOWS / sizes.sum()
    made = []
    for number, (start_s, size_bytes) in enumerate(zip(starts_s, sizes)):
        n_src, n_dst = (int(n) for n in rng.integers(1, 4, 2))
        shares = rng.dirichlet(np.ones(n_src * n_dst))
        pairs = itertools.product(range(n_src), range(n_src, n_src + n_dst))
        made.append(Coflow(coflow_model.Coflow.from_flows(
            f'c{number}', n_src + n_dst, [
                (src, dst, max(1, round(float(size_bytes * share))))
                for (src, dst), share in zip(pairs, shares)], _PORT),
            float(start_s - starts_s[0])))
    return made


def liar(coflows: Sequence[Coflow]) -> int:
    """Return the index of the liar's coflow."""
    order = sorted(range(len(coflows)),
                   key=lambda i: coflows[i].coflow.size_bytes)
    return order[-1 - _LARGER]


def claims(setting: str, seed: int, coflows: Sequence[Coflow]
           ) -> list[Claim]:
    """Return the tenants' claim about each coflow in a setting."""
    rng = np.random.default_rng([seed, 15])
    made = [Claim(late_s=_late_s(setting))] * len(coflows)
    usual = {'half of the truth': Claim(0.5), 'twice the truth': Claim(2.0),
             UNKNOWN: Claim(is_sized=False)}
    if setting in usual:
        made = [usual[setting]] * len(coflows)
    elif setting == '50 % wrong':
        made = [Claim(float(rng.uniform(0.5, 1.5))) for _ in coflows]
    elif setting == HALF_UNKNOWN:
        made = [Claim(is_sized=i % 2 == 0) for i in range(len(coflows))]
    elif setting.startswith('lie '):
        made[liar(coflows)] = Claim(float(setting[4:]))
    return made


def _late_s(setting: str) -> float | None:
    """Return the hint's delay after a coflow's start; None: with its VMs."""
    if setting == 'never':
        return NEVER_S
    found = _LATE.fullmatch(setting)
    return float(found.group(1)) if found else None


def hint(one: Coflow, claim: Claim) -> dict[str, str]:
    """Return the scheduler hints that the tenant gives to Nova."""
    name = one.coflow.name
    if not claim.is_sized:
        return hints.encode(hints.Hint(name, app=hints.App(name, True)))
    return hints.encode(hints.Hint(
        name, coflows=(one.coflow.scaled(claim.factor),),
        deadline=None if claim.deadline_s is None
        else hints.Deadline(after_s=claim.deadline_s)))


def expect(coflows: Sequence[Coflow], claimed: Sequence[Claim],
           hosts: Mapping[str, Sequence[str]], told_s: Sequence[float],
           scale: cases.Scale,
           options: schedule_input.Options = schedule_input.Options(beta=0.0),
           receiver: controlled.Receiver = 'tcp') -> tuple[float, ...]:
    """Simulate the CCT of each coflow, with the controller's own code.

    :param told_s: time at which the controller was told of each.
    """
    rate_bps = scenario.goodput_bps(scale.rate_bps)
    return tuple(controlled.simulate([
        controlled.Sent(
            one.coflow, one.coflow.scaled(claim.factor) if claim.is_sized
            else _unsized(one.coflow), tuple(hosts[one.coflow.name]),
            one.start_s, at_s)
        for one, claim, at_s in zip(coflows, claimed, told_s)],
        {f'h{i}': rate_bps for i in range(scale.n_hosts)}, options,
        window_bytes=_window_bytes(coflows, hosts, scale),
        receiver=receiver))


def _window_bytes(coflows: Sequence[Coflow],
                  hosts: Mapping[str, Sequence[str]], scale: cases.Scale
                  ) -> int:
    """Return the testbed's window, see :func:`traffic.window_bytes`."""
    links = collections.Counter(
        end for one in coflows for flow in one.coflow.flows
        for at in [hosts[one.coflow.name]]
        if at[flow.src] != at[flow.dst]
        for end in ((at[flow.src], 'out'), (at[flow.dst], 'in')))
    return traffic.shared_window_bytes(max(links.values(), default=1),
                                       scale.rate_bps)


def _unsized(coflow: coflow_model.Coflow) -> coflow_model.Coflow:
    """Return the coflow that the controller assumes without sizes.

    Every pair of VMs sends the first guess of its pilots.
    """
    return dataclasses.replace(coflow_model.Coflow.from_flows(
        coflow.name, coflow.n_vms, (
            (src, dst, pilots.FIRST_GUESS_BYTES)
            for src, dst in itertools.permutations(range(coflow.n_vms), 2)),
        iterations=0), is_estimated=True)
