# SPDX-License-Identifier: Apache-2.0

"""Ports whose directions differ, below uplinks whose directions differ."""

import math

import numpy as np
import pytest

from tests.unit import rows
from virtco import scheduling
from virtco.model import cluster
from virtco.model import live
from virtco.model import uplinks
from virtco.scheduling import order_and_rates as scheduler
from virtco.scheduling import policies

HOSTS = ('a', 'b', 'c')
EGRESS_BPS = np.array([8.0, 16.0, 32.0])
INGRESS_BPS = np.array([64.0, 80.0, 4.0])
TREE = cluster.Tree((cluster.Subtree('r', 2.0, 1.0),),
                    {'a': 'r', 'b': 'r'})


def ports(tree=None):
    return live.Ports(HOSTS, EGRESS_BPS, INGRESS_BPS, uplinks.of(
        tree, HOSTS, EGRESS_BPS, INGRESS_BPS) if tree else uplinks.NONE)


def flows(**sizes):
    """:param sizes: bytes, by the two hosts."""
    return rows.columns((*pair, size) for pair, size in sizes.items())


def order(*coflows, policy='sebf', tree=None, **options):
    return [one.coflow_id for one in scheduling.schedule(
        coflows, ports(tree), policy=policy, now_s=0.0,
        **options).coflows]


#: Seconds of the whole alone: the slowest of both ports, and with the uplink.
WHOLES = [('ab', 12.0, 12.0, 12.0), ('ba', 12.0, 6.0, 6.0),
          ('ac', 12.0, 24.0, 48.0), ('cb', 12.0, 3.0, 96.0),
          ('ca', 12.0, 3.0, 96.0), ('bc', 12.0, 24.0, 48.0)]


@pytest.mark.parametrize(('pair', 'size_bytes', 'flat_s', 'below_s'), WHOLES)
def test_the_whole_alone_takes_what_its_slowest_port_takes(
        pair, size_bytes, flat_s, below_s):
    for tree, took_s in ((None, flat_s), (TREE, below_s)):
        one = live.LiveCoflow('one', flows(**{pair: 1e-3}),
                              whole=flows(**{pair: size_bytes, 'bb': 1e6}))
        for factor, expected in ((0.99, ['other', 'one']),
                                 (1.01, ['one', 'other'])):
            other = live.LiveCoflow('other', flows(ab=1e-3), whole=flows(
                ab=factor * took_s))
            assert order(one, other, tree=tree) == expected


def test_flows_of_a_port_add_up():
    """a sends to both, and what it receives is of no matter."""
    one = live.LiveCoflow('one', flows(ab=1.0), whole=flows(
        ab=6.0, ac=2.0, ba=4.0))
    for size_bytes, expected in ((7.9, ['other', 'one']),
                                 (8.1, ['one', 'other'])):
        assert order(one, live.LiveCoflow('other', flows(
            ab=1.0), whole=flows(ab=size_bytes))) == expected


def test_what_was_sent_counts_as_what_is_left_does():
    one = live.LiveCoflow('one', flows(ab=2.0), sent_bytes=3.0)
    for size_bytes, expected in ((4.9, ['other', 'one']),
                                 (5.1, ['one', 'other'])):
        assert order(one, live.LiveCoflow('other', flows(
            ab=1.0), whole=flows(ab=size_bytes))) == expected


def test_a_port_without_capacity_takes_for_ever():
    egress_bps = np.array([0.0, 16.0, 32.0])
    one = live.LiveCoflow('one', flows(ab=1.0), whole=flows(ab=1.0))
    other = live.LiveCoflow('two', flows(bc=1e9), whole=flows(bc=1e9))
    made = scheduling.schedule(
        [one, other], live.Ports(HOSTS, egress_bps, INGRESS_BPS),
        policy='sebf', now_s=0.0)
    assert [c.coflow_id for c in made.coflows] == ['two', 'one']
    assert made.coflows[1].predicted_end_s == math.inf


def test_rates_and_ends_and_what_is_left():
    made = scheduling.schedule(
        [live.LiveCoflow('one', flows(ac=2.0, bb=5.0, cb=0.0))], ports(TREE),
        now_s=100.0, size_factor=1.5, first_rank=3)
    (one,) = made.coflows
    # 24 bits upwards through 2 bit/s; c could take 4.
    assert rows.rates(one.flow_rates) == [
        ('a', 'c', 2.0), ('b', 'b', 0.0), ('c', 'b', 0.0)]
    assert (one.rank, one.remaining_cct_s, one.predicted_end_s) == (
        3, 12.0, 112.0)
    assert made.left.egress_bps.tolist() == [6.0, 16.0, 32.0]
    assert made.left.ingress_bps.tolist() == [64.0, 80.0, 2.0]
    assert made.left.uplinks.cap_bps.tolist() == [0.0, 1.0]
    assert made.now_s == 100.0


def test_the_end_under_sharing_is_that_of_the_last_flow():
    made = scheduling.schedule(
        [live.LiveCoflow('one', flows(ab=1.0, cb=3.0))], ports(),
        policy='fair', now_s=10.0)
    rates = {r[:2]: r.rate_bps
             for r in rows.rates(made.coflows[0].flow_rates)}
    assert made.coflows[0].predicted_end_s == pytest.approx(10.0 + max(
        8.0 / rates['a', 'b'], 24.0 / rates['c', 'b']))


def test_late_ones_go_first_and_the_latest_before_them():
    def job(name, compute_s, workers=1):
        return live.LiveCoflow(name, flows(ab=1.0), compute_s=compute_s,
                               workers=workers)

    jobs = [job('a', 1.0), job('b', 2.0), job('c', 3.0), job('d', 2.0, 2)]
    assert order(*jobs, policy='mrtf') == ['d', 'c', 'b', 'a']
    assert order(*jobs, policy='mrtf', late={'b': 7.0, 'a': 5.0}) == [
        'a', 'b', 'd', 'c']
    # A job whose iteration has no bytes has no intensity.
    empty = live.LiveCoflow('empty', flows(ab=2.0), whole=flows(ab=0.0),
                            compute_s=9.0)
    assert order(empty, *jobs, policy='mrtf')[-1] == 'empty'


def test_weights_share_between_those_that_send():
    made = scheduling.schedule([live.LiveCoflow(
        name, flows(ab=0.5, cb=9.0), weight=weight,
        sending=flows(ab=0.25, cb=0.0))
        for name, weight in (('one', 1.0), ('two', 3.0))], ports(),
        policy='weighted-fair', now_s=0.0)
    # Of the 8 bit/s that a sends.
    assert {one.coflow_id: one.flow_rates.rate_bps.tolist()
            for one in made.coflows} == {
        'one': pytest.approx([2.0, 0.0]), 'two': pytest.approx([6.0, 0.0])}
    # What is silent ends nothing later.
    assert {one.coflow_id: one.predicted_end_s for one in made.coflows} == {
        'one': pytest.approx(1.0), 'two': pytest.approx(1 / 3)}


def test_under_fair_all_flows_between_vms_share():
    made = scheduling.schedule([
        live.LiveCoflow('many', flows(ab=1.0, ac=1.0), n_flows=4),
        live.LiveCoflow('one', flows(ab=1.0), n_flows=0)], ports(),
        policy='fair', now_s=0.0)
    rates = {c.coflow_id: c.flow_rates.rate_bps.tolist()
             for c in made.coflows}
    assert rates == {'many': pytest.approx([3.2, 3.2]),
                     'one': pytest.approx([1.6])}


def test_silent_flows_get_nothing_and_others_all():
    speaks = live.LiveCoflow('speaks', flows(ab=1.0))
    silent = live.LiveCoflow('silent', flows(ab=0.5, cb=9.0),
                             sending=flows(ab=0.0, cb=9.0))
    made = scheduling.schedule([speaks, silent], ports(), policy='fifo',
                               now_s=0.0)
    rates = {c.coflow_id: {r[:2]: r.rate_bps for r in rows.rates(
        c.flow_rates)} for c in made.coflows}
    assert rates == {'speaks': {('a', 'b'): 8.0},
                     'silent': {('a', 'b'): 0.0, ('c', 'b'): 32.0}}


def test_the_least_that_is_left():
    least = scheduler.NOTHING_BYTES
    for size_bytes, rate_bps in ((least, 8.0), (0.99 * least, 0.0)):
        (one,) = scheduling.schedule([live.LiveCoflow('one', flows(
            ab=size_bytes))], ports(), now_s=0.0).coflows
        assert one.flow_rates.rate_bps.tolist() == [pytest.approx(rate_bps)]


def test_who_waited_for_theta_goes_first():
    waited = live.LiveCoflow('waited', flows(ab=5.0), arrival_s=1.0,
                             served_s=2.0)
    later = live.LiveCoflow('later', flows(ab=6.0), arrival_s=3.0)
    done = live.LiveCoflow('done', flows(ab=0.0))
    short = live.LiveCoflow('short', flows(ab=1.0), arrival_s=9.0,
                            served_s=9.0)
    made = scheduling.schedule([short, later, waited, done], ports(),
                               now_s=10.0, theta_s=7.0)
    assert [c.coflow_id for c in made.coflows] == [
        'waited', 'later', 'done', 'short']


def test_constants():
    assert (scheduler.HORIZON_S, scheduler.NOTHING_BYTES) == (0.2, 1e-6)
    assert {name: one.trickle for name, one in policies.POLICIES.items()
            if one.trickle} == {'fifo+': 0.03}
    assert [name for name, one in policies.POLICIES.items()
            if not one.classes] == ['fifo', 'fifo+']
    assert [name for name, one in policies.POLICIES.items()
            if one.swaps] == ['mrtf+swap']
    assert [name for name, one in policies.POLICIES.items()
            if policies.backfill(one) == policies.BACKFILL_MAX_MIN] == [
        'weighted-fair']
