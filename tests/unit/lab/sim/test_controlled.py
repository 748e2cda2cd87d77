# SPDX-License-Identifier: Apache-2.0

"""Fluid coflows under the controller's own code."""

import math

import pytest

from virtco.model import coflow as coflow_model
from virtco.state import schedule_input
from virtco.table import borrowing
from virtco_lab.sim import claims
from virtco_lab.sim import controlled

# A second for a megabyte.
HOSTS = dict.fromkeys(('h0', 'h1', 'h2'), 8e6)
MB = 1e6


def _coflow(name, size_bytes, src=0, dst=1):
    return coflow_model.Coflow.from_flows(name, 3, [(src, dst, size_bytes)])


def _sent(truth, told=None, **times):
    return controlled.Sent(truth, told or truth, ('h0', 'h1', 'h2'), **times)


@pytest.mark.parametrize(('setting', 'claim'), [
    ('exact', claims.Claim()), ('half of the truth', claims.Claim(0.5)),
    ('twice the truth', claims.Claim(2.0)),
    ('1.5 s late', claims.Claim(late_s=1.5)),
    ('unknown sizes', claims.Claim(is_sized=False)),
    ('never', claims.Claim(late_s=claims.NEVER_S))])
def test_tenants_claim_what_a_setting_says(setting, claim):
    assert claims.of_setting(setting, 0, 2) == [claim] * 2


def test_some_settings_differ_from_coflow_to_coflow():
    assert [claim.is_sized for claim in claims.of_setting(
        'half of them unknown', 0, 3)] == [True, False, True]
    factors = [claim.factor for claim in claims.of_setting(
        '20 % wrong', 0, 50)]
    assert 0.8 <= min(factors) < 0.85 and 1.15 < max(factors) <= 1.2


def test_one_coflow_has_what_is_kept_for_coflows():
    cct_s, = controlled.simulate([_sent(_coflow('c', 5 * MB))], HOSTS)
    assert cct_s == pytest.approx(5 / 0.98, rel=0.03)


def test_the_smaller_coflow_goes_first():
    ccts_s = controlled.simulate([
        _sent(_coflow('large', 8 * MB)), _sent(_coflow('small', 2 * MB))],
        HOSTS)
    assert ccts_s == pytest.approx([10 / 0.98, 2 / 0.98], rel=0.1)


def test_nothing_crosses_a_link_within_a_host():
    truth = _coflow('c', MB)
    assert controlled.simulate([controlled.Sent(
        truth, truth, ('h0', 'h0', 'h1'))], HOSTS) == [0.0]


# ``ceil = rate``.
KEEPING = schedule_input.Options(beta=0.0, work_conserving=False)


def test_a_flow_that_is_smaller_than_told_has_its_share_until_silent():
    """The controller does not know sooner that it has ended."""
    truth = coflow_model.Coflow.from_flows(
        'c', 3, [(0, 1, MB), (0, 2, 4 * MB)])
    told = coflow_model.Coflow.from_flows(
        'c', 3, [(0, 1, 4 * MB), (0, 2, 4 * MB)])
    exact_s, = controlled.simulate([_sent(truth)], HOSTS, KEEPING)
    wrong_s, = controlled.simulate([_sent(truth, told)], HOSTS, KEEPING)
    assert exact_s == pytest.approx(5 / 0.98, rel=0.05)
    # For a second half of the link is idle.
    assert 1.05 * exact_s < wrong_s < 1.25 * exact_s


def test_what_is_beyond_the_hint_waits_as_without_one():
    truth, other = _coflow('c', 4 * MB), _coflow('other', 3 * MB, 0, 2)
    ccts_s = controlled.simulate([
        _sent(truth, truth.scaled(0.5)), _sent(other)], HOSTS)
    # He goes first for the half and a tenth of it: his queue tells that he has
    # not ended. Then he is taken for one of 4 s, and waits for the other.
    assert ccts_s[1] == pytest.approx(5.2 / 0.98, rel=0.05)
    assert ccts_s[0] == pytest.approx(7 / 0.98, rel=0.05)


def test_who_is_told_late_shares_until_then():
    small, large = _coflow('small', 2 * MB), _coflow('large', 8 * MB, 0, 2)
    at_once_s, late_s, never_s = (controlled.simulate([
        _sent(small, told_s=at_s), _sent(large, told_s=at_s)], HOSTS)[0]
        for at_s in (0.0, 1.0, 1e6))
    assert at_once_s == pytest.approx(2 / 0.98, rel=0.1)
    assert late_s == pytest.approx(2.5, rel=0.1)
    assert never_s == pytest.approx(4, rel=0.05)


def test_a_window_waits_beside_the_classes_of_others():
    """At 2 % of the link, where another one has the rest of it."""
    first, late = _coflow('first', 8 * MB), _coflow('late', 2 * MB, 2)
    told = [_sent(first), _sent(late, told_s=0.5)]
    ccts_s = [controlled.simulate(told, HOSTS, KEEPING,
                                  window_bytes=size_bytes)[1]
              for size_bytes in (0.0, 0.02 * MB)]
    assert ccts_s[0] + 0.3 < ccts_s[1] < ccts_s[0] + 2.5
    # Nobody else sends there.
    alone = [controlled.simulate(told[1:], HOSTS, KEEPING,
                                 window_bytes=size_bytes)[0]
             for size_bytes in (0.0, 0.02 * MB)]
    assert alone[0] == pytest.approx(alone[1], rel=1e-6)


BORROWING = schedule_input.Options(beta=0.0, work_conserving=True)
RECEIVERS = 'tcp', 'order'


@pytest.mark.parametrize('receiver', RECEIVERS)
def test_who_borrows_has_the_whole_link(receiver):
    cct_s, = controlled.simulate([_sent(_coflow('c', 5 * MB))], HOSTS,
                                 BORROWING, receiver=receiver)
    assert cct_s == pytest.approx(5, rel=0.01)


@pytest.mark.parametrize('receiver', RECEIVERS)
def test_a_flow_that_is_smaller_than_told_leaves_nothing_idle(receiver):
    truth = coflow_model.Coflow.from_flows(
        'c', 3, [(0, 1, MB), (0, 2, 4 * MB)])
    told = coflow_model.Coflow.from_flows(
        'c', 3, [(0, 1, 4 * MB), (0, 2, 4 * MB)])
    cct_s, = controlled.simulate([_sent(truth, told)], HOSTS, BORROWING,
                                 receiver=receiver)
    assert cct_s == pytest.approx(5, rel=0.01)


@pytest.mark.parametrize('receiver', RECEIVERS)
def test_a_sender_lends_by_rank(receiver):
    ccts_s = controlled.simulate([
        _sent(_coflow('large', 8 * MB)), _sent(_coflow('small', 2 * MB))],
        HOSTS, BORROWING, receiver=receiver)
    assert ccts_s == pytest.approx([10, 2], rel=0.03)


def test_who_lies_idle_lends_to_a_rank_below_at_the_receiver():
    """The first of rank is told to send from h0 but does so from h2."""
    first, second = _coflow('first', MB, 2), _coflow('second', 3 * MB)
    coflows = [_sent(first, _coflow('first', MB)), _sent(second)]
    tcp_s, order_s = (controlled.simulate(
        coflows, HOSTS, BORROWING, receiver=receiver)
        for receiver in RECEIVERS)
    # TCP gives the flow without a class half of the link, order what is left.
    assert tcp_s == pytest.approx([2, 4], rel=0.03)
    assert order_s[1] < 3.2 and order_s[0] > 3.5


@pytest.mark.parametrize('report_s', [0.1, 0.9])
def test_how_long_ranks_below_delay_one_at_a_receiver(report_s, monkeypatch):
    """Until its rates are in force, and the others know that it sends."""
    hosts = dict.fromkeys(('h0', 'h1', 'h2', 'h3', 'h4'), 8e6)
    timing = controlled.Timing(report_s=report_s)
    most_s = report_s + 2 * (timing.interval_s + timing.delay_s)

    def sent(name, size_bytes, src, start_s):
        truth = coflow_model.Coflow.from_flows(name, 5, [(src, 1, size_bytes)])
        return controlled.Sent(truth, truth, tuple(hosts), start_s, start_s)

    first = sent('first', MB, 2, 1.0)
    below = [sent(f'below{i}', 3 * MB + i, src, 0.0)
             for i, src in enumerate((0, 3, 4))]
    alone_s, = controlled.simulate([first], hosts, BORROWING, timing)

    def delay_s():
        return controlled.simulate([*below, first], hosts, BORROWING,
                                   timing)[-1] - alone_s

    assert 0 < delay_s() < most_s
    # Everybody borrows.
    monkeypatch.setattr(borrowing.Lending, 'ceil_bps', lambda one, *_: (
        one.laid.egress_bps[one.laid.host_of[one.laid.class_of]]))
    assert delay_s() > most_s


@pytest.mark.parametrize('receiver', RECEIVERS)
def test_who_is_told_late_borrows_last_until_then(receiver):
    small, large = _coflow('small', 2 * MB), _coflow('large', 8 * MB, 0, 2)
    in_time_s, late_s, never_s = (controlled.simulate([
        _sent(small, told_s=at_s), _sent(large)], HOSTS, BORROWING,
        receiver=receiver)[0] for at_s in (0.0, 1.0, 1e6))
    assert in_time_s == pytest.approx(2, rel=0.03)
    assert late_s == pytest.approx(3, rel=0.05)
    assert never_s == pytest.approx(
        8 / (1 - BORROWING.default_share) + 2 - 8 * BORROWING.default_share,
        rel=0.03)


def test_borrowers_beyond_a_ceil_do_not_exist(monkeypatch):
    """The ceil is what the policy says."""
    monkeypatch.setattr(borrowing.Lending, 'ceil_bps',
                        lambda self, child_bps, left_bytes: child_bps)
    ccts_s = [controlled.simulate([_sent(_coflow('c', 5 * MB))], HOSTS,
                                  options, receiver=receiver)
              for options in (schedule_input.Options(beta=0.0), BORROWING)
              for receiver in RECEIVERS]
    for cct_s, in ccts_s:
        assert cct_s == pytest.approx(5 / 0.98, rel=0.03)


def test_vms_take_turns_where_no_flow_has_a_class():
    """At the sender, where edges do; TCP alone knows flows only."""
    hosts = dict.fromkeys(('h0', 'h1', 'h2', 'h3'), 8e6)
    many = coflow_model.Coflow.from_flows(
        'many', 4, [(0, i, MB) for i in (1, 2, 3)])
    one = coflow_model.Coflow.from_flows('one', 4, [(0, 1, MB)])
    coflows = [controlled.Sent(truth, truth, tuple(hosts), told_s=1e6)
               for truth in (many, one)]
    turns_s = controlled.simulate(coflows, hosts, BORROWING)
    assert turns_s == pytest.approx([4, 2], rel=0.01)
    flows_s = controlled.simulate(coflows, hosts, schedule_input.Options(
        order='fair', beta=0.0, work_conserving=True))
    assert flows_s == pytest.approx([4, 4], rel=0.01)


def test_what_ends_is_known_a_look_later():
    """Reports are 5 s apart; the second coflow gets the link at a look."""
    sent = [_sent(_coflow('first', MB)), _sent(_coflow('second', 3 * MB))]
    late, early = (controlled.simulate(
        sent, HOSTS, KEEPING, controlled.Timing(5.0, 0.2, 0.1, look_s))
        for look_s in (math.inf, 0.2))
    assert early[0] == pytest.approx(late[0])
    assert early[1] < 0.9 * late[1]
