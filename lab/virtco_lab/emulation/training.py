# SPDX-License-Identifier: Apache-2.0

"""Two and six training jobs on one link, with real qdiscs and real TCP.

All jobs send from VMs of one hypervisor to VMs of another. Each has a class at
the sender's uplink, which may use all of the link: of equal rate and priority,
or of one priority after the other.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import itertools
import socket
import statistics
import threading
import time

import numpy as np

from edge_module import enforcer as edge_enforcer
from edge_module.classify import classified as classify
from edge_module.classify import nft
from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import htb
from edge_module.tcplan import model
from virtco import units
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling.periodic import jobs as jobs_model
from virtco.wire import edge_policy
from virtco_lab.emulation import display as displays
from virtco_lab.emulation import extent
from virtco_lab.emulation import fabric as fabric_module
from virtco_lab.emulation import janitor
from virtco_lab.emulation import namespaces
from virtco_lab.sim import training
from virtco_lab.sim import training_bounds
from virtco_lab.sim.figures import outcome

RATE_BPS = 20e6
#: What the sender's hypervisor uses of its cable, and what of that is payload.
EDGE_SHARE, PAYLOAD_SHARE = 0.95, 1448 / 1514
#: What unmanaged traffic is guaranteed.
OTHERS = 0.02
QUEUE_BYTES = 256 * 1024
_PORT = 5001
_PATIENCE_S = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """Equal jobs.

    :ivar send_s: of an iteration on the link alone.
    :ivar iterations: that each job makes; the first ones do not count.
    """

    n_jobs: int
    compute_s: float
    send_s: float
    iterations: int = 16
    warm_up: int = 6


SETTINGS = {'training-2': Setting(2, 1.0, 0.8),
            'training-6': Setting(6, 2.2, 0.36)}


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """:ivar iteration_s: of each job, those that count."""

    iteration_s: tuple[tuple[float, ...], ...]

    @property
    def mean_s(self) -> float:
        return statistics.fmean(map(statistics.fmean, self.iteration_s))


class Bed:
    """Two hypervisors and a pair of VMs for each job."""

    def __init__(self, fabric: fabric_module.Fabric, setting: Setting,
                 rate_bps: float, stack: contextlib.ExitStack):
        self._setting = setting
        self._edge_bps = EDGE_SHARE * rate_bps
        self._size_bytes = round(setting.send_s * units.bps_to_bytes_per_s(
            self._edge_bps * PAYLOAD_SHARE))
        fabric.build(fabric_module.Uplink(host, rate_bps)
                     for host in ('h0', 'h1'))
        self._senders = [fabric.add_vm(f's{i}', 'h0')
                         for i in range(setting.n_jobs)]
        self._receivers = [fabric.add_vm(f'r{i}', 'h1')
                           for i in range(setting.n_jobs)]
        fabric.introduce(zip(self._senders, self._receivers))
        self._pool = stack.enter_context(namespaces.executor(
            fabric.hypervisors['h0'].namespace, 1))
        self._enforcer = edge_enforcer.Enforcer(
            htb.Uplink(kernel, fabric_module.UPLINK_DEV),
            nft.NftClassifier(kernel), lambda: self._edge_bps,
            settings=model.TreeSettings(min_leaf_bytes=QUEUE_BYTES,
                                        link_packet_s=0.004))

    def _set_policy(self, is_in_order: bool) -> None:
        """Apply a policy with a class of equal rate for each job.

        Each class may use all of the link.

        :param is_in_order: jobs have little more than their priority, the
            first one the highest.
        """
        share = OTHERS if is_in_order else 1 - 2 * OTHERS
        rate_bps = share * self._edge_bps / self._setting.n_jobs
        policy = edge_policy.EdgePolicy(
            'h0', 1, _PATIENCE_S, self._edge_bps, self._edge_bps,
            OTHERS * self._edge_bps, tuple(edge_policy.CoflowClass(
                sender.vm, sender.vm, minor, rate_bps, self._edge_bps,
                i if is_in_order else 0,
                (edge_policy.Destination('h1', minor + 1, 1.0, rate_bps,
                                         self._edge_bps),))
                for i, (sender, minor) in enumerate(self._numbered())),
            tuple(edge_policy.FlowEntry(
                sender.vm, sender.vm, sender.address, receiver.address,
                minor + 1) for (sender, minor), receiver in zip(
                    self._numbered(), self._receivers)))
        ports = tuple(classify.VmPort(
            sender.vm, sender.dev, socket.if_nametoindex(sender.dev),
            sender.mac, (sender.address,)) for sender in self._senders)
        self._enforcer.sync(policy, False, ports, time.monotonic())

    def _numbered(self) -> Iterator[tuple[fabric_module.VmPort, int]]:
        return zip(self._senders, itertools.count(edge_policy.FIRST_MINOR, 2))

    def run(self, is_in_order: bool, iterations: int, warm_up: int) -> Found:
        """Let all jobs begin to compute at once."""
        self._pool.submit(self._set_policy, is_in_order).result()
        jobs = [_Job(*ends, self._size_bytes, self._setting.compute_s,
                     iterations)
                for ends in zip(self._senders, self._receivers)]
        with contextlib.ExitStack() as stack:
            for job in jobs:
                stack.callback(job.close)
            began_s = time.monotonic() + 0.1
            for job in jobs:
                job.start(began_s)
            for job in jobs:
                job.join()
        for job in jobs:
            if job.error is not None:
                raise job.error
        return Found(tuple(tuple(job.times_s[warm_up:]) for job in jobs))


class _Job(threading.Thread):
    """Computes, sends, waits until all has arrived, and begins again."""

    def __init__(self, sender: fabric_module.VmPort,
                 receiver: fabric_module.VmPort, size_bytes: int,
                 compute_s: float, iterations: int):
        super().__init__()
        self._payload = bytes(size_bytes)
        self._compute_s, self._iterations = compute_s, iterations
        self.times_s: list[float] = []
        self.error: Exception | None = None
        self._listener = namespaces.call(
            receiver.namespace, lambda: socket.create_server(
                (receiver.address, _PORT)))
        self._socket = namespaces.call(
            sender.namespace, lambda: socket.create_connection(
                (receiver.address, _PORT), _PATIENCE_S))
        self._peer, _ = self._listener.accept()
        self._echo = threading.Thread(target=self._receive)

    def start(self, began_s: float = 0.0) -> None:
        self._began_s = began_s
        self._echo.start()
        super().start()

    def run(self) -> None:
        began_s = self._began_s
        try:
            for _ in range(self._iterations):
                time.sleep(max(0.0, began_s + self._compute_s
                               - time.monotonic()))
                self._socket.sendall(self._payload)
                self._socket.recv(1)
                ended_s = time.monotonic()
                self.times_s.append(ended_s - began_s)
                began_s = ended_s
        except OSError as error:
            self.error = error

    def _receive(self) -> None:
        buffer = bytearray(len(self._payload))
        with contextlib.suppress(OSError):
            for _ in range(self._iterations):
                left = len(self._payload)
                while left and (n := self._peer.recv_into(buffer, left)):
                    left -= n
                self._peer.sendall(b'.')

    def close(self) -> None:
        for one in (self._socket, self._peer, self._listener):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in (self, self._echo):
            if thread.ident is not None:
                thread.join()


@contextlib.contextmanager
def bed(setting: Setting, rate_bps: float) -> Iterator[Bed]:
    with (janitor.run() as run, fabric_module.Fabric(run) as fabric,
          contextlib.ExitStack() as stack):
        yield Bed(fabric, setting, rate_bps, stack)


def figure(name: str, options: extent.Options, display: displays.Display
           ) -> outcome.Outcome:
    """Measure iteration times by TCP's sharing and in order; simulate both."""
    setting = SETTINGS[name]
    iterations = (setting.warm_up + 3 if options.short
                  else setting.iterations)
    periodic = _periodic(setting)
    rows: list[tuple[outcome.Cell, ...]] = []
    means_s = {}
    with bed(setting, options.rate_bps) as at:
        for scheme in ('fair', 'order'):
            display.say(f'{name}: {scheme}, {setting.n_jobs} jobs, '
                        f'{iterations} iterations.')
            found = at.run(scheme == 'order', iterations, setting.warm_up)
            simulated_s = _simulated_s(setting, scheme)
            every = np.concatenate(found.iteration_s)
            means_s[scheme] = found.mean_s
            rows.append((scheme, found.mean_s, float(every.std()),
                         float(np.percentile(every, 95)), simulated_s,
                         100 * (found.mean_s / simulated_s - 1)))
    bound_s = training_bounds.least_mean_iteration_s(periodic)
    rows.append(('bound', bound_s, None, None, None, None))
    ratio = means_s['fair'] / means_s['order']
    return outcome.Outcome(
        f'emulated-{name}', f'{setting.n_jobs} training jobs on one link, '
        'real TCP', ('scheme', 'iteration s', 'deviation s', 'p95 s',
                     'simulated s', 'off %'), tuple(rows),
        (outcome.Panel('bars', 'Mean iteration', 'scheme', 's', (
            outcome.Series('measured', tuple(means_s),
                           tuple(means_s.values())),
            outcome.Series('simulated', tuple(means_s), tuple(
                _simulated_s(setting, scheme) for scheme in means_s)))),),
        (f'A link of {units.format_rate(options.rate_bps)}; '
         f'{setting.compute_s:g} s of computing and {setting.send_s:g} s of '
         f'sending, {iterations - setting.warm_up} iterations of each job '
         'count. All begin at once. *order* gives each job\'s class at the '
         'sender\'s uplink a priority of its own; the jobs know nothing of '
         'it.',
         f'Iterations in order are {ratio:.2f} × as fast; any schedule '
         f'reaches {_simulated_s(setting, "fair") / bound_s:.2f} × at most '
         'over ideal fair sharing.'),
        () if ratio > 1.1 else (
            f'{name}: iterations in order only {ratio:.2f} × as fast',))


def _periodic(setting: Setting) -> list[jobs_model.PeriodicJob]:
    return [jobs_model.PeriodicJob(str(i), setting.compute_s,
                                   {'link': setting.send_s})
            for i in range(setting.n_jobs)]


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
