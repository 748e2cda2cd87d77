# SPDX-License-Identifier: Apache-2.0

"""The order of many coflows, as real TCP meets it."""

import contextlib
import time

import pytest

from edge_module.tcplan import model
from tests.netns import gear
from tests.netns.edge import bed as beds
from tests.netns.edge import policies

LINK_BPS = 40e6
GOODPUT = 1448 / 1514
WAITING_BPS = 8000
COFLOWS = 20
# As the agent has it by default: on this link every leaf cuts.
SETTINGS = model.TreeSettings(link_packet_s=0.004)

pytestmark = [
    pytest.mark.netns,
    pytest.mark.real_time(reason='measures the rate of TCP transfers')]


def _ranked(senders, sink, rate_bps):
    """A policy in which every coflow may have the whole link."""
    builder = policies.PolicyBuilder('h1', LINK_BPS)
    for rank in range(COFLOWS):
        sender = senders[rank % len(senders)]
        builder.coflow(f'C{rank}', rate_bps, [(sender, sink, 1)],
                       prio=min(rank, 7), port=5000 + rank)
    return builder.build()


@gear.full(
    'unit/edge/test_tcplan.py::test_coflows_have_turns_in_their_order; that '
    'turns are kept: netns/edge/test_shaping.py::'
    'test_idle_bandwidth_goes_to_the_first_in_rank')
def test_twenty_coflows_have_turns_in_their_order(make_bed, edge_of):
    """All guarantees are equal, so the order alone decides about the rest."""
    bed = make_bed(2)
    edge = edge_of(bed, 'h1', link_bps=LINK_BPS, settings=SETTINGS)
    members, stranger, sink = (bed.add_vm('h1'), bed.add_vm('h1')), (
        bed.add_vm('h1')), bed.add_vm('h2')
    edge.set_ports()
    edge.set_policy(_ranked(members, sink, 0.2e6))
    flows = [beds.Flow(members[rank % 2], sink, 5000 + rank)
             for rank in range(COFLOWS)]
    *rates, unmanaged = beds.measure(
        [*flows, beds.Flow(stranger, sink, 6000)], 3.0, 4.0)
    left_bps = LINK_BPS * GOODPUT - (COFLOWS - 1) * 0.2e6
    assert sum(rates) + unmanaged == pytest.approx(LINK_BPS * GOODPUT,
                                                   rel=0.06)
    assert rates[0] > 0.5 * left_bps, rates
    assert rates[0] > 2 * rates[1] > 2 * rates[2], rates
    assert unmanaged < 0.02 * LINK_BPS


@gear.full(
    'unit/edge/test_tcplan.py::test_coflows_have_turns_in_their_order')
def test_another_order_counts_while_queues_are_full(make_bed, edge_of):
    """The kernel would not look at another priority before a queue is empty.
    """
    bed = make_bed(2)
    edge = edge_of(bed, 'h1', link_bps=LINK_BPS, settings=SETTINGS)
    members, sink = (bed.add_vm('h1'), bed.add_vm('h1')), bed.add_vm('h2')
    edge.set_ports()

    def order(*places):
        builder = policies.PolicyBuilder('h1', LINK_BPS)
        for number, place in enumerate(places):
            builder.coflow(f'C{number}', 0.2e6, [(members[number], sink, 1)],
                           prio=place, port=5000 + number)
        edge.set_policy(builder.build())

    order(0, 1)
    flows = [beds.Flow(vm, sink, 5000 + number).start()
             for number, vm in enumerate(members)]
    for first in (0, 1, 0):
        order(first, 1 - first)
        time.sleep(0.3)
        before = [edge.stats()[minor].sent_bytes for minor in (0x11, 0x13)]
        time.sleep(0.7)
        sent = [edge.stats()[minor].sent_bytes - had
                for minor, had in zip((0x11, 0x13), before)]
        assert sent[first] > 3 * sent[1 - first], (first, sent)
    for flow in flows:
        flow.close()


@gear.full(
    'unit/edge/test_tcplan.py::test_control_packets_of_ports_have_places, '
    'netns/edge/test_control.py::test_only_packets_without_data_are_moved')
def test_connections_open_at_once_in_any_rank(make_bed, edge_of):
    """Coflows that wait at 8 kbit/s, each behind a queue of its own data."""
    bed = make_bed(2)
    edge = edge_of(bed, 'h1', link_bps=LINK_BPS, settings=SETTINGS)
    members, sink = (bed.add_vm('h1'), bed.add_vm('h1')), bed.add_vm('h2')
    edge.set_ports()
    edge.set_policy(_ranked(members, sink, WAITING_BPS))
    ranks = (0, 1, 6, 7, 12, 19)
    idle_s = max(_opened_s(members[rank % 2], sink, rank) for rank in ranks)
    with contextlib.ExitStack() as stack:
        for rank in ranks:
            flow = beds.Flow(members[rank % 2], sink, 5000 + rank).start()
            stack.callback(flow.close)
        for rank in ranks[1:]:
            minor = _minor(rank)
            beds.wait_for(lambda: edge.stats()[minor].backlog_bytes > 13_000,
                          10, f'a queue of rank {rank}')
        for rank in ranks:
            took_s = sorted(_opened_s(members[rank % 2], sink, rank)
                            for _ in range(5))
            # The first connects meet a machine that is busy with others.
            assert took_s[2] <= 0.05 + idle_s, (rank, took_s)
            assert took_s[-1] < 1, (rank, took_s)


def _minor(rank):
    """Class of a coflow's only destination; see ``PolicyBuilder``."""
    return 0x11 + 2 * rank


def _opened_s(sender, sink, rank):
    started_s = time.monotonic()
    flow = beds.Flow(sender, sink, 5000 + rank)
    took_s = time.monotonic() - started_s
    flow.close_now()
    return took_s
