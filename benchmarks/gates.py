# SPDX-License-Identifier: Apache-2.0

"""What a look at the gates of training jobs costs the edge module.

``python -m benchmarks.gates`` (root) makes a device in a network namespace
with 15 to 15,000 classes, two of them of jobs with gates. It prints the
processor time of one look that changes nothing, of one in which a gate turns,
and the share of a core that all looks of a second take.
"""

from collections.abc import Container
import dataclasses
import itertools
import threading
import time

from edge_module.classify import nft
from edge_module import enforcer as edge_enforcer
from edge_module.gates import service
from edge_module.privileged import kernel
from edge_module.qdisc import htb
from edge_module.qdisc import wire
from tests.netns.edge import bed as beds
from virtco.table import edge_policy

LINK_BPS = 10e9
COFLOWS = (5, 50, 500, 5000)
LOOKS = 40
GATE = edge_policy.Gate(2.0, 0.0, 0.9, 1e9, 1)


def policy(n_coflows: int) -> edge_policy.EdgePolicy:
    """A class and a child per coflow; the first two have gates."""
    minors = itertools.count(edge_policy.FIRST_MINOR)
    rate_bps = 0.9 * LINK_BPS / n_coflows
    classes = tuple(edge_policy.CoflowClass(
        str(i), str(i), next(minors), rate_bps, LINK_BPS, 0,
        (edge_policy.Destination('h2', next(minors), 1.0, rate_bps,
                                 LINK_BPS),), GATE if i < 2 else None)
        for i in range(n_coflows))
    return edge_policy.EdgePolicy('h1', 1, 60.0, LINK_BPS, LINK_BPS, 2e8,
                                  classes)


class Busy(htb.Uplink):
    """Says that what has a gate sends, or does not."""

    waiting_bytes = 0

    def class_stats(self, wanted: Container[int] | None = None
                    ) -> dict[int, wire.ClassStats]:
        found = super().class_stats(wanted)
        leaf = edge_policy.FIRST_MINOR + 1
        found[leaf] = dataclasses.replace(
            found[leaf], backlog_bytes=self.waiting_bytes)
        return found


def measure(n_coflows: int) -> tuple[float, float]:
    """Processor time of a look in seconds: idle, and with a turn."""
    beds.run('ip', 'link', 'add', 'gates0', 'type', 'veth',
             'peer', 'name', 'gates1')
    beds.run('ip', 'link', 'set', 'gates0', 'up')
    uplink = Busy(kernel, 'gates0')
    enforcer = edge_enforcer.Enforcer(uplink, nft.NftClassifier(kernel),
                                      LINK_BPS, 2e8)
    enforcer.set_policy(policy(n_coflows), 0.0)
    now = [0.0]
    gates = service.Gates(enforcer, threading.Event(), 0.0,
                          wall_s=lambda: now[0], now_s=lambda: now[0])
    idle_s, turned_s = [], []
    for look in range(LOOKS):
        # It waits for two seconds of four.
        uplink.waiting_bytes = 10 ** 6 * (look % 4 < 2)
        now[0] += 1.0
        before = [state.is_open for state in gates.states()]
        cost_s = -time.thread_time()
        gates.look()
        cost_s += time.thread_time()
        after = [state.is_open for state in gates.states()]
        (idle_s if before == after else turned_s).append(cost_s)
    beds.run('ip', 'link', 'del', 'gates0')
    return min(idle_s), min(turned_s)


def main() -> None:
    bed = beds.Bed(1)
    try:
        print('classes  look us  with a turn us  share of a core %')
        for n_coflows in COFLOWS:
            idle_s, turned_s = beds.in_netns(bed.ns('h1'), measure,
                                             n_coflows)
            pause_s = max(service.LOOK_S, idle_s / service.MOST_COST)
            print(f'{3 * n_coflows:7d} {1e6 * idle_s:8.0f} '
                  f'{1e6 * turned_s:15.0f} '
                  f'{100 * idle_s / (pause_s + idle_s):18.2f}')
    finally:
        bed.close()


if __name__ == '__main__':
    main()
