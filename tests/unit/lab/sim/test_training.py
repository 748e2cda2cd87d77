# SPDX-License-Identifier: Apache-2.0

"""Training jobs in the simulator, and the kernels that they brought."""

import dataclasses

import numpy as np
import pytest

from virtco import compiled
from virtco import exception
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling import order_kernel
from virtco.scheduling.periodic import job_bounds as bounds
from virtco.topology import tree
from virtco_lab.sim import training
from virtco_lab.sim import training_bounds
from virtco_lab.sim import training_jobs
from virtco_lab.sim.figures import training as figure

GBIT = 1e9


def demand(*flows):
    src, dst, bits = zip(*flows)
    return fabric_model.Demand(np.array(src), np.array(dst), np.array(bits),
                               np.ones(len(flows)))


def pair(compute_s=1.0, gbit=10.0):
    """Two jobs that send from one host of 10 Gbit/s."""
    return [training.Job(f'job{i}', compute_s,
                         demand((0, 1 + i, gbit * GBIT))) for i in range(2)]


CLUSTER = training.Cluster(np.full(8, 10 * GBIT))


@pytest.mark.parametrize('scheme, iteration_s', [
    ('fair', 3.0), ('mrtf', 2.0), ('order', 2.0)])
def test_two_jobs_on_a_link(scheme, iteration_s):
    found = CLUSTER.run(pair(), scheme, 60.0, 30.0)
    for times in found.iteration_s:
        assert times == pytest.approx(iteration_s)
    assert found.mean_s == pytest.approx([iteration_s] * 2)
    assert found.utilisation == pytest.approx(1 / iteration_s)


def test_a_job_that_computes_less_than_it_sends_is_ordered_by_intensity():
    """The first job never waits; the other has a third of the link."""
    times = CLUSTER.run(pair(0.5), 'order', 61.0, 31.0).iteration_s
    assert times[0] == pytest.approx(1.5)
    assert times[1] == pytest.approx(3.0)


def test_a_guard_keeps_the_least_intense_job_going():
    """Two jobs fill the link; by intensity the third one never sends."""
    jobs = [training.Job(name, compute_s, demand((0, 1 + i, gbit * GBIT)),
                         workers)
            for i, (name, compute_s, gbit, workers) in enumerate((
                ('a', 1.0, 10.0, 8), ('b', 1.0, 10.0, 8),
                ('c', 0.5, 10.0, 1)))]
    period_s = [2.0, 2.0, 1.5]
    least = bounds.least_worst_slowdown(CLUSTER.periodic(jobs))
    slowdown = {scheme: CLUSTER.run(jobs, scheme, 400.0, 100.0
                                    ).mean_s / period_s
                for scheme in ('order', 'order, guarded')}
    assert slowdown['order'].max() > 10
    assert slowdown['order, guarded'].max() < 1.1 * least


def test_of_late_jobs_the_one_that_should_have_ended_first_goes_first():
    """Both may take 1.02 times 7 / 3 of their 1.5 s, which is 3.57 s.

    The first one has to wait until the second one has sent for a second.
    """
    jobs = [training.Job(name, compute_s, demand((0, 1 + i, 10 * GBIT)),
                         workers, start_s)
            for i, (name, compute_s, workers, start_s) in enumerate((
                ('a', 1.0, 8, 0.0), ('later', 0.5, 1, 100.3),
                ('late', 0.5, 1, 100.0), ('b', 1.0, 8, 0.0)))]
    found = training.Cluster(np.full(10, 10 * GBIT)).run(
        jobs, 'order, guarded', 300.0)
    assert found.iteration_s[1][:3] == pytest.approx([4.27, 3.43, 3.71])
    assert found.iteration_s[2][:3] == pytest.approx([3.57, 3.43, 3.71])


def test_what_becomes_of_jobs_is_told_of_each_scheme():
    """Of 200 s the first 50 do not count; the third job begins at 60."""
    jobs = [*pair(), dataclasses.replace(
        pair()[0], demand=demand((3, 3, 10 * GBIT)), start_s=60.0)]
    found = {}
    figure._serve(training_jobs.Site(CLUSTER, (), (), None), jobs,
                  ('fair', 'order'), ', here', found)
    assert found == pytest.approx({
        'bound, here, GPUs': 0.5, 'bound, no stragglers, here, GPUs': 0.5,
        'fair, here, GPUs': (50 + 50 + 70) / 450,
        'fair, here, stragglers': 1.0, 'fair, here, slowdown': 1.5,
        'fair, here, slowest': 1 / 1.5, 'order, here, GPUs': 220 / 450,
        'order, here, stragglers': 1 / 3, 'order, here, slowdown': 1.0,
        'order, here, slowest': 140 / 150})


def test_a_setting_is_named_by_its_oversubscription():
    assert [f'{factor:g}:1' for factor in figure.OVERSUBSCRIPTION.values()
            ] == list(figure.OVERSUBSCRIPTION)


def test_every_iteration_sends_all_flows_again():
    """Also those that ended before the others of their coflow."""
    job = training.Job('uneven', 1.0, demand(
        (0, 1, 20 * GBIT), (0, 2, 5 * GBIT), (3, 2, 5 * GBIT)))
    for scheme in training.SCHEMES:
        times, = CLUSTER.run([job], scheme, 40.0).iteration_s
        assert len(times) == 11
        assert times == pytest.approx(3.5)


def test_a_job_that_sends_nothing_computes_all_the_time():
    none = np.array([], int)
    alone = training.Job('alone', 2.0, fabric_model.Demand(
        none, none, none.astype(float), none.astype(float)))
    times, others = CLUSTER.run([alone, pair()[0]], 'order', 21.0).iteration_s
    assert times == pytest.approx([2.0] * 10)
    assert others == pytest.approx(2.0)
    # What ends with the warm-up does not count.
    times, = CLUSTER.run([alone], 'order', 21.0, 4.0).iteration_s
    assert len(times) == 8


def test_jobs_as_the_scheduler_sees_them():
    one, other = CLUSTER.periodic(pair(2.0, 5.0))
    assert one.busy_s == pytest.approx({0: 0.5, 5: 0.5})
    assert (one.period_s, one.intensity) == pytest.approx((2.5, 4.0))
    assert training_bounds.least_mean_iteration_s(
        [one, other]) == pytest.approx(2.5)


def test_an_ordinary_coflow_goes_before_a_job_with_more_to_send():
    found = {scheme: CLUSTER.run(pair(), scheme, 60.0, 0.0, [
        training.Ordinary(20.5, demand((0, 3, 2 * GBIT))),
        training.Ordinary(10.5, demand((0, 3, 3 * GBIT)))]).cct_s
        for scheme in ('order', 'training first')}
    assert found['order'] == pytest.approx([0.2, 0.3])
    # The link of two jobs is never free.
    assert len(found['training first']) == 0


def test_a_scheme_that_is_none():
    with pytest.raises(exception.Invalid, match='one of fair, mrtf, order'):
        CLUSTER.run(pair(), 'best', 1.0)


def test_keys_keep_both_goals():
    """Jobs by intensity, others by what is left, the shorter leader first."""
    alone_s = np.array([3.0, 1.0, 2.0, 0.5, 4.0])
    intensity = np.array([9.0, 5.0, 0.0, 0.0, 0.0])
    for module in (order_kernel,
                   compiled.plain('virtco.scheduling.order_kernel')):
        key = alone_s.copy()
        module.rank_repeating(np.arange(5), np.zeros(5, np.int64), alone_s,
                              np.ones(5), intensity, key)
        assert np.argsort(key, kind='stable').tolist() == [3, 2, 0, 1, 4]
        # A weight of 2 counts as half of the time.
        weight = np.array([2.0, 1.0, 1.0, 1.0, 3.0])
        key = alone_s / weight
        module.rank_repeating(np.arange(5), np.zeros(5, np.int64), alone_s,
                              weight, intensity, key)
        assert np.argsort(key, kind='stable').tolist() == [3, 4, 0, 1, 2]


def test_a_cluster_of_jobs_is_filled_from_its_topology():
    at = training_jobs.site(training_jobs.small())
    assert sum(map(len, at.leaves)) == 88
    assert set(at.cluster.cap_bps) == {200e9}
    # Racks' uplinks limit, 4:1; pods' are not given.
    assert at.cluster.above.cap_bps[0] == pytest.approx(10 * 200e9 / 4)
    assert len(at.cluster.above.cap_bps) == 2 * 12
    jobs = training_jobs.mix(at, np.random.default_rng(1))
    taken = [host for job in jobs for host in np.unique(
        [job.demand.src_host, job.demand.dst_host])]
    # 90 % of the hosts at most.
    assert 70 <= len(taken) == len(set(taken)) <= 79
    assert all(job.workers % 8 == 0 for job in jobs)


@pytest.mark.parametrize('n_hosts', [0, 1, 2])
def test_a_site_has_two_hosts_or_more(n_hosts):
    names = tuple(f'h{number}' for number in range(n_hosts))
    topology = tree.Topology((tree.Plane(roots=(tree.Node('rack', names),)),))
    if n_hosts == 2:
        at = training_jobs.site(topology)
        assert at.hosts == names
        job, = training_jobs.mix(at, np.random.default_rng(0), filled=1.0)
        assert set(job.demand.src_host) == {0, 1}
        return
    with pytest.raises(exception.Invalid, match='at least 2 hosts'):
        training_jobs.site(topology)


def test_an_uplink_that_is_given_is_not_oversubscribed():
    at = training_jobs.site(tree.Topology((tree.Plane(roots=(
        tree.Node('given', ('a', 'b'), uplink=tree.Uplink(3e9, 4e9)),
        tree.Node('none', ('c', 'd')))),)), oversubscription=8.0)
    assert sorted(at.cluster.above.cap_bps) == pytest.approx(
        [3e9, 4e9, 50e9, 50e9])


def test_a_job_takes_half_of_its_hosts_below_a_switch():
    def leaves():
        return [[0, 1, 2], [3], [4, 5, 6, 7]]
    assert list(training_jobs._taken(leaves(), 5, 1)) == [3, 4, 5, 6, 0]
    assert sorted(training_jobs._taken(leaves(), 6, 0)) == [
        0, 1, 2, 3, 4, 5]
    assert sorted(training_jobs._taken(leaves(), 12, 2)) == list(range(8))


def test_the_planner_places_the_same_jobs_closer_together():
    at = training_jobs.site(training_jobs.small(), oversubscription=8.0)
    jobs = training_jobs.mix(at, np.random.default_rng(1))[:5]
    placed = training_jobs.placed(at, jobs)
    for job, other in zip(jobs, placed, strict=True):
        assert (job.name, job.compute_s, job.workers, job.start_s) == (
            other.name, other.compute_s, other.workers, other.start_s)
        assert sorted(job.demand.bits) == sorted(other.demand.bits)
        # One rank's host each, also where two would fit.
        assert len(set(job.demand.src_host)) == len(set(other.demand.src_host))
    taken = [host for job in placed for host in np.unique(
        [job.demand.src_host, job.demand.dst_host])]
    assert len(taken) == len(set(taken))
    sent_s = [sum(job.send_s for job in at.cluster.periodic(some))
              for some in (jobs, placed)]
    assert sent_s[1] < 0.7 * sent_s[0]


@pytest.mark.parametrize('name, operations, per_host', [
    # Parameters of 2 bytes, 2 (n - 1) / n of them in a ring of 4.
    ('gpt-7b', 6 * 6.7e9 * 4096, 6.7e9 * 2 * 2 * 3 / 4),
    ('gpt-13b', 6 * 13e9 * 4096, 13e9 * 2 * 2 * 3 / 4),
    ('gpt-22b', 6 * 22e9 * 8192, 22e9 * 2 * 2 * 3 / 4),
    ('llama-65b', 6 * 65.2e9 * 16384, 65.2e9 * 2 * 3 * 3 / 4),
    # 4 exchanges of 2 experts for each token, of each layer, of 8 GPUs.
    ('mixtral-8x7b', 6 * 12.9e9 * 4096,
     8 * 4 * 4096 * 4096 * 32 * 2 * 2 * 3 / 4)])
def test_models_compute_and_send_what_is_published(name, operations,
                                                   per_host):
    job = training_jobs.job('x', training_jobs.MODELS[name], range(4))
    assert job.compute_s == pytest.approx(operations / (0.45 * 312e12),
                                          rel=1e-12)
    assert job.workers == 4 * 8
    sent = np.bincount(job.demand.src_host, job.demand.bits) / 8
    assert sent == pytest.approx([per_host] * 4, rel=1e-12)


def test_rings_of_one_model_are_added():
    model = training_jobs.Model('m', 1.0, 1, (
        ('all_gather', 6.0), ('reduce_scatter', 12.0)), (3,))
    flows = model.flows(3)
    assert flows.keys() == {(0, 1), (1, 2), (2, 0)}
    assert list(flows.values()) == pytest.approx([12.0] * 3, abs=1e-9)


@pytest.mark.parametrize('setting', figure.ON_A_LINK)
def test_no_mean_iteration_on_a_link_is_below_its_bound(setting):
    found = figure._pair_run(setting, 0)
    assert min(found[scheme] for scheme in figure.PAIR_SCHEMES) >= (
        found['bound'] * (1 - 1e-9))
