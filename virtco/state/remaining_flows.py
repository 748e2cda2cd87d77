# SPDX-License-Identifier: Apache-2.0

"""A coflow in flight as the scheduler sees it: its remaining flows. Pure."""

from collections.abc import Collection
import math

import numpy as np

from virtco.model import live
from virtco.scheduling import endings
from virtco.state import capped_flows
from virtco.state import inflight
from virtco.state import schedule_input
from virtco.state import silent_flows
from virtco.table import coflow_table


def is_exceeded(tracked: inflight.Tracked, rules: endings.Rules) -> bool:
    """Tell whether a coflow has sent more than its matrix says."""
    return endings.is_exceeded(*tracked.crossed_bytes, rules)


def is_overrun(tracked: inflight.Tracked, rules: endings.Rules) -> bool:
    """Tell whether the excess is so large that the hint was wrong."""
    return not tracked.model.is_estimated and endings.is_overrun(
        *tracked.crossed_bytes, rules)


def _unhinted_bytes(tracked: inflight.Tracked, rules: endings.Rules
                    ) -> np.ndarray:
    """Estimate the bytes that an overrun will still send, shape
    (n_pairs,): the rest up to twice the hint, then up to four times, and
    further on, for the flows that send.
    """
    counting = tracked.counting
    size_bytes, sent_bytes = tracked.crossed_bytes
    expected_bytes = size_bytes * 2 ** math.floor(
        1 + math.log2(sent_bytes / size_bytes))
    sends = counting.rested_s(tracked.moved_s or 0.0) < rules.quiet_s
    return tracked.route.per_pair(counting.sizes_bytes * (
        sends * ((expected_bytes - sent_bytes) / size_bytes)))


def _left_now_bytes(tracked: inflight.Tracked, rules: endings.Rules
                    ) -> np.ndarray:
    """Return the bytes left per pair, hinted or expected, shape (n_pairs,).
    """
    left_bytes = tracked.left_bytes(tracked.route)
    if tracked.model.is_estimated or not endings.is_all_sent(
            tracked.model.size_bytes, tracked.crossing_bytes, rules):
        return left_bytes
    if is_overrun(tracked, rules):
        return _unhinted_bytes(tracked, rules)
    if tracked.sending.is_queued or not is_exceeded(tracked, rules):
        # Counters see packets that TCP sends twice, so some data may still be
        # on its way, where there is a queue. Tails everywhere would hold all
        # of the coflow's ports for the rest on one of them.
        return tracked.sending.queued_bytes(tracked.route.pairs, left_bytes)
    return left_bytes


def _served(tracked: inflight.Tracked) -> live.Flows:
    """Return the sent bytes per pair."""
    counting = tracked.counting
    named_bytes = float(counting.sent_bytes.sum())
    return live.Flows(tracked.route.pairs, tracked.route.per_pair(
        counting.sent_bytes) * (counting.all_bytes / named_bytes
                                if named_bytes > 0 else 1.0))


def _sending(tracked: inflight.Tracked, left_bytes: np.ndarray,
             rules: endings.Rules, heard_s: silent_flows.Heard
             ) -> live.Flows | None:
    """Return the remaining flows without silent ones; None where none is
    silent.

    :param left_bytes: bytes left of each pair.
    """
    silent_bytes = silent_flows.silent_bytes(tracked, heard_s, rules)
    if silent_bytes is None:
        return None
    return live.Flows(tracked.route.pairs,
                      np.maximum(0.0, left_bytes - silent_bytes))


def _live(tracked: inflight.Tracked, drawn: inflight.Drawn,
          strangers: Collection[str], rules: endings.Rules,
          heard_s: silent_flows.Heard, in_debt: bool) -> live.LiveCoflow:
    """Return the flows that are left; see :func:`shown`."""
    pairs, span = tracked.route.pairs, tracked.counting.span
    left_bytes = _left_now_bytes(tracked, rules)
    has_strangers = not pairs.hosts.isdisjoint(strangers)
    if has_strangers:
        left_bytes *= [src not in strangers and dst not in strangers
                       for src, dst in pairs]
    return live.LiveCoflow(
        tracked.coflow_id, live.Flows(pairs, left_bytes),
        tracked.arrival_s or 0.0, tracked.moved_s or tracked.arrival_s or 0.0,
        tracked.counting.all_bytes, tracked.priority_class, tracked.weight,
        len(tracked.model.matrix),
        whole=None if has_strangers or tracked.model.is_estimated
        else tracked.whole,
        served=_served(tracked) if tracked.model.is_estimated or in_debt
        or is_overrun(tracked, rules) else None,
        compute_s=tracked.compute_s if tracked.model.is_by_intensity else 0.0,
        workers=tracked.model.n_vms,
        sending=_sending(tracked, left_bytes, rules, heard_s),
        deadline_s=tracked.deadline_s, is_promised=tracked.is_promised,
        capped=drawn.capped.shown(tracked.counting.left_bytes())
        if drawn.capped is not None else None,
        least_s=drawn.least_s,
        began_s=span.first_byte_s if span is not None else None)


def _table(tracked: inflight.Tracked, addresses: inflight.Addresses
           ) -> coflow_table.TableCoflow:
    """Build the flows between hosts, with the addresses of their VMs."""
    route = tracked.route
    flows = []
    for i in route.crossing.tolist():
        src_vm, dst_vm = tracked.vms(i)
        src_host, dst_host = route.pairs[route.pair_of[i]]
        _, dst_ips, _, dst_macs = addresses.get(
            dst_vm, ('', (), (0.0, 0.0), ()))
        flows.append(coflow_table.VmFlow(
            src_vm=src_vm, src_host=src_host,
            src_ips=addresses.get(src_vm, ('', ()))[1],
            dst_host=dst_host, dst_ips=dst_ips, dst_macs=dst_macs))
    return coflow_table.TableCoflow(
        tracked.coflow_id, tracked.name, flows, tracked.model.dst_port,
        route.pairs)


def shown(tracked: inflight.Tracked, strangers: Collection[str],
          rules: endings.Rules, addresses: inflight.Addresses,
          heard_s: silent_flows.Heard = silent_flows.never,
          in_debt: bool = False) -> schedule_input.Coflow:
    """Show a coflow to the scheduler; the same object until a change.

    :param strangers: hosts of which nothing is known; a flow of theirs waits
        and delays no other.
    :param heard_s: time of a host's last report; -inf = never.
    :param in_debt: its project owes, so its hints are not believed.
    """
    if tracked.shown is None or tracked.shown[1] != in_debt:
        drawn = tracked.drawn
        if drawn is None:
            drawn = tracked.drawn = inflight.Drawn(
                _table(tracked, addresses),
                capped_flows.find(tracked, addresses),
                capped_flows.least_s(tracked, addresses))
        tracked.shown = schedule_input.Coflow(
            _live(tracked, drawn, strangers, rules, heard_s, in_debt),
            drawn.table, tracked.moved_s, tracked.sending.is_queued,
            tracked.upcoming is not None,
            tracked.sending.rates_bps(tracked.route.pairs)), in_debt
    return tracked.shown[0]
