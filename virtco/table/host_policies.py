# SPDX-License-Identifier: Apache-2.0

"""The policies of all hosts by one schedule.

Hosts are rated together and compared together; only those that may differ
from what they were told get a policy of their own.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Set
import dataclasses

import numpy as np

from virtco.model import live
from virtco.table import host_policy
from virtco.table import layouts
from virtco.table import unmanaged
from virtco.wire import edge_policy

#: Makes limits of unmanaged traffic, by host, of layouts and their children's
#: rates.
Limit = Callable[[layouts.Layouts, np.ndarray],
                 Mapping[str, edge_policy.Unmanaged]]
#: Returns the rate up to which each child may borrow, by the children's rates
#: and bytes left.
Lend = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """How a schedule becomes classes.

    :ivar min_rate_fraction: share of the link that is there for the classes
        to which the schedule gives nothing, all of them together.
    """

    min_rate_fraction: float = 0.01
    ttl_s: float = 60.0


def _numbers(laid: layouts.Layouts, schedule: live.Schedule,
             remaining: Mapping[str, np.ndarray], ranks: Mapping[str, int],
             options: Options, lend: Lend | None) -> host_policy.Numbers:
    """Return the numbers of all hosts by a schedule."""
    rates = {c.coflow_id: c.flow_rates.rate_bps
             for c in schedule.coflows} if len(laid.coflow_of) else {}
    at = laid.pair_of if rates else np.zeros(0, np.int64)
    ids = [one.coflow_id for one in laid.coflows] if rates else []
    child_bps = laid.fitted_bps(
        layouts.joined(map(rates.__getitem__, ids))[at],
        options.min_rate_fraction)
    left_bytes = layouts.joined(map(remaining.__getitem__, ids))[at]
    rank = np.array([ranks[one.coflow_id] for one in laid.coflows], np.int64)
    return host_policy.Numbers(
        _places(laid, rank[laid.coflow_of]),
        np.bincount(laid.class_of, child_bps, len(laid.n_children)),
        child_bps, child_bps if lend is None else lend(child_bps, left_bytes),
        left_bytes)


def _far(new: host_policy.Numbers, told: host_policy.Numbers,
         laid: layouts.Layouts, tolerance: float, borrows: bool
         ) -> np.ndarray:
    """Return whether each host's numbers may differ from its last policy's
    beyond the tolerance.

    A small child may move by much of itself and matter to no one, so its class
    is the measure, and the link for ceilings. Whether a class may borrow is no
    matter of a few per cent.

    :param told: NaN where it was told nothing of the kind.
    """
    class_far = ~(np.abs(new.class_bps - told.class_bps) <= tolerance
                  * np.maximum(new.class_bps, told.class_bps))
    class_far |= new.prios != told.prios
    class_far[laid.class_of[~(
        np.abs(new.child_bps - told.child_bps)
        <= tolerance * new.class_bps[laid.class_of])]] = True
    if borrows:
        egress_bps = laid.egress_bps[laid.host_of]
        class_far |= ((egress_bps > new.class_bps)
                      != (egress_bps > told.class_bps))
        class_far[laid.class_of[~(
            np.abs(new.child_ceil_bps - told.child_ceil_bps)
            <= tolerance * egress_bps[laid.class_of])]] = True
    found: np.ndarray = np.bincount(
        laid.host_of[class_far], minlength=len(laid.of_link)) > 0
    return found


def _places(laid: layouts.Layouts, rank: np.ndarray) -> np.ndarray:
    """Return the place of each class in its host's order; late ones share one.

    :param rank: rank of each class's coflow in the cloud.
    """
    order = np.lexsort((rank, laid.host_of))
    starts = np.array(laid.class_ends, np.int64)[laid.host_of]
    found = np.empty(len(rank), np.int64)
    found[order] = np.arange(len(rank)) - starts
    return np.minimum(found, host_policy.LAST_PRIO)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class HostPolicies:
    """The last policies of all hosts.

    :ivar borrows: whether classes may borrow.
    :ivar changed: hosts whose policy is new.
    :ivar numbers: numbers of the policies, laid out as in ``layouts``; NaN
        where a host's policy has another layout.
    :ivar is_other: whether a new policy of each host may differ in more than
        numbers, shape (n_hosts,).
    :ivar limits: limits of unmanaged traffic by host.
    :ivar reached: hosts to which unmanaged traffic goes.
    """

    layouts: layouts.Layouts
    options: Options
    borrows: bool
    of_host: Mapping[str, host_policy.HostPolicy]
    changed: tuple[str, ...]
    numbers: host_policy.Numbers
    is_other: np.ndarray
    limits: Mapping[str, edge_policy.Unmanaged] = dataclasses.field(
        default_factory=dict)
    reached: Set[str] = frozenset()


def update(laid: layouts.Layouts, schedule: live.Schedule,
           remaining: Mapping[str, np.ndarray], ranks: Mapping[str, int],
           options: Options = Options(), tolerance: float = 0.0,
           before: HostPolicies | None = None, limit: Limit | None = None,
           lend: Lend | None = None, reached: Set[str] = frozenset()
           ) -> HostPolicies:
    """Make a policy per link.

    A host keeps the policy it has, the same object, while the new one would
    say the same up to the tolerance.

    :param schedule: schedule of all coflows of ``laid``, with their pairs;
        without any, flows are only counted: all stay in the default class.
    :param remaining: bytes left of each pair, per coflow.
    :param ranks: ranks of the coflows, 0 is served first.
    :param lend: None: no class borrows.
    :param reached: hosts to which unmanaged traffic goes; less of their links
        is lent. That is little, and yet news when it changes.
    """
    new = _numbers(laid, schedule, remaining, ranks, options, lend)
    told = _laid_anew(laid, options, lend is not None, before)
    limits = limit(laid, new.child_bps) if limit is not None else {}
    policies = dict(told.of_host)
    numbers = host_policy.Numbers(*(some.copy() for some in told.numbers))
    is_other = told.is_other.copy()
    far = _far(new, told.numbers, laid, tolerance, lend is not None)
    if limits is not told.limits and (limits or told.limits):
        is_other |= np.array([not unmanaged.is_close(
            policies[link.host].unmanaged if link.host in policies else None,
            limits.get(link.host), host_policy.UNMANAGED_TOLERANCE)
            for link in laid.links], np.bool_)
    is_other_reach = laid.sends_to(reached ^ told.reached)
    changed = []
    for i in np.flatnonzero(far | is_other | is_other_reach).tolist():
        link, layout = laid.links[i], laid.of_link[i]
        classes = slice(laid.class_ends[i], laid.class_ends[i + 1])
        children = slice(laid.child_ends[i], laid.child_ends[i + 1])
        where = classes, classes, children, children, children
        made = host_policy.HostPolicy(
            layout, link, options.ttl_s, ranks,
            host_policy.Numbers(*(some[at].copy()
                                  for some, at in zip(new, where))),
            lend is not None, limits.get(link.host))
        old = policies.get(link.host)
        if not far[i] and not is_other_reach[i] and old is not None and (
                old.is_close(made, tolerance)):
            # The same link and limits are close to the told ones again.
            is_other[i] = bool(layout.rivals)
            continue
        changed.append(link.host)
        policies[link.host] = made
        for some, at, values in zip(numbers[:-1], where, made.numbers):
            some[at] = values
        is_other[i] = bool(layout.rivals)
    return HostPolicies(laid, options, lend is not None, policies,
                        tuple(changed), numbers, is_other, limits,
                        frozenset(reached))


def _laid_anew(laid: layouts.Layouts, options: Options, borrows: bool,
               before: HostPolicies | None) -> HostPolicies:
    """Return the earlier policies that the present layouts have numbers for.
    """
    if before is not None and before.layouts is laid and (
            before.options == options and before.borrows == borrows):
        return before
    known = [None if before is None else before.of_host.get(link.host)
             for link in laid.links]
    known = [old if old is not None and old.borrows == borrows
             and old.layout.says_same(layout) else None
             for old, layout in zip(known, laid.of_link)]

    def joined(place: int, ends: list[int]) -> np.ndarray:
        return layouts.joined(
            old.numbers[place] if old is not None else np.full(n, np.nan)
            for old, n in zip(known, np.diff(ends)))

    return HostPolicies(
        laid, options, borrows, {old.link.host: old for old in known
                        if old is not None}, (), host_policy.Numbers(
            joined(0, laid.class_ends), joined(1, laid.class_ends),
            joined(2, laid.child_ends), joined(3, laid.child_ends),
            np.zeros(0)),
        np.array([old is None or old.link is not link
                  or bool(old.layout.rivals)
                  or old.ttl_s != options.ttl_s
                  for old, link in zip(known, laid.links)], bool),
        before.limits if before is not None else {},
        before.reached if before is not None else frozenset())
