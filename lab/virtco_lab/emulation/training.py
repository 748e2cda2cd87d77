# SPDX-License-Identifier: Apache-2.0

"""Two and six training jobs on one link, with the controller and real TCP.

All jobs send from VMs of one hypervisor to VMs of another, which controller
and edge modules serve by the jobs' hints.
"""

from concurrent import futures
import contextlib
import dataclasses
import functools
import itertools
import socket
import time

import numpy as np

from virtco import hints
from virtco import units
from virtco.model import coflow as coflow_model
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling.periodic import jobs as jobs_model
from virtco_lab.emulation import cases
from virtco_lab.emulation import extent
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import scenario
from virtco_lab.emulation import testbed as testbed_module
from virtco_lab.sim import training
from virtco_lab.sim import training_bounds
from virtco_lab.sim.figures import outcome
from virtco_lab.sim.figures import samples

RATE_BPS = 20e6
#: Measured schemes, each with the scheme that simulates it.
SCHEMES = {'TCP': 'fair', 'order': 'order'}
#: How far beyond the bound the mean iteration in order may be.
MOST_BEYOND = 0.05
_PATIENCE_S = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """Equal jobs.

    :ivar send_s: time of an iteration's bytes on the link alone.
    :ivar iterations: iterations of each job; the first ones do not count.
    """

    n_jobs: int
    compute_s: float
    send_s: float
    iterations: int = 16
    warm_up: int = 6


SETTINGS = {'training-2': Setting(2, 1.0, 0.8),
            'training-6': Setting(6, 2.2, 0.36)}


class Bed(testbed_module.Testbed):
    """Two hypervisors with controller, edge modules and VMs for each job."""

    def launch_jobs(self, setting: Setting) -> None:
        """Launch a pair of VMs for each job, with a hint of its bytes."""
        self._setting = setting
        self._size_bytes = round(setting.send_s * units.bps_to_bytes_per_s(
            scenario.goodput_bps(self.bed.link_bps)))
        launched = []
        for name in map('job{}'.format, range(setting.n_jobs)):
            coflow = dataclasses.replace(coflow_model.Coflow.from_flows(
                name, 2, [(0, 1, self._size_bytes)], iterations=0),
                compute_s=setting.compute_s)
            launched.append((coflow, self.launch(
                name, 2, testbed_module.flavor(1),
                hints.encode(hints.Hint(name, coflows=(coflow,))),
                hosts=('h0', 'h1'))))
        self._pairs = [self.ports(servers) for _, servers in launched]
        self.wait_enforced(launched)

    def run(self, is_in_order: bool, iterations: int, warm_up: int
            ) -> list[list[float]]:
        """Let all jobs begin to compute at once.

        :param is_in_order: instead of by TCP alone, without the edge modules.
        :returns: seconds of each job's iterations that count.
        """
        size_bytes, compute_s = self._size_bytes, self._setting.compute_s
        with contextlib.ExitStack() as stack:
            if not is_in_order:
                stack.enter_context(self.without_enforcement())
            # Its threads end when the sockets are closed.
            pool = stack.enter_context(futures.ThreadPoolExecutor(
                2 * len(self._pairs)))
            links = [namespaces.connect(
                sender.namespace, receiver.namespace, receiver.address,
                _PATIENCE_S) for sender, receiver in self._pairs]
            for one in itertools.chain(*links):
                stack.enter_context(one)
            began_s = time.monotonic() + 0.1
            for _, receiving in links:
                pool.submit(_answer, receiving, size_bytes)
            jobs = [pool.submit(_train, sending, size_bytes, compute_s,
                                iterations, began_s) for sending, _ in links]
            return [job.result()[warm_up:] for job in jobs]


def _train(link: socket.socket, size_bytes: int, compute_s: float,
           iterations: int, began_s: float) -> list[float]:
    """Compute, send and wait for the answer, again and again.

    :param began_s: time on the monotonic clock at which the first begins.
    :returns: seconds of each iteration.
    """
    payload = bytes(size_bytes)
    times_s = []
    for _ in range(iterations):
        time.sleep(max(0.0, began_s + compute_s - time.monotonic()))
        link.sendall(payload)
        link.recv(1)
        times_s.append(time.monotonic() - began_s)
        began_s += times_s[-1]
    return times_s


def _answer(link: socket.socket, size_bytes: int) -> None:
    """Answer each message that has arrived whole, until the sender ends."""
    while link.recv(size_bytes, socket.MSG_WAITALL):
        link.sendall(b'.')


_TABLE = samples.by_setting('scheme', (
    ('iteration s', 'measured'),
    ('deviation s', lambda found, scheme: float(np.std(
        found.of(scheme, 'measured')))),
    ('p95 s', lambda found, scheme: float(np.percentile(
        found.of(scheme, 'measured'), 95))),
    ('simulated s', 'simulated'),
    ('off %', lambda found, scheme: 100 * (
        found.mean(scheme, 'measured') / found.mean(scheme, 'simulated')
        - 1))),
    samples.bars('Mean iteration', 'scheme', 's', {
        series: series for series in ('measured', 'simulated')}))


def figure(name: str, options: extent.Options) -> outcome.Outcome:
    """Measure iteration times by TCP's sharing and in order; simulate both."""
    setting = SETTINGS[name]
    iterations = (setting.warm_up + 3 if options.short
                  else setting.iterations)
    found = samples.Samples(options.seeds)
    scale = cases.Scale(2, options.rate_bps)
    with Bed(cases.bed(scale, options.directory / 'logs' / name,
                       slots=setting.n_jobs), options.say) as at:
        at.wait_measured()
        at.launch_jobs(setting)
        for scheme, simulated in SCHEMES.items():
            options.say(f'{name}: {scheme}, {setting.n_jobs} jobs, '
                        f'{iterations} iterations.')
            found.add(scheme, {
                'measured': list(itertools.chain(*at.run(
                    scheme == 'order', iterations, setting.warm_up))),
                'simulated': _simulated_s(setting, simulated)}, 0.0)
    columns, rows, panels = _TABLE(found)
    bound_s = training_bounds.least_mean_iteration_s([
        jobs_model.PeriodicJob(str(i), setting.compute_s,
                               {'link': setting.send_s})
        for i in range(setting.n_jobs)])
    tcp_s, order_s = (found.mean(scheme, 'measured') for scheme in SCHEMES)
    beyond = order_s / bound_s - 1
    return outcome.Outcome(
        f'emulated-{name}', f'{setting.n_jobs} training jobs on one link, '
        'real TCP', tuple(columns),
        (*map(tuple, rows), ('bound', bound_s, None, None, None, None)),
        tuple(panels),
        (f'A link of {units.format_rate(options.rate_bps)}; '
         f'{setting.compute_s:g} s of computing and {setting.send_s:g} s of '
         f'sending, {iterations - setting.warm_up} iterations of each job '
         'count. All begin at once. *TCP* is without edge modules; under '
         '*order* the controller serves the jobs by their intensity.',
         f'Iterations in order are {beyond:+.1%} beyond the bound and '
         f'{tcp_s / order_s:.2f} × as fast as with TCP; '
         'any schedule reaches '
         f'{found.mean("TCP", "simulated") / bound_s:.2f} × at most over '
         'ideal fair sharing.'),
        () if beyond <= MOST_BEYOND else (
            f'{name}: iterations in order {beyond:.1%} beyond the bound, '
            f'{MOST_BEYOND:.0%} allowed',))


def _simulated_s(setting: Setting, scheme: str) -> float:
    """Simulate the same jobs; return their mean iteration time, in s."""
    rate_bps = 1e9
    n = setting.n_jobs
    jobs = [training.Job(str(i), setting.compute_s, fabric_model.Demand(
        np.array([0]), np.array([1 + i]),
        np.array([setting.send_s * rate_bps]), np.ones(1)))
        for i in range(n)]
    found = training.Cluster(np.full(2 * (n + 1), rate_bps)).run(
        jobs, scheme, 100.0, 40.0)
    return float(np.mean([times.mean() for times in found.iteration_s]))


FIGURES: dict[str, extent.Figure] = {
    name: functools.partial(figure, name) for name in SETTINGS}
