# SPDX-License-Identifier: Apache-2.0

"""All that is kept by name: who reads it, and when."""

import pytest

from tests.unit import made
from tests.unit.objects import test_findings
from tests.unit.state import test_live_state as known
from tests.unit.state import test_state
from virtco.db import models
from virtco.profiles import pairs
from virtco.topology import tree


@pytest.fixture
def bench():
    return test_state.Bench()


@pytest.fixture
def follower(bench):
    return test_state.Bench(bench.database, leads=False)


def test_findings_are_read_by_all_and_rates_by_those_who_follow(
        bench, follower):
    bench.state.measured(made.measurement('a', 'b', 1e9))
    bench.state.flush()
    follower.objects._read()
    assert follower.state.rates.hosts()['a'].egress_bps == 1e9
    alone = test_state.Bench(bench.database)
    alone.objects._read()
    assert alone.state.rates.hosts() == {}


def test_a_topology_that_another_process_took_over_is_read(bench, follower):
    plane = tree.Plane(roots=(tree.Node(
        'r', ('h0',), uplink=tree.Uplink(1e9, 2e9)),))
    bench.objects.topology.replace((plane,))
    follower.objects._read()
    assert follower.objects.topology.get().planes == (plane,)


def test_who_leads_reads_what_a_peer_did_and_no_word_told(bench, follower):
    follower.state.live.meet({'h0'}, 1.0)
    follower.objects.drains.drain('h0', 'disk', 'admin')
    follower.objects.settings.change({'order': 'fair'}, 'admin')
    told = []
    bench.state.on_change.append(told.append)
    bench.objects._read()
    assert bench.state.live.drained == {'h0'} and told == [True]
    assert bench.objects.settings.is_fair
    bench.objects._read()
    assert told == [True]


def test_who_leads_writes_profiles_until_it_stops(bench):
    bench.group()
    bench.state.refresh()
    # Who does not lead writes none.
    bench.state.live.intake('h1', known.report(20, coflow_id='c-p-a'), 1.0)
    bench.turns.stop()
    assert bench.rows(models.ProfileHour) == []
    bench.objects.lead()
    bench.turns.stop()
    (row,) = bench.rows(models.ProfileHour)
    assert pairs.decode(row.pairs) == {(1, 2): 20.0}


def test_all_that_operators_said_survives_a_restart(bench):
    bench.state.live.meet({'h0'}, 1.0)
    bench.objects.drains.drain('h0', 'disk', 'admin')
    bench.objects.settings.change({'order': 'fair'}, 'admin')
    bench.objects.topology.replace((tree.Plane(roots=(
        tree.Node('r', ('h0',), uplink=tree.Uplink(1e9, 2e9)),)),))
    bench.objects.findings.conclude({'r'}, [test_findings.poor(
        'r', rate_bps=0.5e9, expected_bps=1e9)])
    again = test_state.Bench(bench.database)
    again.state.load()
    assert again.state.live.drained == {'h0'}
    assert again.objects.settings.is_fair
    assert again.objects.topology.get() == bench.objects.topology.get()
    (uplink,) = again.state.live.wire_tree(1.0).subtrees
    assert uplink.uplink_out_bps == pytest.approx(0.5e9)


def test_who_leads_raises_the_alerts(bench, follower):
    bench.objects.findings.conclude({'r'}, [test_findings.poor(
        'r', rate_bps=0.5e9, expected_bps=1e9)])

    def alert():
        return follower.objects.findings._counts.registry.get_sample_value(
            'virtco_poor_ratio', {'kind': 'leaf-uplink', 'subject': ''})

    follower.objects._read()
    assert len(follower.objects.findings.all()) == 1 and alert() is None
    follower.state.lead()
    follower.objects.lead()
    try:
        assert alert() == 0.5
    finally:
        follower.turns.stop()
