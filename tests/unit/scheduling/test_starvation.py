# SPDX-License-Identifier: Apache-2.0

"""Theta against an adversary who sees every schedule."""

import math

import hypothesis
from hypothesis import strategies as st
import pytest

from tests.unit import rows
from virtco import scheduling
from virtco.model import live
from virtco.scheduling import policies
from virtco.scheduling import starvation

HOSTS = 'abcd'
PORTS = rows.port_columns((host, 8.0, 8.0) for host in HOSTS)
PAIRS = [(src, dst) for src in HOSTS for dst in HOSTS if src != dst]


class Cloud:
    """Coflows under schedule(); one byte per second and port."""

    def __init__(self, policy, theta_s):
        self.policy, self.theta_s = policy, theta_s
        self.now_s = 0.0
        self.left, self.arrival_s, self.served_s = {}, {}, {}
        self.longest_wait_s = 0.0
        self.idle = set()

    def add(self, flows):
        name = f'c{len(self.arrival_s)}'
        self.left[name] = flows
        self.arrival_s[name] = self.served_s[name] = self.now_s

    def run(self, until_s):
        """Schedule at each end, at ``until_s`` and when theta demands it."""
        while self.now_s < until_s and self.left:
            known = [live.LiveCoflow(
                name, rows.columns(
                    (*pair, size) for pair, size in flows.items()),
                arrival_s=self.arrival_s[name], served_s=self.served_s[name])
                for name, flows in self.left.items()]
            made = scheduling.schedule(
                known, PORTS, policy=self.policy, now_s=self.now_s,
                theta_s=self.theta_s)
            self.pass_time(made, min(until_s, starvation.next_check_s({
                one.coflow_id: starvation.Wait(
                    max(one.served_s, one.arrival_s), 0.0)
                for one in known}, self.now_s, self.theta_s)) - self.now_s)

    def pass_time(self, made, dt_s):
        rates = {item.coflow_id: {
            rate[:2]: rate.rate_bps / 8
            for rate in rows.rates(item.flow_rates) if rate.rate_bps > 0}
            for item in made.coflows}
        for name, flows in rates.items():
            for pair, rate in flows.items():
                dt_s = min(dt_s, self.left[name][pair] / rate)
        self.now_s += dt_s
        self.idle = {name for name in rates if not rates[name]}
        for name, flows in rates.items():
            self.longest_wait_s = max(
                self.longest_wait_s, self.now_s - self.served_s[name]
                if name in self.idle else 0.0)
            if name in self.idle:
                continue
            self.served_s[name] = self.now_s
            for pair, rate in flows.items():
                self.left[name][pair] -= rate * dt_s
                if self.left[name][pair] < 1e-5:
                    del self.left[name][pair]
            if not self.left[name]:
                del self.left[name]


def flows_of(most):
    return st.dictionaries(st.sampled_from(PAIRS), st.floats(0.1, most),
                           min_size=1, max_size=4)


@hypothesis.settings(deadline=None, max_examples=40)
@hypothesis.given(
    st.lists(flows_of(50), min_size=1, max_size=3),
    st.lists(st.tuples(st.floats(0.01, 1.5), flows_of(1.0)), max_size=25),
    st.sampled_from(sorted(policies.POLICIES)), st.floats(0.5, 5.0))
def test_no_arrivals_make_a_coflow_wait_longer(first, attacks, policy,
                                               theta_s):
    """At each turn a small coflow comes where someone waits just now."""
    cloud = Cloud(policy, theta_s)
    for flows in first:
        cloud.add(dict(flows))
    for gap_s, flows in attacks:
        cloud.run(cloud.now_s + gap_s)
        waiting = cloud.idle & cloud.left.keys()
        if waiting:
            # On the very ports that the longest waiting one needs.
            victim = min(waiting, key=cloud.served_s.__getitem__)
            flows = dict.fromkeys(cloud.left[victim], min(flows.values()))
        cloud.add(dict(flows))
    cloud.run(math.inf)
    assert not cloud.left
    assert cloud.longest_wait_s <= theta_s * (1 + 1e-9)


def waiting(arrival_s, served_s):
    return live.LiveCoflow('c', rows.columns([]), arrival_s=arrival_s,
                           served_s=served_s)


@pytest.mark.parametrize('arrival_s, served_s', [(1.0, 4.0), (4.0, 1.0)])
def test_it_starves_theta_after_arrival_or_progress(arrival_s, served_s):
    item = waiting(arrival_s, served_s)
    assert not starvation.is_starving(item, math.nextafter(6.0, 0.0), 2.0)
    assert starvation.is_starving(item, 6.0, 2.0)


def test_the_next_check_is_the_first_that_is_not_yet_due():
    waits = {str(since_s): starvation.Wait(since_s, 0.0)
             for since_s in (1.0, 3.0)}
    # When one starves, and when it was first for a tenth of theta.
    for now_s, due_s in ((0.0, 6.0), (6.0, 6.5), (6.5, 8.0), (8.0, 8.5),
                         (8.5, math.inf)):
        assert starvation.next_check_s(waits, now_s, 5.0) == due_s
    assert starvation.next_check_s({}, 0.0, 5.0) == math.inf


@hypothesis.given(st.floats(0, 1e9), st.floats(1e-3, 1e4))
def test_a_check_that_is_due_finds_the_starving(served_s, theta_s):
    """In spite of rounding: no check comes again and again in vain."""
    item = waiting(0.0, served_s)
    due_s = starvation.next_check_s(
        {'c': starvation.Wait(served_s, 0.0)}, served_s, theta_s)
    assert starvation.is_starving(item, due_s, theta_s)


def served(sent_bytes, served_s=0.0, left_bytes=800.0, arrival_s=0.0):
    """400 bytes have crossed the slowest port after half of alone_s."""
    return live.LiveCoflow('c', rows.columns([('a', 'b', left_bytes / 2),
                                              ('a', 'c', left_bytes / 2)]),
                           arrival_s=arrival_s, served_s=served_s,
                           sent_bytes=sent_bytes)


@pytest.mark.parametrize('sent_bytes, now_s, since_s', [
    # Theta is 10 s: a second's worth is progress, and that is 100 bytes.
    (99.0, 5.0, 0.0), (100.0, 5.0, 5.0), (1000.0, 5.0, 5.0),
    # No sooner than in a second, whatever is counted.
    (1000.0, 0.9, 0.0), (100.0, 1.0, 1.0),
    # It was first for a second after it starved, served or not.
    (99.0, 10.9, 0.0), (99.0, 11.0, 11.0),
    # Its next iteration counts from nothing.
    (-1.0, 5.0, 5.0)])
def test_a_trickle_is_no_progress(sent_bytes, now_s, since_s):
    before = {'c': starvation.Wait(64.0, 7.0), 'gone': starvation.Wait(0, 0)}
    found = starvation.renew([served(7.0 + sent_bytes)], {'c': 8.0}, before,
                             64.0 + now_s, 10.0)
    assert found == {'c': starvation.Wait(
        64.0 + since_s, 7.0 if since_s == 0.0 else 7.0 + sent_bytes)}


def test_who_is_new_waits_since_it_was_served():
    for item, since_s in ((served(5.0, 3.0), 3.0),
                          (served(5.0, 0.0, arrival_s=4.0), 4.0)):
        assert starvation.renew([item], {'c': 8.0}, {}, 5.0, 10.0) == {
            'c': starvation.Wait(since_s, 5.0)}


def test_the_last_byte_is_progress_as_others_are():
    wait = starvation.Wait(0.0, 7.0)
    for sent_bytes, since_s in ((16.0, 0.0), (17.0, 5.0)):
        found = starvation.renew([served(sent_bytes, left_bytes=0.5)],
                                 {'c': 0.05}, {'c': wait}, 5.0, 10.0)
        assert found['c'].since_s == since_s


def test_who_has_nothing_left_does_not_wait():
    item = served(5.0, left_bytes=0.0)
    assert starvation.renew([item], {'c': 0.0}, {}, 5.0, 10.0) == {
        'c': starvation.Wait(5.0, 5.0)}


@pytest.mark.parametrize('served_s, since_s, starves', [
    (9.9, 0.0, True), (0.0, 9.9, False), (9.9, 0.1, False)])
def test_it_starves_by_its_progress_not_by_its_last_byte(served_s, since_s,
                                                         starves):
    item = served(5.0, served_s, arrival_s=0.0)
    found = starvation.waiting(item, since_s, 10.0, 10.0)
    assert starvation.is_starving(found, 10.0, 10.0) == starves
    assert (found is item) == (starvation.is_starving(item, 10.0, 10.0)
                               == starves)


def test_the_adversary_starves_someone_without_theta():
    cloud = Cloud('mrtf', math.inf)
    cloud.add({('a', 'b'): 50.0})
    for _ in range(40):
        cloud.add({('a', 'b'): 1.0})
        cloud.run(cloud.now_s + 1.0)
    assert cloud.longest_wait_s > 39
