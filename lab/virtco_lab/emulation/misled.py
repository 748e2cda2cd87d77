# SPDX-License-Identifier: Apache-2.0

"""Workload of coflows with wrong, late or no sizes in their hints.

Coflows of 1 to 3 senders and as many receivers start on the hypervisors, one
a second on average, with log-normal sizes (sigma 1). Together they need half
of the capacity of the links. The VMs exist before; each coflow is a project of
its own.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import itertools

import numpy as np

from virtco import hints
from virtco import units
from virtco.model import coflow as coflow_model
from virtco.state import schedule_input
from virtco_lab.emulation import cases
from virtco_lab.emulation import scenario
from virtco_lab.emulation import traffic
from virtco_lab.sim import claims
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
SPOILS = ('exact', '50 % wrong', 'half of the truth', 'twice the truth')
LATE = ('exact', '0.5 s late', '1 s late', '2 s late', 'never')
UNSIZED = ('exact', claims.HALF_UNKNOWN, claims.UNKNOWN, 'never')


def workload(seed: int, scale: cases.Scale) -> list[claims.Coflow]:
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
        made.append(claims.Coflow(coflow_model.Coflow.from_flows(
            f'c{number}', n_src + n_dst, [
                (src, dst, max(1, round(float(size_bytes * share))))
                for (src, dst), share in zip(pairs, shares)], _PORT),
            float(start_s - starts_s[0])))
    return made


def liar(coflows: Sequence[claims.Coflow]) -> int:
    """Return the index of the liar's coflow."""
    order = sorted(range(len(coflows)),
                   key=lambda i: coflows[i].coflow.size_bytes)
    return order[-1 - _LARGER]


def of_setting(setting: str, seed: int, coflows: Sequence[claims.Coflow]
               ) -> list[claims.Claim]:
    """Return the tenants' claims in a setting; "lie 3": one claims thrice."""
    made = claims.of_setting(setting, seed, len(coflows))
    if setting.startswith('lie '):
        made[liar(coflows)] = claims.Claim(float(setting[4:]))
    return made


def hint(one: claims.Coflow, claim: claims.Claim) -> dict[str, str]:
    """Return the scheduler hints that the tenant gives to Nova."""
    name = one.coflow.name
    if not claim.is_sized:
        return hints.encode(hints.Hint(name, app=hints.App(name, True)))
    return hints.encode(hints.Hint(
        name, coflows=(one.coflow.scaled(claim.factor),),
        deadline=None if claim.deadline_s is None
        else hints.Deadline(after_s=claim.deadline_s)))


def expect(coflows: Sequence[claims.Coflow], claimed: Sequence[claims.Claim],
           hosts: Mapping[str, Sequence[str]], told_s: Sequence[float],
           scale: cases.Scale,
           options: schedule_input.Options = schedule_input.Options(beta=0.0),
           receiver: controlled.Receiver = 'tcp',
           timing: controlled.Timing = controlled.Timing()
           ) -> tuple[float, ...]:
    """Simulate the CCT of each coflow, with the controller's own code.

    :param told_s: time at which the controller was told of each.
    """
    rate_bps = scenario.goodput_bps(scale.rate_bps)
    return tuple(controlled.simulate([
        claims.sent(one, claim, hosts[one.coflow.name], at_s)
        for one, claim, at_s in zip(coflows, claimed, told_s)],
        {f'h{i}': rate_bps for i in range(scale.n_hosts)}, options, timing,
        window_bytes=_window_bytes(coflows, hosts, scale),
        receiver=receiver))


def _window_bytes(coflows: Sequence[claims.Coflow],
                  hosts: Mapping[str, Sequence[str]], scale: cases.Scale
                  ) -> int:
    """Return the testbed's window, see :func:`traffic.window_bytes`."""
    return traffic.window_bytes(
        ((at[flow.src], at[flow.dst]) for one in coflows
         for at in [hosts[one.coflow.name]] for flow in one.coflow.flows),
        scale.rate_bps)
