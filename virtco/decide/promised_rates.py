# SPDX-License-Identifier: Apache-2.0

"""Rates that keep the deadlines of running coflows, by a snapshot. Pure."""

import dataclasses
import math

import numpy as np

from virtco.model import live
from virtco.scheduling import deadlines
from virtco.state import schedule_input as known

#: Coflows are planned to end so much before their deadlines where they can:
#: reports are late, and rates come into force later.
LEAD_S = 0.5
#: Coflows without a promise that are looked at, the earliest deadlines first:
#: each costs a plan.
MOST_WISHES = 16


def renew(snapshot: known.Snapshot, before: deadlines.Plan | None
          ) -> deadlines.Plan:
    """Plan the coflows whose deadlines were promised; then, with the rest,
    others that want a deadline, as far as they still fit.

    The latter were told no at their launch. While they send and there is room
    they are served as if promised; a promise at a launch takes it back.

    :param before: the last plan.
    """
    wanting = sorted((
        coflow.live for coflow in snapshot.coflows
        if snapshot.now_s < coflow.live.deadline_s < math.inf
        and not coflow.is_resting and (
            coflow.live.is_promised or coflow.is_busy(
                snapshot.now_s, snapshot.options.quiet_s))),
        key=_promised_first)
    n_promised = sum(coflow.is_promised for coflow in wanting)
    ports = snapshot.ports
    claims = deadlines.no_claims(len(ports.cap_bps))
    for coflow in wanting[:n_promised + MOST_WISHES]:
        assert isinstance(coflow.flows, live.Flows)
        size_s = snapshot.size_factor * ports.busy_s(
            coflow.flows, snapshot.hosts.number_of)
        left_s = coflow.deadline_s - snapshot.now_s
        if coflow.is_promised or deadlines.fits(claims, size_s, left_s):
            claims = claims.joined(coflow.coflow_id, size_s, left_s)
    early = deadlines.renew(dataclasses.replace(claims, left_s=np.maximum(
        claims.left_s - LEAD_S, claims.left_s / 2)), snapshot.now_s)
    return (early if early.is_whole
            else deadlines.renew(claims, snapshot.now_s, before))


def _promised_first(coflow: live.LiveCoflow) -> tuple[bool, float]:
    return not coflow.is_promised, coflow.deadline_s
