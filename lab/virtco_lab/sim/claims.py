# SPDX-License-Identifier: Apache-2.0

"""Coflows, and wrong, late or no hints of their tenants about them."""

from collections.abc import Sequence
import dataclasses
import itertools
import re

import numpy as np

from virtco.model import coflow as coflow_model
from virtco.scheduling import pilots
from virtco_lab.sim import controlled

UNKNOWN, HALF_UNKNOWN = 'unknown sizes', 'half of them unknown'
#: Time of a hint that never comes.
NEVER_S = 1e6
_LATE = re.compile(r'([0-9.]+) s late')
_WRONG = re.compile(r'([0-9.]+) % wrong')


@dataclasses.dataclass(frozen=True, slots=True)
class Coflow:
    """A coflow and when it starts."""

    coflow: coflow_model.Coflow
    start_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """Claim of a tenant about a coflow.

    :ivar factor: claimed bytes over the truth.
    :ivar is_sized: whether the hint has sizes.
    :ivar late_s: time at which the hint comes, after the coflow's start; None:
        with its VMs.
    :ivar is_launched: whether a late hint's group was launched without sizes.
    :ivar deadline_s: deadline that is asked for, after the hint; None: none.
    """

    factor: float = 1.0
    is_sized: bool = True
    late_s: float | None = None
    is_launched: bool = False
    deadline_s: float | None = None

    def at_launch(self) -> 'Claim | None':
        """Return the claim at the launch of the VMs; None without one."""
        if self.is_launched:
            return Claim(is_sized=False)
        return self if self.late_s is None else None


def of_setting(setting: str, seed: int, n_coflows: int) -> list[Claim]:
    """Return the tenants' claim about each coflow in a setting."""
    rng = np.random.default_rng([seed, 15])
    usual = {'half of the truth': Claim(0.5), 'twice the truth': Claim(2.0),
             UNKNOWN: Claim(is_sized=False), 'never': Claim(late_s=NEVER_S)}
    if wrong := _WRONG.fullmatch(setting):
        most = float(wrong.group(1)) / 100
        return [Claim(float(rng.uniform(1 - most, 1 + most)))
                for _ in range(n_coflows)]
    if late := _LATE.fullmatch(setting):
        return [Claim(late_s=float(late.group(1)))] * n_coflows
    if setting == HALF_UNKNOWN:
        return [Claim(is_sized=i % 2 == 0) for i in range(n_coflows)]
    return [usual.get(setting, Claim())] * n_coflows


def sent(one: Coflow, claim: Claim, hosts: Sequence[str], told_s: float
         ) -> controlled.Sent:
    """Return a coflow as it is and as the controller is told of it."""
    return controlled.Sent(
        one.coflow, one.coflow.scaled(claim.factor) if claim.is_sized
        else unsized(one.coflow), tuple(hosts), one.start_s, told_s)


def unsized(coflow: coflow_model.Coflow) -> coflow_model.Coflow:
    """Return the coflow that the controller assumes without sizes.

    Every pair of VMs sends the first guess of its pilots.
    """
    return dataclasses.replace(coflow_model.Coflow.from_flows(
        coflow.name, coflow.n_vms, (
            (src, dst, pilots.FIRST_GUESS_BYTES)
            for src, dst in itertools.permutations(range(coflow.n_vms), 2)),
        iterations=0), is_estimated=True)
