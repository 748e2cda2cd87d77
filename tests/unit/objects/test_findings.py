# SPDX-License-Identifier: Apache-2.0

"""What checks found poor, over a real database and real metrics."""

import msgspec
import prometheus_client
import pytest

from tests.unit import stored
from virtco import metrics
from virtco.measure import preflight
from virtco.objects import findings
from virtco.state import live_state
from virtco.topology import tree
from virtco.wire import check as wire

KIND = preflight.Kind
PLANE = tree.Plane(roots=(
    tree.Node('r0', ('h0', 'h1'), uplink=tree.Uplink(8e9, 9e9)),
    tree.Node('r1', ('h2',), uplink=tree.Uplink(6e9, 7e9))))


class Bench:
    def __init__(self):
        self.database = stored.database()
        self.counts = metrics.Metrics(has_names=True)
        self.live = live_state.LiveState(plane=lambda: PLANE)
        self.now_s, self.n_changes = 100.0, 0
        self.state = stored.state(self.database, self.live,
                                  changed=self.changed)
        self.findings = self.process()

    def process(self):
        return findings.Findings(self.state, self.counts,
                                 lambda: self.now_s)

    def changed(self):
        self.n_changes += 1

    def conclude(self, subjects, *found):
        self.findings.conclude(subjects, found)

    def alerts(self):
        text = prometheus_client.generate_latest(
            self.counts.registry).decode()
        return [line for line in text.splitlines()
                if 'poor' in line and not line.startswith('#')]

    def held(self, known=None):
        return [(one.subject, one.kind)
                for one in (known or self.findings).all()]

    def uplinks(self):
        """Rates that coflows may use, without the others' share."""
        return {one.name: (round(one.uplink_out_bps),
                           round(one.uplink_in_bps))
                for one in self.live.wire_tree(1.0).subtrees}


def poor(subject='r0', kind=KIND.UPLINK, rate_bps=2e9, expected_bps=8e9):
    return wire.Finding(kind=kind.value, subject=subject, rate_bps=rate_bps,
                        expected_bps=expected_bps, evidence=[])


@pytest.fixture
def bench():
    return Bench()


def test_a_finding_holds_until_a_check_finds_it_well(bench):
    assert bench.findings.refresh() and bench.n_changes == 0
    bench.conclude({'r0', 'r1'}, poor(), poor('r1', KIND.DOWNLINK, 1e9, 7e9))
    assert bench.held() == [('r0', KIND.UPLINK), ('r1', KIND.DOWNLINK)]
    assert bench.n_changes == 1
    # Another check says nothing of r1.
    bench.now_s = 200.0
    bench.conclude({'r0'}, poor(kind=KIND.DOWNLINK))
    assert bench.held() == [('r0', KIND.DOWNLINK), ('r1', KIND.DOWNLINK)]
    bench.conclude({'r0', 'r1'})
    assert bench.held() == [] and bench.n_changes == 3
    assert not bench.findings.refresh() and bench.n_changes == 3


def test_what_is_well_again_is_logged(bench, caplog):
    caplog.set_level('INFO', findings.__name__)
    bench.conclude({'r0', 'r1'}, poor(), poor('r1', KIND.DOWNLINK),
                   poor('r2'))
    bench.conclude({'r0', 'r1'}, poor('r1', KIND.DOWNLINK))
    assert [record.getMessage() for record in caplog.records
            if 'again' in record.getMessage()] == [
        'Check: leaf-uplink of r0 is well again.']


def test_what_a_finding_says(bench):
    bench.conclude({'r0'}, wire.Finding(
        kind='leaf-uplink', subject='r0', rate_bps=2e9, expected_bps=8e9,
        evidence=[wire.Reading('h0', 'h2', 1e9)]))
    (held,) = bench.findings.all()
    assert msgspec.to_builtins(held) == {
        'kind': 'leaf-uplink', 'subject': 'r0', 'rate_bps': 2e9,
        'expected_bps': 8e9, 'found': 100.0,
        'evidence': [{'src': 'h0', 'dst': 'h2', 'rate_bps': 1e9}]}
    assert (held.rate_bps, held.expected_bps) == (2e9, 8e9)


def test_a_poor_uplink_limits_coflows_in_its_direction(bench):
    assert bench.uplinks() == {'r0': (8e9, 9e9), 'r1': (6e9, 7e9)}
    bench.conclude({'r0', 'r1'}, poor(), poor('r1', KIND.DOWNLINK, 1e9),
                   poor('r1', KIND.EGRESS, 1e8))
    assert bench.uplinks() == {'r0': (2e9, 9e9), 'r1': (6e9, 1e9)}
    bench.conclude({'r0'}, poor(), poor(kind=KIND.DOWNLINK, rate_bps=3e9))
    assert bench.uplinks() == {'r0': (2e9, 3e9), 'r1': (6e9, 1e9)}


def test_another_process_learns_of_it(bench):
    other = bench.process()
    assert other.refresh()
    bench.conclude({'r0'}, poor())
    n_changes = bench.n_changes
    assert other.refresh() and bench.n_changes == n_changes + 1
    assert bench.held(other) == [('r0', KIND.UPLINK)]
    assert not other.refresh()
    # Also where the clock stands still, or was put back.
    bench.now_s = 50.0
    bench.conclude({'r0'}, poor(rate_bps=1e9))
    assert other.refresh()
    assert [one.rate_bps for one in other.all()] == [1e9]
    (held,) = other.all()
    assert held.found == pytest.approx(100.001)
    # Who begins with findings has something to tell.
    n_changes = bench.n_changes
    assert bench.process().refresh() and bench.n_changes == n_changes + 1


def test_the_leader_raises_the_alerts(bench):
    bench.conclude({'r0'}, poor())
    (alert,) = bench.alerts()
    assert 'r0' in alert and alert.endswith(' 0.25')
    bench.conclude({'r0', 'r1'}, poor('r1'))
    (alert,) = bench.alerts()
    assert 'r1' in alert
    bench = Bench()
    bench.state.tell_leader = object()
    bench.conclude({'r0'}, poor())
    assert bench.alerts() == []
    bench.state.tell_leader = None
    bench.findings.show()
    assert len(bench.alerts()) == 1


def test_who_does_not_lead_any_more_concludes_nothing(bench):
    def fence(session):
        raise RuntimeError('overtaken')

    bench.database.fence = fence
    with pytest.raises(RuntimeError):
        bench.conclude({'r0'}, poor())
    bench.findings.refresh()
    assert bench.held() == []
