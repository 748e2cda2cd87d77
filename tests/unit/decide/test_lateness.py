# SPDX-License-Identifier: Apache-2.0

"""The stragglers' guard in the controller."""

import dataclasses
import math

import numpy as np
import pytest

from tests.unit.decide import test_policy_documents as given_by
from virtco.decide import lateness
from virtco.decide import policy_documents
from virtco.model import live
from virtco.model import uplinks
from virtco.scheduling.periodic import guard as guard_model
from virtco.scheduling.periodic import jobs as jobs_model
from virtco.state import schedule_input

#: Bytes that keep a link busy for a second.
SECOND = 0.98e9 / 8
FIRST, OTHER = ('h0', 'h1'), ('h0', 'h2')


def job(name, pair, compute_s=40.0, send_s=20.0, left=1.0, arrival_s=100.0,
        **values):
    """:param left: part of the iteration's bytes."""
    made = given_by.coflow(name, {pair: left * send_s * SECOND}, **values)
    flows = made.live.flows
    return dataclasses.replace(made, live=made.live._replace(
        arrival_s=arrival_s, compute_s=compute_s, workers=2,
        whole=type(flows)(flows.pairs, np.array([send_s * SECOND]))))


def two(now_s=100.0, arrivals_s=(100.0, 100.0), computes_s=(40.0, 20.0),
        resting=(False, False), **options):
    """Two jobs of one uplink."""
    return given_by.at(*(
        job(name, pair, compute_s, arrival_s=arrival_s, is_resting=is_resting,
            moved_s=now_s)
        for name, pair, compute_s, arrival_s, is_resting in zip(
            'ab', (FIRST, OTHER), computes_s, arrivals_s, resting,
            strict=True)), now_s=now_s, **options)


def guard_of(compute_s=20.0, wire_factor=1.0):
    """Of both, with a tenth more sending than was hinted."""
    send_s = 22.0 * wire_factor
    return guard_model.Guard([
        jobs_model.PeriodicJob('a', 40.0, {'out': send_s}, 2),
        jobs_model.PeriodicJob('b', compute_s, {'out': send_s}, 2)])


@pytest.mark.parametrize('wire_factor', [1.0, 1.05])
def test_deadlines_are_those_of_the_simulators_guard(wire_factor):
    found, guard = lateness.Lateness(wire_factor), guard_of(
        wire_factor=wire_factor)
    told = found.follow(two())
    for place, (name, compute_s) in enumerate((('a', 40.0), ('b', 20.0))):
        guard.began(place, 100.0 - compute_s)
        assert told[name] == pytest.approx(guard.late_s(place))
    # The same iteration; then b's next one, while a rests.
    assert found.follow(two(130.0)) == told
    later = found.follow(two(150.0, (100.0, 150.0), resting=(True, False)))
    guard.ended(1, 130.0)
    assert later == {'b': pytest.approx(guard.late_s(1))}


def test_a_cap_of_a_vm_counts_as_a_link():
    """Half of the uplink: the iteration takes twice as long to send."""
    plain = two()
    first = plain.coflows[0]
    capped = dataclasses.replace(first, live=first.live._replace(
        capped=live.Capped(np.array([0]), np.ones(1), np.array([[0, -1]]), {
            live.Cap('h0', 'egress', 'vm'): 0.49e9,
            live.Cap('h0', 'egress', 'idle'): 1e3})))
    told = lateness.Lateness().follow(dataclasses.replace(
        plain, coflows=(capped, *plain.coflows[1:])))
    guard = guard_model.Guard([
        jobs_model.PeriodicJob('a', 40.0, {'out': 22.0, 'cap': 44.0}, 2),
        jobs_model.PeriodicJob('b', 20.0, {'out': 22.0}, 2)])
    for place, (name, compute_s) in enumerate((('a', 40.0), ('b', 20.0))):
        guard.began(place, 100.0 - compute_s)
        assert told[name] == pytest.approx(guard.late_s(place))


def test_deadlines_hold_while_bytes_and_rates_move_a_little():
    found = lateness.Lateness()
    told = found.follow(two())
    later = given_by.at(job('a', FIRST, left=0.1),
                        job('b', OTHER, 20.0), now_s=130.0)
    slower = dataclasses.replace(later, egress_bps=0.95 * later.egress_bps)
    for seen in (later, slower):
        assert found.follow(seen) == told
    half = dataclasses.replace(later, egress_bps=0.5 * later.egress_bps)
    assert all(late_s > told[name]
               for name, late_s in found.follow(half).items())


def test_others_that_come_elsewhere_change_no_deadline():
    found = lateness.Lateness()
    told = found.follow(two())
    b_again = two(150.0, (100.0, 150.0))
    later = found.follow(b_again)
    assert later != told
    assert found.follow(dataclasses.replace(b_again, coflows=(
        *b_again.coflows, job('c', ('h2', 'h3'))))) == later


def test_ports_that_a_job_leaves_idle_cost_nothing():
    """A cloud has hundreds of jobs and thousands of ports."""
    looked_at = []

    class Names(tuple):
        def __iter__(self):
            looked_at.extend(range(len(self)))
            return super().__iter__()

        def __getitem__(self, number):
            looked_at.append(number)
            return super().__getitem__(number)

    seen = two()
    hosts = type(seen.hosts)(seen.hosts)
    assert hosts.number_of and hosts.names
    vars(hosts)['names'] = Names(hosts.names)
    seen = dataclasses.replace(seen, hosts=hosts)
    assert seen.ports.hosts is hosts.names
    looked_at.clear()
    assert lateness.Lateness().follow(seen).keys() == {'a', 'b'}
    # Of each job the sender and the receiver.
    assert len(looked_at) == 4


def test_jobs_above_the_hosts_meet_too():
    """Two hosts of one rack, whose uplink is as fast as one of them."""
    seen = given_by.at(job('a', ('h0', 'h2')), job('b', ('h1', 'h3')))
    assert lateness.Lateness().follow(seen) == {}
    seen = dataclasses.replace(seen, uplinks=uplinks.Uplinks(
        np.array([[0], [0], [1], [1]]), np.full(4, 0.98e9)))
    assert lateness.Lateness().follow(seen).keys() == {'a', 'b'}


def test_a_host_that_comes_changes_no_deadline():
    """Though the uplinks, after the ports of hosts, have other numbers."""
    above = np.array([[0], [0], [1], [1]])

    def seen(arrival_s):
        return dataclasses.replace(given_by.at(
            job('a', ('h0', 'h2')),
            job('b', ('h1', 'h3'), 20.0, arrival_s=arrival_s)),
            uplinks=uplinks.Uplinks(above, np.full(4, 0.98e9)))

    found, again = lateness.Lateness(), seen(150.0)
    found.follow(seen(100.0))
    told = found.follow(again)
    more = dataclasses.replace(
        again, hosts=schedule_input.Hosts((*again.hosts, dataclasses.replace(
            again.hosts[0], name='h4'))),
        egress_bps=np.resize(again.egress_bps, 5),
        ingress_bps=np.resize(again.ingress_bps, 5),
        uplinks=uplinks.Uplinks(np.concatenate((above, [[1]])),
                                np.full(4, 0.98e9)))
    assert found.follow(more) == told
    # A new leader begins with others.
    assert lateness.Lateness().follow(more) != told


def test_so_many_are_guarded_and_no_more(monkeypatch):
    monkeypatch.setattr(lateness, 'MOST_JOBS', 3)
    seen = given_by.at(*(
        job(f'j{i}', FIRST, 40.0 + i) for i in range(5)))
    assert lateness.Lateness().follow(seen).keys() == {'j2', 'j3', 'j4'}


@pytest.mark.parametrize(('compute_s', 'is_guarded'), [
    (9.1, True), (8.9, False)])
def test_of_iterations_of_twenty_seconds_the_controller_hears(compute_s,
                                                              is_guarded):
    """With the tenth that sending takes longer."""
    seen = given_by.at(job('a', FIRST),
                       job('b', OTHER, compute_s, send_s=10.0))
    assert bool(lateness.Lateness().follow(seen)) is is_guarded


def test_jobs_that_compute_little_are_guarded_too():
    seen = given_by.at(*(job(name, pair, 0.5, send_s=30.0)
                         for name, pair in (('a', FIRST), ('b', OTHER))))
    assert lateness.Lateness().follow(seen).keys() == {'a', 'b'}


def test_who_is_late_goes_first_and_the_loop_looks_in_time():
    late_s = {'b': 160.0, 'a': 170.0}

    def order(now_s):
        found = policy_documents.compute(two(now_s), None, late_s)
        return ([one.coflow_id for one in found.schedule.coflows],
                found.next_check_s)

    # By intensity, a computes for longer.
    assert order(150.0) == (['a', 'b'], 160.0)
    assert order(160.0) == (['b', 'a'], 170.0)
    # Who is late for longest.
    assert order(171.0) == (['b', 'a'], math.inf)
    late_s['a'] = 155.0
    assert order(171.0) == (['a', 'b'], math.inf)


@pytest.mark.parametrize(('periods', 'is_anew'), [
    (0.5, False), (1.9, False), (2.1, True)])
def test_who_is_two_periods_behind_begins_anew(periods, is_anew):
    found, guard = lateness.Lateness(), guard_of()
    found.follow(two())
    guard.began(0, 60.0)
    guard.began(1, 80.0)
    ended_s = guard.late_s(1) + 22.0 + periods * (22.0 + 20.0)
    told = found.follow(two(ended_s + 20.0, (100.0, ended_s + 20.0)))
    (guard.began if is_anew else guard.ended)(1, ended_s)
    assert told['b'] == pytest.approx(guard.late_s(1))


def test_who_pauses_begins_anew_and_who_does_so_often_is_not_guarded():
    found, guard = lateness.Lateness(), guard_of()
    found.follow(two())
    arrival_s = 100.0
    for _ in range(3):
        arrival_s += 1000.0
        told = found.follow(two(arrival_s, (100.0, arrival_s)))
        guard.began(1, arrival_s - 20.0)
        assert told['b'] == pytest.approx(guard.late_s(1))
    told = found.follow(two(arrival_s, (100.0, arrival_s + 1000.0)))
    assert told.keys() == {'a'}
    # A job of another size.
    assert found.follow(two(computes_s=(40.0, 30.0))).keys() == {'a', 'b'}


@pytest.mark.parametrize('seen', [
    given_by.at(), two(order='fair'), two(computes_s=(0.0, 20.0)),
    given_by.at(job('a', FIRST), job('b', OTHER, 1.0, 0.8)),
    given_by.at(job('a', FIRST), job('b', ('h2', 'h3'))),
    dataclasses.replace(two(), egress_bps=np.zeros(4))],
    ids=['nobody', 'fair', 'no computing', 'short', 'apart', 'no rate'])
def test_who_is_not_guarded(seen):
    """Of short iterations the controller hears too late."""
    assert lateness.Lateness().follow(seen) == {}
