# SPDX-License-Identifier: Apache-2.0

"""What decisions see: hosts, what coflows may use of them, who is busy."""

import math

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from edge_module import edge_options
from edge_module import shaper
from tests.unit import stored
from virtco.state import schedule_input
from virtco.state import state
from virtco.table import coflow_table

RATES = st.floats(0, 1e12)


def hosts(*rates):
    """:param rates: egress and ingress of each; they differ."""
    return schedule_input.Hosts(schedule_input.Host(
        f'h{i}', coflow_table.Link(f'h{i}', egress_bps, ingress_bps, 0.0),
        egress_bps, ingress_bps) for i, (egress_bps, ingress_bps)
        in enumerate(rates))


def test_hosts_by_columns():
    stranger = schedule_input.Host('s', None, 0.0, 7.0)
    found = schedule_input.Hosts([*hosts((1.0, 2.0), (3.0, 5.0)), stranger])
    assert found.names == ('h0', 'h1', 's')
    assert found.number_of == {'h0': 0, 'h1': 1, 's': 2}
    assert found.links == (found[0].link, found[1].link)
    assert found.links_bps == 4.0
    assert found.speeds_bps.tolist() == [[1.0, 3.0, math.inf],
                                         [2.0, 5.0, math.inf]]
    assert schedule_input.Hosts().speeds_bps.shape == (2, 0)
    assert found.egress_bps.tolist() == [1.0, 3.0, 0.0]
    assert found.ingress_bps.tolist() == [2.0, 5.0, 7.0]


@given(st.lists(st.tuples(RATES, RATES, RATES), max_size=4),
       st.floats(0, 0.9), st.floats(0, 1), st.booleans())
def test_coflows_leave_the_background_its_share(rates, share, most, is_fair):
    """At least the share of the others, at most so much as may be taken."""
    found = hosts(*((egress, ingress) for egress, ingress, _ in rates))
    egress_bps, ingress_bps = schedule_input.Share(share, most).residual(
        found, is_fair, np.array([background for *_, background in rates]))
    for (egress, ingress, background), out_bps, in_bps in zip(
            rates, egress_bps.tolist(), ingress_bps.tolist(), strict=True):
        taken = 0.0 if is_fair else min(background, most * egress)
        assert out_bps == pytest.approx(egress - max(taken, share * egress))
        assert in_bps == pytest.approx(ingress * (1 - share))


def test_the_background_is_taken_from_the_egress():
    found = hosts((100.0, 1000.0), (200.0, 50.0))
    background_bps = np.array([30.0, 150.0])
    share = schedule_input.Share(0.1, 0.5)
    egress_bps, ingress_bps = share.residual(found, False, background_bps)
    assert egress_bps.tolist() == [70.0, 100.0]
    assert ingress_bps.tolist() == [900.0, 45.0]
    egress_bps, _ = share.residual(found, True, background_bps)
    assert egress_bps.tolist() == [90.0, 180.0]


@pytest.mark.parametrize('is_fair', [False, True])
@pytest.mark.parametrize('unshaped, left', [
    (0.0, 50.0), (30.0, 50.0), (70.0, 30.0), (80.0, 20.0), (99.0, 10.0)])
def test_no_class_holds_back_what_passes_none(unshaped, left, is_fair):
    """All of it is taken, not half of the link; the default share is left."""
    egress_bps, _ = schedule_input.Share(0.1, 0.5).residual(
        hosts((100.0, 100.0)), is_fair, np.array([max(80.0, unshaped)]),
        np.array([unshaped]))
    assert egress_bps.tolist() == [pytest.approx(
        min(90.0, max(10.0, 100.0 - unshaped)) if is_fair else left)]


@pytest.mark.parametrize('received, left', [
    (0.0, 90.0), (5.0, 90.0), (70.0, 30.0), (99.0, 10.0)])
def test_what_rdma_receives_is_taken_from_the_ingress(received, left):
    _, ingress_bps = schedule_input.Share(0.1, 0.5).residual(
        hosts((100.0, 100.0)), False, np.zeros(1),
        received_bps=np.array([received]))
    assert ingress_bps.tolist() == [pytest.approx(left)]


@pytest.mark.parametrize(('moved_s', 'is_queued', 'is_busy'), [
    (None, False, False), (None, True, True), (5.0, True, True),
    (8.5, False, True), (8.0, False, False), (7.9, False, False)])
def test_a_coflow_is_busy_until_it_was_quiet(moved_s, is_queued, is_busy):
    assert schedule_input.Coflow(None, None, moved_s, is_queued).is_busy(
        10.0, 2.0) is is_busy


@pytest.mark.parametrize(('order', 'limit', 'limits'), [
    ('mrtf', True, True), ('mrtf', False, False), ('fair', True, False)])
def test_senders_are_limited_where_there_are_classes(order, limit, limits):
    found = schedule_input.Options(order, limit_senders=limit)
    assert found.is_fair is (order == 'fair')
    assert found.limits_senders is limits


def test_what_is_not_given_is_as_the_configuration_has_it():
    conf = stored.conf()
    found, default = state.rules_of(conf), schedule_input.Rules()
    assert (found.half_life_s, found.ending, found.uplink, found.share) == (
        default.half_life_s, default.ending, default.uplink, default.share)
    # Rates count in payload where nobody says what headers take, and no
    # sender is limited by itself.
    assert (default.wire_factor, default.payload_fraction) == (1.0, 0.98)
    options = schedule_input.Options()
    for name in ('order', 'beta', 'quiet_s', 'policy_ttl_s',
                 'protect_receivers', 'default_share'):
        assert getattr(options, name) == getattr(conf.scheduler, name)
    assert not options.limit_senders
    assert options.work_conserving
    assert (options.min_rate_fraction, options.rate_tolerance_fraction) == (
        0.01, 0.03)
    assert options.minor_grace_s == 2 * shaper.GRACE_S
    interval_s, = (option.default for option in edge_options.EDGE_OPTS
                   if option.name == 'report_interval_s')
    assert default.half_life_s == 5 * interval_s
    # A flood leaves the coflows half of an uplink.
    assert schedule_input.Share().residual(
        hosts((100.0, 200.0)), False, np.array([1e9]))[0].tolist() == [50.0]


def test_what_is_not_told_of_a_coflow():
    found = schedule_input.Coflow(None, None)
    assert found.moved_s is None
    assert not found.is_queued and not found.is_resting
    assert schedule_input.Snapshot(
        1.0, schedule_input.Options(), hosts(), np.array([]), np.array([])
        ).size_factor == 1.0


def test_rules_are_those_of_the_configuration():
    conf = stored.conf(
        scheduler={'wire_overhead_fraction': 0.25, 'quiet_s': 3.0,
                   'default_share': 0.5, 'max_debt_bytes': 1e15},
        placement={'default_link_bps': 3e9}, probe={'freshness_s': 777.0})
    found = state.rules_of(conf)
    assert (found.wire_factor, found.payload_fraction) == (1.25, 0.4)
    assert found.ending.quiet_s == 3.0
    assert found.share == schedule_input.Share(0.5)
    assert (found.uplink.default_bps, found.uplink.max_age_s) == (3e9, 3108.0)
    assert found.max_debt_bytes == 1e15
