# SPDX-License-Identifier: Apache-2.0

"""The rules by which a coflow in flight ends or is looked at again. Pure."""

import math

import numpy as np

from virtco.model import states
from virtco.scheduling import endings
from virtco.state import byte_counters
from virtco.state import inflight
from virtco.state import remaining_flows


def find_end(tracked: inflight.Tracked, now_s: float, rules: endings.Rules,
             has_sibling: bool = False) -> str:
    """Return the rule that ends the coflow now; empty for none.

    :param has_sibling: another coflow of the group is in flight: what
        its VMs send beyond this one's size may be that one's.
    """
    if tracked.state != states.CoflowState.ACTIVE:
        return ''
    if tracked.watched_since_s is None:
        tracked.watched_since_s = now_s
    if now_s - tracked.stalled_since_s >= rules.give_up_s:
        left_bytes = float(tracked.progress.remaining_bytes().sum())
        return (f'given up: hardly a byte for {rules.give_up_s:g} s, '
                f'{left_bytes:.0f} bytes were not counted')
    tracked.was_placed |= tracked.route.is_complete
    if not tracked.was_placed:
        return ''
    if tracked.route.local.size:
        tracked.progress.complete(tracked.route.local)
    if tracked.sending.is_queued:
        return ''
    silent_s = None if tracked.moved_s is None else now_s - tracked.moved_s
    if tracked.model.is_estimated:
        # Silence alone tells, and that of any VM may be a pause.
        return 'silent, of no hinted size' if (
            silent_s is not None and silent_s
            >= max(rules.quiet_s, byte_counters.FLOW_RESTS_S)) else ''
    if (remaining_flows.is_exceeded(tracked, rules) and not tracked.has_more
            and not has_sibling):
        # More than was hinted: perhaps it goes on.
        return 'silent after more than the hint' if (
            silent_s is not None and silent_s >= rules.quiet_s) else ''
    left_bytes = tracked.crossing_bytes + _away_bytes(tracked)
    if not endings.has_ended(tracked.model.size_bytes, left_bytes, silent_s,
                             rules):
        return ''
    if not endings.is_all_sent(tracked.model.size_bytes, left_bytes, rules):
        return 'silent after most of the hint'
    if tracked.all_counted_s is None:
        tracked.all_counted_s = now_s
    if not tracked.has_more and endings.has_tail(
            silent_s, now_s - tracked.all_counted_s, rules):
        return ''
    return 'all bytes sent'


def _away_bytes(tracked: inflight.Tracked) -> float:
    """Return the bytes left to or from VMs on no host (shelved)."""
    if tracked.route.is_complete:
        return 0.0
    absent = [index for index, member in tracked.members.items()
              if member.instance_uuid
              and not (member.running and member.host)]
    matrix = tracked.model.matrix
    return float(tracked.progress.remaining_bytes()[
        np.isin(matrix.src, absent) | np.isin(matrix.dst, absent)].sum())


def rest_until(tracked: inflight.Tracked, now_s: float, rules: endings.Rules
               ) -> None:
    """Set the time at which silence may change the state next."""
    times_s = [math.inf if tracked.expires_s is None else tracked.expires_s,
               math.inf]
    if tracked.state == states.CoflowState.ACTIVE:
        times_s.append(tracked.stalled_since_s + rules.give_up_s)
    if tracked.moved_s is not None:
        times_s += [tracked.moved_s + rules.quiet_s,
                    tracked.moved_s + rules.pause_s]
        if tracked.model.is_estimated:
            times_s.append(tracked.moved_s + max(
                rules.quiet_s, byte_counters.FLOW_RESTS_S))
        if tracked.all_counted_s is not None:
            times_s += [tracked.moved_s + rules.tail_s,
                        tracked.all_counted_s + rules.longest_tail_s]
    if tracked.ended_s is not None:
        times_s.append(tracked.ended_s + rules.settle_s)
    # A rounding error must not let the moment pass by.
    tracked.check_s = min([time_s for time_s in times_s
                           if time_s >= now_s - 1e-6])
