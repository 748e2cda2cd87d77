# SPDX-License-Identifier: Apache-2.0

import collections
import itertools
import math
import random
import statistics

from hypothesis import given
from hypothesis import strategies as st
import pytest

from virtco.measure import probe_budget as budget
from virtco.measure import round_schedule as schedule
from virtco.model import cluster

TRAIN_BYTES = 10 * 200 * 1472
GBIT = 1e9
IN_FULL = pytest.mark.full(
    reason='three CPU seconds each', still='the same with 64 hosts')


def _schedule(*, link_share=0.01, bytes_per_hour=None, **changes):
    return schedule.Schedule(
        schedule.Rules(**{'freshness_s': 1800.0, 'awaited_s': 450.0,
                          'retry_s': 30.0, 'train_bytes': TRAIN_BYTES,
                          **changes}),
        budget.Budget(link_share, bytes_per_hour))


def _hosts(n, link_bps=GBIT):
    return dict.fromkeys((f'h{i:05}' for i in range(n)), link_bps)


class Run:
    """A look per second, trains that last a while, some of which fail."""

    def __init__(self, found, hosts, *, failing=0.0, seed=0, **options):
        self.schedule, self.hosts, self.options = found, hosts, options
        self._failing, self._random = failing, random.Random(seed)
        self._running = []
        self.now_s = 0.0
        self.measured = collections.Counter()
        self.n_trains = 0
        self.n_at_once = []

    def look(self):
        over = [train for train in self._running if train[0] <= self.now_s]
        self._running = [t for t in self._running if t[0] > self.now_s]
        for end_s, pair, works in over:
            if works:
                self.schedule.ended(pair, end_s, TRAIN_BYTES)
                self.schedule.measured(pair, end_s)
                self.measured[pair] += 1
            else:
                self.schedule.failed(pair, end_s)
        pairs = self.schedule.next(self.hosts, self.now_s, **self.options)
        for pair in pairs:
            works = self._random.random() >= self._failing
            lasts_s = self._random.uniform(0.2, 0.9) if works else 5.0
            self._running.append((self.now_s + lasts_s, pair, works))
        self.n_trains += len(pairs)
        self.n_at_once.append(len(self._running))
        busy = [host for _, pair, _ in self._running for host in pair]
        assert len(busy) == len(set(busy))
        self.now_s += 1.0
        return pairs

    def until(self, condition, limit_s):
        while not condition():
            assert self.now_s <= limit_s
            self.look()


RACKS = cluster.Tree(
    tuple(cluster.Subtree(f'r{i}', 2 * GBIT, 2 * GBIT) for i in range(4)),
    {f'h{i:05}': f'r{i // 8}' for i in range(32)})


def test_trains_do_not_share_a_full_uplink():
    run = Run(_schedule(), _hosts(32), tree=RACKS)
    while len(run.measured) < 32 * 31:
        assert run.now_s < 200
        run.look()
        out, into = collections.Counter(), collections.Counter()
        for _, (src, dst), _ in run._running:
            if RACKS.leaf_of[src] != RACKS.leaf_of[dst]:
                out[RACKS.leaf_of[src]] += 1
                into[RACKS.leaf_of[dst]] += 1
        assert max(out.values(), default=0) <= 2
        assert max(into.values(), default=0) <= 2


def test_an_uplink_below_a_hosts_rate_carries_one_train_at_a_time():
    narrow = cluster.Tree((cluster.Subtree('r', GBIT / 2, GBIT / 2),),
                          {'h00000': 'r', 'h00001': 'r'})
    pairs = _schedule().next(_hosts(4), 0.0, tree=narrow)
    assert len(pairs) == 2
    run = Run(_schedule(), _hosts(4), tree=narrow)
    run.until(lambda: len(run.measured) == 12, 60)


def test_hosts_about_to_be_used_are_first_and_measured_again_sooner():
    found = _schedule()
    first = found.next(_hosts(40), 0.0, awaited={'h00033', 'h00034'})
    assert {'h00033', 'h00034'} <= {h for pair in first[:2] for h in pair}
    run = Run(_schedule(), _hosts(10))
    run.until(lambda: len(run.measured) == 90, 60)
    run.now_s = 700.0
    assert run.look() == ()
    run.options['awaited'] = {'h00003'}
    assert all('h00003' in pair for pair in run.look())


def test_what_is_stale_is_measured_before_what_is_less_so():
    found = _schedule()
    for n, pair in enumerate([('a', 'b'), ('b', 'a'), ('c', 'd'),
                              ('d', 'c')]):
        found.measured(pair, n)
    links_bps = dict.fromkeys('abcd', GBIT)
    first = found.next(links_bps, 10.0)
    assert not set(first) & {('a', 'b'), ('b', 'a'), ('c', 'd'), ('d', 'c')}
    for pair in first:
        found.ended(pair, 11.0, TRAIN_BYTES)


def test_what_a_train_really_sent_counts():
    found = _schedule()
    (pair,) = found.next(dict.fromkeys('ab', GBIT), 0.0)
    assert found.budget.spent_bytes(0.0) == TRAIN_BYTES
    found.ended(pair, 1.0, 3 * TRAIN_BYTES)
    assert found.budget.spent_bytes(1.0) == 3 * TRAIN_BYTES
    assert found.budget.spent_bytes(3700.0) == 0


def test_a_pair_that_failed_rests():
    found = _schedule()
    hosts = dict.fromkeys('ab', GBIT)
    (pair,) = found.next(hosts, 0.0)
    found.failed(pair, 5.0)
    (other,) = found.next(hosts, 6.0)
    assert other == pair[::-1]
    found.ended(other, 7.0, None)
    found.measured(other, 7.0)
    assert found.next(hosts, 34.0) == ()
    assert found.next(hosts, 36.0) == (pair,)


@given(st.integers(0, 12), st.integers(2, 12), st.integers(0, 3))
def test_every_host_gets_its_readings_whatever_their_number(n, most, seed):
    run = Run(_schedule(all_pairs_hosts=most, readings=3), _hosts(n),
              failing=0.1, seed=seed)
    run.until(lambda: run.schedule.n_fresh == max(0, n)
              or n < 2, 600)
    wanted = min(n - 1, n - 1 if n <= most else 3)
    for host in run.hosts if n > 1 else ():
        assert sum(src == host for src, _ in run.measured) >= wanted
        assert sum(dst == host for _, dst in run.measured) >= wanted


@pytest.mark.parametrize(('awaited', 'freshness_s'), [
    (set(), 100), ({'a'}, 40)])
def test_a_pair_is_due_as_soon_as_it_is_not_fresh(awaited, freshness_s):
    found = _schedule(freshness_s=100.0, awaited_s=40.0)
    hosts = dict.fromkeys('ab', GBIT)
    for pair in ('a', 'b'), ('b', 'a'):
        found.measured(pair, 5.0)
    due_s = 5.0 + freshness_s
    assert found.next(hosts, due_s - 0.5, awaited=awaited) == ()
    assert found.n_fresh == 2
    assert len(found.next(hosts, due_s, awaited=awaited)) == 1


def test_a_failed_pair_rests_to_the_second():
    found = _schedule(retry_s=30.0)
    hosts = dict.fromkeys('ab', GBIT)
    found.measured(('b', 'a'), 5.0)
    (pair,) = found.next(hosts, 5.0)
    found.failed(pair, 5.0)
    assert pair == ('a', 'b')
    assert found.next(hosts, 34.9) == ()
    assert found.next(hosts, 35.0) == (pair,)


def test_a_pair_that_was_measured_since_it_failed_does_not_rest():
    found = _schedule(freshness_s=10.0, retry_s=100.0)
    found.measured(('b', 'a'), 50.0)
    found.failed(('a', 'b'), 5.0)
    found.measured(('a', 'b'), 6.0)
    assert found.next(dict.fromkeys('ab', GBIT), 50.0) == (('a', 'b'),)


@pytest.mark.parametrize('most', [1, 2, 3])
def test_so_many_trains_at_a_time(most):
    found = _schedule(most_trains=most)
    assert len(found.next(_hosts(10), 0.0)) == most
    assert found.next(_hosts(10), 1.0) == ()
    assert len(found.under_way) == most


def test_an_uplink_carries_as_many_trains_as_fit():
    for rate_bps, n in (2 * GBIT, 2), (2 * GBIT - 1, 1):
        tree = cluster.Tree(
            (cluster.Subtree('r', rate_bps, rate_bps),),
            {'a': 'r', 'b': 'r'})
        known = _schedule()
        known.next({}, 0.0, tree=tree)
        found = schedule._Look(known, dict.fromkeys('abxy', GBIT), 0.0, set())
        found._use(('a', 'x'))
        assert found._has_room(('b', 'y')) == (n == 2)
        # The other way is free, and what stays below is not concerned.
        assert found._has_room(('y', 'b'))
        found._use(('b', 'y'))
        assert not found._has_room(('a', 'x'))
        assert found._has_room(('a', 'b'))


def test_a_train_takes_no_more_than_its_slower_host_has():
    """Two slow trains pass an uplink that carries no fast one beside one."""
    tree = cluster.Tree((cluster.Subtree('r', GBIT, GBIT),),
                        {'a': 'r', 'b': 'r'})
    for slow, n in ('cd', 2), ('', 1):
        found = _schedule(retry_s=1e6)
        # All pairs rest but those out of the rack.
        for src, dst in itertools.permutations('abcd', 2):
            if src in 'cd' or dst in 'ab':
                found.failed((src, dst), 0.0)
        pairs = found.next({host: GBIT / (2 if host in slow else 1)
                            for host in 'abcd'}, 1.0, tree=tree)
        assert len(pairs) == n


def test_of_all_pairs_the_one_that_waits_longest_is_next():
    """Whatever the order of the names is."""
    hosts = dict.fromkeys('abcd', GBIT)
    for first in 'bcd':
        found = _schedule(freshness_s=10.0)
        times_s = itertools.count(1)
        pairs = sorted(itertools.permutations(hosts, 2), key=lambda pair: (
            pair not in (('a', first), (first, 'a')), 'a' not in pair, pair))
        for pair in pairs:
            found.measured(pair, next(times_s))
        assert {'a', first} == set(found.next(hosts, 100.0)[0])


@pytest.mark.parametrize(('n', 'all_pairs'), [(4, True), (5, False)])
def test_up_to_so_many_hosts_measure_all_their_pairs(n, all_pairs):
    found = _schedule(all_pairs_hosts=4)
    found.next(_hosts(n), 0.0)
    assert found.all_pairs == all_pairs
    assert found.n_hosts == n


def test_what_was_held_back_by_the_budget_is_told():
    found = _schedule(bytes_per_hour=TRAIN_BYTES)
    assert len(found.next(_hosts(2), 0.0)) == 1
    assert found.n_held == 0
    assert found.next(_hosts(6), 1.0) == ()
    assert found.n_held == 4


@pytest.mark.parametrize(('owed_s', 'waits'), [
    # The last reading is 100 s old, a reading is fresh for 1800 s.
    (10_000.0 - 2000.0, False), (10_000.0 - 2000.5, True),
    (10_000.0 - 1600.5, False), (float('inf'), False),
    (float('-inf'), True)])
def test_a_host_waits_for_a_pair_that_waits_twice_as_long(owed_s, waits):
    look = schedule._Look(_schedule(), _hosts(3), 10_000.0, frozenset())
    look._owed['h00000'] = owed_s
    assert look._waits('h00000', 9_900.0) == waits
    # A pair that was never measured waits for nobody.
    assert not look._waits('h00000', float('-inf'))


def test_the_pair_that_waits_longest_is_of_either_direction():
    found = _schedule(retry_s=30.0)
    found.measured(('a', 'b'), 50.0)
    found.measured(('b', 'a'), 5.0)
    found.failed(('b', 'a'), 60.0)
    for now_s, owed_s in ((80.0, 50.0), (90.0, 5.0)):
        look = schedule._Look(found, dict.fromkeys('abc', GBIT), now_s,
                              frozenset())
        assert look._oldest_owed_s('a') == math.inf
        look._busy = {'a', 'b'}
        assert look._oldest_owed_s('a') == owed_s
        assert look._oldest_owed_s('b') == owed_s


def test_nothing_is_begun_among_one_host():
    for n_hosts in (0, 1):
        found = _schedule()
        assert list(found.next(_hosts(n_hosts), 1.0)) == []
        assert (found.n_hosts, found.n_fresh, found.n_held,
                found.all_pairs) == (n_hosts, 0, 0, True)


@pytest.mark.parametrize(('sent', 'received', 'lacks'), [
    ((), (), (True, False)), ((5.0,), (), (False, True)),
    ((), (5.0,), (True, False)), ((5.0, 6.0), (4.0, 7.0), (False, True)),
    # A reading each, or the newest of them, tells who is further behind.
    ((5.0,), (6.0,), (True, False)), ((6.0,), (5.0,), (False, True)),
    ((900.0, 901.0), (), (False,)), ((900.0,), (), (False, True)),
    ((901.0, 902.0), (903.0, 904.0), ()),
    ((900.0, 905.0), (899.5, 906.0), (False,))])
def test_the_direction_that_is_further_behind_comes_first(sent, received,
                                                          lacks):
    """Two readings per direction, fresh for a hundred seconds."""
    found = _schedule(freshness_s=100.0, all_pairs_hosts=1, readings=2)
    hosts = _hosts(4)
    own, *peers = hosts
    for times_s, pair_of in ((sent, lambda peer: (own, peer)),
                             (received, lambda peer: (peer, own))):
        for at_s, peer in zip(times_s, peers):
            found.measured(pair_of(peer), at_s)
    look = schedule._Look(found, hosts, 999.5, frozenset())
    assert look._lacks(own) == lacks
    assert look._last_s(own) == min(
        max(times_s, default=-math.inf) for times_s in (sent, received))


def test_old_readings_are_forgotten():
    found = _schedule(freshness_s=10.0)
    found.measured(('a', 'b'), 5.0)
    found.measured(('a', 'c'), 6.0)
    found.measured(('a', 'd'), 5.0 + 32 * 10.0)
    assert found.readings('a', True) == {'b': 5.0, 'c': 6.0, 'd': 325.0}
    found.measured(('a', 'e'), 326.0)
    assert found.readings('a', True).keys() == {'c', 'd', 'e'}
    assert found.readings('b', False) == {'a': 5.0}


def test_a_pair_that_is_measured_again_is_not_old():
    found = _schedule(freshness_s=10.0)
    for peer, at_s in (('b', 5.0), ('c', 6.0), ('b', 300.0), ('d', 327.0)):
        found.measured(('a', peer), at_s)
    assert list(found.readings('a', True).items()) == [
        ('b', 300.0), ('d', 327.0)]


def test_a_train_under_way_leaves_no_room_on_its_uplinks():
    tree = cluster.Tree((cluster.Subtree('r', GBIT, GBIT),),
                        {'a': 'r', 'b': 'r'})
    found = _schedule()
    found.begin(('a', 'c'), TRAIN_BYTES, 0.0)
    # Only the way into the rack is free.
    assert found.next(dict.fromkeys('abcd', GBIT), 1.0, tree=tree) == (
        ('d', 'b'),)


def test_what_failed_is_forgotten_when_it_may_be_tried_again():
    found = _schedule(retry_s=30.0)
    found.failed(('x', 'y'), 5.0)
    found.next({}, 34.9)
    assert found._failed == {('x', 'y'): 5.0}
    found.next({}, 35.0)
    assert found._failed == {}


def test_a_look_has_turns_by_the_number_of_hosts():
    def looks(n, **changes):
        look = schedule._Look(_schedule(**changes), _hosts(n), 0.0,
                              frozenset())
        return (look.all_pairs, look._wanted, look._looks, look._n_turns,
                look._stride)

    assert looks(256) == (True, 255, 255, 255, 1)
    assert looks(257) == (False, 8, 16, 32, 8)
    assert looks(6, all_pairs_hosts=2, readings=9) == (False, 5, 16, 5, 1)
    assert looks(1)[1] == 0 and looks(0)[4] == 1
    assert (schedule.PEERS, schedule.LOOKS) == (32, 16)


def test_the_rules_that_are_not_given():
    found = schedule.Rules(1.0, 2.0, 3.0, 4)
    assert (found.all_pairs_hosts, found.readings, found.most_trains) == (
        256, 8, 128)


@pytest.mark.parametrize('failing, n_hosts', [
    (0.0, 64), (0.01, 64),
    pytest.param(0.0, 196, marks=IN_FULL), pytest.param(
        0.01, 196, marks=IN_FULL)])
def test_all_pairs_of_196_hosts_in_ten_minutes(failing, n_hosts):
    """By arithmetic 2 (n - 1) looks, as each host is in all of them."""
    run = Run(_schedule(), _hosts(n_hosts), failing=failing)
    run.until(lambda: len(run.measured) == n_hosts * (n_hosts - 1),
              600 * n_hosts / 196)
    assert set(run.measured.values()) == {1}
    if not failing:
        assert run.now_s <= 1.05 * 2 * (n_hosts - 1)
    # On average of the hosts.
    sent = run.schedule.budget.spent_bytes(run.now_s) / n_hosts
    if not failing:
        assert sent == (n_hosts - 1) * TRAIN_BYTES
    # Of what a link of 1 Gbit/s carries in ten minutes, in per cent.
    assert 100 * sent / (GBIT / 8 * 600) < 0.85


def test_o_of_n_trains_keep_many_hosts_fresh():
    run = Run(_schedule(), _hosts(1000))
    run.until(lambda: run.schedule.n_fresh == 1000, 120)
    per_host = run.n_trains / 1000
    assert 8 <= per_host <= 9
    assert max(run.n_at_once) == 128
    run.now_s = 1750.0
    assert run.look() == ()
    # Half an hour later all of them once more, and not more than that.
    run.until(lambda: run.now_s >= 1950, 1950)
    assert run.schedule.n_fresh == 1000
    assert 1.9 * per_host <= run.n_trains / 1000 <= 2.2 * per_host
    partners = collections.defaultdict(set)
    for src, dst in run.measured:
        partners[src].add(dst)
    assert max(len(peers) for peers in partners.values()) <= 64
    # Peers are from all over the cloud, not of the same rack.
    apart = [abs(int(src[1:]) - int(dst[1:])) for src, dst in run.measured]
    assert statistics.median(apart) > 100


@pytest.mark.parametrize('limit', ['link', 'cloud'])
def test_the_budget_of_an_hour_is_kept_in_any_hour(limit):
    hosts = _hosts(6)
    budgets = {'link': {'link_share': 20 * TRAIN_BYTES / (GBIT / 8 * 3600)},
               'cloud': {'bytes_per_hour': 30 * TRAIN_BYTES,
                         'link_share': 1.0}}[limit]
    run = Run(_schedule(freshness_s=10.0, **budgets), hosts)
    begun = []
    held = 0
    while run.now_s < 3 * 3600:
        begun += [(run.now_s, pair) for pair in run.look()]
        run.now_s += 9.0
        held = max(held, run.schedule.n_held)
    assert held
    for from_s in range(0, 2 * 3600, 97):
        within = [pair for at_s, pair in begun
                  if from_s <= at_s < from_s + 3600]
        sent = collections.Counter(src for src, _ in within)
        if limit == 'link':
            assert max(sent.values(), default=0) <= 20
        else:
            assert len(within) <= 30
    # It is used, too.
    assert len(begun) >= {'link': 100, 'cloud': 60}[limit]


@pytest.mark.parametrize('slow_s', [0.7, 1.9, 2.3, 3.1])
def test_no_pair_is_left_out_when_trains_never_end_together(slow_s):
    """Two trains at a time among four hosts: who is free alone waits."""
    found = _schedule(freshness_s=1.0, awaited_s=1.0, link_share=1)
    hosts, running, last_s = _hosts(4), [], {}
    pairs = {(a, b) for a in hosts for b in hosts if a != b}
    longest_s = 0.0
    for step in range(3000):
        now_s = step / 10
        for end_s, pair in [one for one in running if one[0] <= now_s]:
            running.remove((end_s, pair))
            found.ended(pair, end_s, 1000)
            found.measured(pair, end_s)
            longest_s = max(longest_s, end_s - last_s.get(pair, 0.0))
            last_s[pair] = end_s
        running += [(now_s + (slow_s if 'h00001' in pair else 1.1), pair)
                    for pair in found.next(hosts, now_s)]
    assert last_s.keys() == pairs
    longest_s = max(longest_s, *(300 - at_s for at_s in last_s.values()))
    assert longest_s < 60


def test_uplinks_between_two_hosts():
    """Not those above both; out of one side's racks, into the other's."""
    tree = cluster.Tree((
        cluster.Subtree('p', 10.0, 20.0), cluster.Subtree('q', 30.0, 40.0),
        *(cluster.Subtree(f'r{i}', 1.0 + i, 5.0 + i, 'p' if i < 2 else 'q')
          for i in range(3))), {'a': 'r0', 'b': 'r1', 'c': 'r2', 'd': 'r0'})
    found = _schedule()
    found.next({}, 0.0, tree=tree)
    passed = found.passed
    assert dict(passed(('a', 'd'))) == {}
    assert dict(passed(('a', 'b'))) == {('r0', True): 1.0, ('r1', False): 6.0}
    assert dict(passed(('a', 'c'))) == {
        ('p', True): 10.0, ('r0', True): 1.0, ('q', False): 40.0,
        ('r2', False): 7.0}
    assert dict(passed(('a', 'elsewhere'))) == {('p', True): 10.0,
                                              ('r0', True): 1.0}


def test_nothing_is_known_before_the_first_look():
    found = _schedule()
    assert (found.n_hosts, found.n_fresh, found.n_held,
            found.all_pairs) == (0, 0, 0, True)
    assert found.under_way == {}
