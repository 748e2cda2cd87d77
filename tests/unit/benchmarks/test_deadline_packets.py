# SPDX-License-Identifier: Apache-2.0

"""Promises on packets: who asks, and whose deadline counts as kept."""

import math
import time
import types

import pytest

from benchmarks import deadline_packets
from benchmarks import hint_cases
from virtco import hints
from virtco_lab.emulation import misled
from virtco_lab.sim import claims

SEED, LOAD = 3, 0.7


@pytest.fixture
def case():
    return hint_cases.make(SEED, deadline_packets.N_HOSTS, LOAD)


class Bed:
    """Every coflow takes as long as it is told here."""

    def __init__(self, ccts_s, promises):
        self.ccts_s, self.promises = ccts_s, promises

    def send(self, coflows, claims, hosts, scheme, beside):
        assert scheme.order == 'mrtf'
        self.claims = claims
        self.sent = coflows
        with beside([]):
            self.began_s = time.time()
        return types.SimpleNamespace(ccts_s=self.ccts_s)

    def coflows(self):
        return [types.SimpleNamespace(
            group_name=one.coflow.name, promise=promise,
            deadline=None if claim.deadline_s is None
            else self.began_s + one.start_s + claim.late_s + claim.deadline_s)
            for one, claim, promise in zip(self.sent, self.claims,
                                           self.promises)]


def test_alone_is_the_time_of_the_busiest_link(case):
    found = list(deadline_packets.alone(case))
    one = case.coflows[1].coflow
    received = sum(flow.size_bytes for flow in one.flows)
    # Coflow 1 has one receiver, and three or more senders.
    assert found[1] * hint_cases.RATE_BPS / 8 == pytest.approx(
        received, rel=0.06)
    assert len(found) == len(case.coflows)


def test_a_deadline_counts_from_the_beginning_of_its_coflow(case):
    alone_s = list(deadline_packets.alone(case))
    n = len(alone_s)
    promises = ['yes', 'no', 'kept', 'missed'] * (n // 4)
    # Earlier than any deadline, but for one promised coflow.
    ccts_s = [0.9 * cct_s for cct_s in alone_s]
    late = 4
    ccts_s[late] = 2.5 * alone_s[late]
    bed = Bed(ccts_s, promises)
    found = deadline_packets.once(bed, case, LOAD, 1.0, SEED, 1.0)
    assert found.asked == n == 16
    assert (found.promised, found.kept, found.on_time) == (12, 11, 15)
    assert 0.4 * alone_s[late] < found.worst_late_s < 1.6 * alone_s[late]
    assert math.isnan(found.others_s)
    for claim, one_s in zip(bed.claims, alone_s):
        assert one_s <= claim.deadline_s + claim.late_s <= 2 * one_s


def test_those_without_a_deadline_are_told_apart(case):
    bed = Bed([1.0 + number for number in range(16)], ['yes'] * 16)
    found = deadline_packets.once(bed, case, LOAD, 1.0, SEED, 0.5)
    free = [number for number, claim in enumerate(bed.claims)
            if claim.deadline_s is None]
    assert found.asked == 16 - len(free) and 4 < len(free) < 12
    assert found.others_s == pytest.approx(
        1.0 + sum(free) / len(free))


def test_a_claim_with_a_deadline_asks_for_it(case):
    hint = hints.parse(misled.hint(case.coflows[0], claims.Claim(
        deadline_s=7.5)))
    assert hint.deadline == hints.Deadline(after_s=7.5)
    assert hints.parse(misled.hint(
        case.coflows[0], claims.Claim())).deadline is None
