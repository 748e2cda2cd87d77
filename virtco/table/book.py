# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The sheets of all hosts at once.

A cloud has thousands of hosts, and between two schedules few of them have
anything new to do. So the classes of all hosts lie end to end in a few
arrays, are rated together and compared together; only hosts that may differ
from what they were told get a sheet of their own.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import itertools

import numpy as np

from virtco.model import live
from virtco.table import coflow_table
from virtco.table import edge_policy
from virtco.table import sheet
from virtco.table import unmanaged

Sheets = Mapping[str, sheet.Sheet]
Limit = Callable[['Book', np.ndarray], Mapping[str, edge_policy.Unmanaged]]


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """How a schedule becomes classes.

    :ivar work_conserving: ceil is the link instead of the allocated rate.
    :ivar min_rate_fraction: share of the link that is there for the classes
        to which the schedule gives nothing, all of them together.
    """

    work_conserving: bool = False
    min_rate_fraction: float = 0.01
    ttl_s: float = 60.0


@dataclasses.dataclass(frozen=True, eq=False)
class Book:
    """The layout of each link's host, and all their classes and children.

    :ivar coflows: of which all of them are.
    :ivar new_minors: of the hosts where they are others than was given.
    """

    links: Sequence[coflow_table.Link]
    layouts: tuple[sheet.Layout, ...]
    coflows: tuple[coflow_table.TableCoflow, ...]
    new_minors: Mapping[str, coflow_table.Minors] = dataclasses.field(
        default_factory=dict)

    def holds(self, minors: Mapping[str, coflow_table.Minors],
              is_counted: bool, protect: bool) -> bool:
        """Whether its layouts would be made again while its coflows stay."""
        asked = id(minors), is_counted, protect
        known = self.__dict__.get('_holds')
        if known is None or known[0] != asked or known[1] is not minors:
            found = all(_holds(layout, minors, is_counted, protect)
                        for layout in self.layouts)
            known = self.__dict__['_holds'] = asked, minors, found
        is_held: bool = known[2]
        return is_held

    @functools.cached_property
    def n_classes(self) -> np.ndarray:
        """Of each host, shape (n_hosts,)."""
        return np.array([len(some.classes) for some in self.layouts],
                        np.int64)

    @functools.cached_property
    def class_ends(self) -> list[int]:
        """Where the classes of each host begin, and where all end."""
        return [0, *np.cumsum(self.n_classes).tolist()]

    @functools.cached_property
    def child_ends(self) -> list[int]:
        return [0, *np.cumsum([len(some.peers)
                               for some in self.layouts]).tolist()]

    @functools.cached_property
    def n_children(self) -> np.ndarray:
        """Of each class."""
        return _joined((some.n_children for some in self.layouts), np.int64)

    @functools.cached_property
    def class_of(self) -> np.ndarray:
        """Of each child."""
        found: np.ndarray = np.repeat(np.arange(len(self.n_children)),
                                      self.n_children)
        return found

    @functools.cached_property
    def host_of(self) -> np.ndarray:
        """Of each class."""
        return np.repeat(np.arange(len(self.layouts)), self.n_classes)

    @functools.cached_property
    def coflow_of(self) -> np.ndarray:
        """Of each class."""
        number = {id(one): i for i, one in enumerate(self.coflows)}
        return np.array([number[id(one)] for some in self.layouts
                         for one in some.classes], np.int64)

    @functools.cached_property
    def pair_of(self) -> np.ndarray:
        """Of each child, among the pairs of all coflows."""
        start = np.cumsum([0, *(len(one.pairs) for one in self.coflows)])
        found: np.ndarray = start[self.coflow_of][self.class_of] + _joined(
            (some.places for some in self.layouts), np.int64)
        return found

    @functools.cached_property
    def peers(self) -> tuple[str, ...]:
        """Hosts at which coflows arrive."""
        return tuple(dict.fromkeys(peer for some in self.layouts
                                   for peer in some.peers))

    @functools.cached_property
    def peer_of(self) -> np.ndarray:
        """Of each child."""
        number = {peer: i for i, peer in enumerate(self.peers)}
        return np.array([number[peer] for some in self.layouts
                         for peer in some.peers], np.int64)

    @functools.cached_property
    def egress_bps(self) -> np.ndarray:
        return np.array([link.egress_bps for link in self.links], np.float64)

    @functools.cached_property
    def limit_bps(self) -> np.ndarray:
        """What all classes of a host may have together."""
        return self.egress_bps - np.array(
            [link.default_rate_bps for link in self.links], np.float64)

    @functools.cached_property
    def unlimited(self) -> Mapping[str, edge_policy.Unmanaged]:
        """What hosts are told of unmanaged traffic that send none, while
        coflows arrive at others.
        """
        return {link.host: unmanaged.nothing_limited(link.default_rate_bps)
                for link in self.links}

    def fitted_bps(self, rate_bps: np.ndarray,
                   min_rate_fraction: float) -> np.ndarray:
        """Rate of each child: the schedule's, or a little where it gives
        nothing; a host's are scaled down together when they are more than
        its link has.

        :param rate_bps: of each child.
        """
        floor_bps = (self.egress_bps * min_rate_fraction
                     / np.maximum(1, self.n_classes))
        rate_bps = np.maximum(rate_bps, (
            floor_bps[self.host_of] / self.n_children)[self.class_of])
        host_of_child = self.host_of[self.class_of]
        total_bps = np.bincount(host_of_child, rate_bps, len(self.layouts))
        factor = np.where(total_bps <= self.limit_bps, 1.0,
                          self.limit_bps / np.maximum(total_bps, 1e-9))
        found: np.ndarray = rate_bps * factor[host_of_child]
        return found


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """Of all classes and children of a book."""

    prios: np.ndarray
    class_bps: np.ndarray
    child_bps: np.ndarray
    left_bytes: np.ndarray

    @classmethod
    def of(cls, book: Book, schedule: live.Schedule,
           remaining: Mapping[str, np.ndarray], ranks: Mapping[str, int],
           options: Options) -> 'Numbers':
        rates = {c.coflow_id: c.flow_rates.rate_bps
                 for c in schedule.coflows} if len(book.coflow_of) else {}
        none = np.zeros(0)
        at = book.pair_of if rates else none.astype(np.int64)
        ids = [one.coflow_id for one in book.coflows] if rates else []
        child_bps = book.fitted_bps(
            _joined(map(rates.__getitem__, ids))[at],
            options.min_rate_fraction)
        rank = np.array([ranks[one.coflow_id] for one in book.coflows],
                        np.int64)
        return cls(np.minimum(rank[book.coflow_of], sheet.LAST_PRIO),
                   np.bincount(book.class_of, child_bps,
                               len(book.n_children)),
                   child_bps, _joined(map(remaining.__getitem__, ids))[at])

    def far(self, told: 'Numbers', book: Book, tolerance: float,
            borrows: bool) -> np.ndarray:
        """Whether a host's numbers may not be close to what it was told.

        :param told: NaN where it was told nothing of the kind.
        """
        class_far = ~(np.abs(self.class_bps - told.class_bps) <= tolerance
                      * np.maximum(self.class_bps, told.class_bps))
        class_far |= self.prios != told.prios
        if borrows:
            egress_bps = book.egress_bps[book.host_of]
            class_far |= ((egress_bps > self.class_bps)
                          != (egress_bps > told.class_bps))
        class_far[book.class_of[~(
            np.abs(self.child_bps - told.child_bps)
            <= tolerance * self.class_bps[book.class_of])]] = True
        found: np.ndarray = np.bincount(
            book.host_of[class_far], minlength=len(book.layouts)) > 0
        return found


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Told:
    """What all hosts were told last.

    :ivar changed: hosts that were told something new.
    :ivar numbers: of the sheets, laid out as in the book; NaN where a host's
        sheet has another layout.
    :ivar is_other: whether more than numbers tells a host's sheet from a new
        one, or may do so.
    :ivar limits: of unmanaged traffic, by host.
    """

    book: Book
    options: Options
    sheets: Sheets
    changed: tuple[str, ...]
    numbers: Numbers
    is_other: np.ndarray
    limits: Mapping[str, edge_policy.Unmanaged] = dataclasses.field(
        default_factory=dict)


def tell(book: Book, schedule: live.Schedule,
         remaining: Mapping[str, np.ndarray], ranks: Mapping[str, int],
         options: Options = Options(), tolerance: float = 0.0,
         before: Told | None = None, limit: Limit | None = None) -> Told:
    """A sheet per link.

    A host keeps the sheet it has, the same object, while the new one would
    say the same up to the tolerance (see :meth:`Sheet.is_close`).

    :param schedule: of all coflows of the book, with their pairs; without
        any, flows are only counted: all stay in the default class.
    :param remaining: per coflow, bytes left of each of its pairs.
    :param ranks: of the coflows, 0 is served first.
    :param limit: makes limits of unmanaged traffic, by host, of a book and
        its children's rates.
    """
    new = Numbers.of(book, schedule, remaining, ranks, options)
    told = _told(book, options, before)
    limits = limit(book, new.child_bps) if limit is not None else {}
    sheets = dict(told.sheets)
    numbers = Numbers(told.numbers.prios.copy(),
                      told.numbers.class_bps.copy(),
                      told.numbers.child_bps.copy(), new.left_bytes)
    is_other = told.is_other.copy()
    far = new.far(told.numbers, book, tolerance, options.work_conserving)
    if limits is not told.limits and (limits or told.limits):
        is_other |= np.array([not unmanaged.is_close(
            sheets[link.host].unmanaged if link.host in sheets else None,
            limits.get(link.host), sheet.UNMANAGED_TOLERANCE)
            for link in book.links], np.bool_)
    changed = []
    for i in np.flatnonzero(far | is_other).tolist():
        link, layout = book.links[i], book.layouts[i]
        classes = slice(book.class_ends[i], book.class_ends[i + 1])
        children = slice(book.child_ends[i], book.child_ends[i + 1])
        made = sheet.Sheet(
            layout, link, options.ttl_s, ranks, new.prios[classes].copy(),
            new.class_bps[classes].copy(), new.child_bps[children].copy(),
            new.left_bytes[children].copy(), options.work_conserving,
            limits.get(link.host))
        old = sheets.get(link.host)
        if (is_other[i] and old is not None
                and old.is_close(made, tolerance)):
            continue
        changed.append(link.host)
        sheets[link.host] = made
        numbers.prios[classes] = made.prios
        numbers.class_bps[classes] = made.class_bps
        numbers.child_bps[children] = made.child_bps
        is_other[i] = bool(layout.rivals)
    return Told(book, options, sheets, tuple(changed), numbers, is_other,
                limits)


def _told(book: Book, options: Options, before: Told | None) -> Told:
    """What was told before, as the book has it."""
    if before is not None and before.book is book and (
            before.options == options):
        return before
    hosts = {link.host for link in book.links}
    sheets = {host: made for host, made in (
        before.sheets.items() if before is not None else ()) if host in hosts}
    olds = [sheets.get(link.host) for link in book.links]
    known = [old if old is not None and old.layout is layout else None
             for old, layout in zip(olds, book.layouts)]

    def joined(name: str, counts: Iterable[int]) -> np.ndarray:
        return _joined(
            getattr(old, name) if old is not None else np.full(n, np.nan)
            for old, n in zip(known, counts))

    n_children = [len(layout.peers) for layout in book.layouts]
    return Told(
        book, options, sheets, (), Numbers(
            joined('prios', book.n_classes.tolist()),
            joined('class_bps', book.n_classes.tolist()),
            joined('child_bps', n_children), np.zeros(0)),
        np.array([old is None or old.link is not link
                  or bool(old.layout.rivals)
                  or old.borrows != options.work_conserving
                  or old.ttl_s != options.ttl_s
                  for old, link in zip(known, book.links)], bool),
        before.limits if before is not None else {})


def _joined(arrays: Iterable[np.ndarray], dtype: type = np.float64
            ) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype), *arrays])


# Which layout each host has.


def lay_out(links: Sequence[coflow_table.Link],
            coflows: Sequence[coflow_table.TableCoflow],
            minors: Mapping[str, coflow_table.Minors],
            ranks: Mapping[str, int], now_s: float, grace_s: float, *,
            is_counted: bool = False, protect: bool = False,
            before: Book | None = None) -> Book:
    """The book of the coflows; layouts in which nothing changed stay.

    :param minors: by host, as they were taken; where a host's coflows
        changed its new layout has others (``layout.minors``).
    :param is_counted: without classes.
    :param protect: hosts are told what arrives at them.
    """
    ordered = tuple(sorted(coflows, key=lambda coflow: coflow.coflow_id))
    if before is not None and _same(ordered, before.coflows):
        if before.links is links and before.holds(minors, is_counted,
                                                  protect):
            return before
        ordered = before.coflows
    known = {} if before is None else {
        layout.host: layout for layout in before.layouts}
    changed = _touched(ordered, () if before is None else before.coflows)
    senders = coflow_table.by_sender(ordered)
    receivers = coflow_table.by_receiver(ordered) if protect else {}
    layouts: list[sheet.Layout] = []
    for link in links:
        host = link.host
        layout = known.get(host)
        if (layout is None or host in changed
                or not _holds(layout, minors, is_counted, protect)):
            layout = _lay_out_one(
                host, senders.get(host, ()), receivers.get(host, ()),
                None if is_counted else minors.get(
                    host, coflow_table.NO_MINORS),
                ranks, now_s, grace_s, protect)
        layouts.append(layout)
    return Book(links, tuple(layouts), ordered, {
        layout.host: layout.minors for layout in layouts
        if layout.minors is not None and layout.minors is not minors.get(
            layout.host, coflow_table.NO_MINORS)})


def _same(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(
        one is other for one, other in zip(some, others))


def _touched(after: Sequence[coflow_table.TableCoflow],
             before: Sequence[coflow_table.TableCoflow]) -> set[str]:
    """Hosts of the coflows that came, went or changed."""
    old, new = ({id(one): one for one in some} for some in (before, after))
    return {host for one in itertools.chain(
        (old[i] for i in old.keys() - new.keys()),
        (new[i] for i in new.keys() - old.keys()))
        for host in one.pairs.hosts}


def _holds(layout: sheet.Layout, minors: Mapping[str, coflow_table.Minors],
           is_counted: bool, protect: bool) -> bool:
    """Whether it would be made again while its coflows stay."""
    if layout.protects != protect:
        return False
    if is_counted:
        return layout.minors is None
    taken = minors.get(layout.host, coflow_table.NO_MINORS)
    return layout.is_whole and layout.minors is taken


def _lay_out_one(host: str, senders: sheet.Coflows, receivers: sheet.Coflows,
                 minors: coflow_table.Minors | None,
                 ranks: Mapping[str, int], now_s: float, grace_s: float,
                 protect: bool) -> sheet.Layout:
    if minors is not None:
        # Where minors run out, the first coflows have some.
        minors = minors.assign(coflow_table.wanted_keys(host, sorted(
            senders, key=lambda coflow: ranks[coflow.coflow_id])),
            now_s, grace_s)
        if not minors.taken:
            minors = coflow_table.NO_MINORS
    return sheet.Layout.of(host, senders, receivers, minors, protect)
