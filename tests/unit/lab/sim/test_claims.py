# SPDX-License-Identifier: Apache-2.0

"""What tenants claim about their coflows, and what that costs them."""

import pytest

from virtco.model import coflow as coflow_model
from virtco.scheduling import pilots
from virtco_lab.sim import claims
from virtco_lab.sim.figures import hints

TRUE, BLIND = claims.Claim(), claims.Claim(is_sized=False)


@pytest.mark.parametrize(('setting', 'claimed'), [
    ('exact', [TRUE] * 3), ('half of the truth', [claims.Claim(0.5)] * 3),
    ('twice the truth', [claims.Claim(2.0)] * 3),
    (claims.UNKNOWN, [BLIND] * 3), (claims.HALF_UNKNOWN, [TRUE, BLIND, TRUE]),
    ('1.5 s late', [claims.Claim(late_s=1.5)] * 3),
    ('never', [claims.Claim(late_s=1e6)] * 3)])
def test_a_setting_tells_each_claim(setting, claimed):
    assert claims.of_setting(setting, 0, 3) == claimed


def test_wrong_claims_are_off_by_at_most_what_is_said():
    drawn = [claim.factor for claim in claims.of_setting('25 % wrong', 0, 500)]
    assert 0.75 <= min(drawn) < 0.76 and 1.24 < max(drawn) <= 1.25


def test_at_launch_nothing_is_told_that_comes_late():
    assert TRUE.at_launch() == TRUE
    assert claims.Claim(late_s=0.0).at_launch() is None
    assert claims.Claim(late_s=1.0, is_launched=True).at_launch() == BLIND


def coflow(size_bytes, start_s=0.0):
    return claims.Coflow(coflow_model.Coflow.from_flows(
        'c', 2, [(0, 1, size_bytes)]), start_s)


def test_who_tells_no_sizes_is_taken_for_a_first_guess():
    sized, blind = (claims.sent(coflow(6e6, 2.0), claim, ('a', 'b'), 3.0)
                    for claim in (claims.Claim(0.5), BLIND))
    assert sized.told.size_bytes == 3e6 and not sized.told.is_estimated
    assert blind.told.size_bytes == 2 * pilots.FIRST_GUESS_BYTES
    assert blind.told.is_estimated
    for one in (sized, blind):
        assert one.truth.size_bytes == 6e6
        assert (one.start_s, one.told_s) == (2.0, 3.0)


def test_a_hint_in_time_is_told_at_the_start():
    """A second later the short one would have shared with the long one."""
    load = [(coflow(500e6), ('h0', 'h1')),
            (coflow(50e6, 0.5), ('h0', 'h2'))]
    in_time, late = (hints.ccts_s(load, [TRUE, claim])[1]
                     for claim in (TRUE, claims.Claim(late_s=1.0)))
    assert 0.4 < in_time < late - 0.1


def test_the_workload_of_a_seed_stays_what_it_was():
    """Figures are recorded by it."""
    load = hints.workload(0)
    assert len(load) == hints.N_COFLOWS
    first, _hosts = load[0]
    assert (first.start_s, first.coflow.size_bytes) == pytest.approx(
        (2.156341, 1747085466))
