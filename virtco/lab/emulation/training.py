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

"""Two and six training jobs on one link, with real qdiscs and real TCP.

All jobs send from VMs of one hypervisor to VMs of another. Without gates TCP
shares the link. With gates each job has a class at the sender's uplink, which
is closed but for the job's turn; who computes and sends is not told of it.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import socket
import statistics
import threading
import time

import numpy as np
import pyroute2

from edge_module.gates import keeper
from virtco.lab.emulation import display as displays
from virtco.lab.emulation import fabric as fabric_module
from virtco.lab.emulation import janitor
from virtco.lab.emulation import namespaces
from virtco.lab.emulation import shaping
from virtco.lab.sim.figures import outcome
from virtco.lab.sim import training
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling.periodic import bounds
from virtco.scheduling.periodic import jobs as jobs_model
from virtco.scheduling.periodic import shifts
from virtco.table import edge_policy
from virtco import units

RATE_BPS = 20e6
#: What the sender's hypervisor uses of its cable, and what of that is payload.
EDGE_SHARE, PAYLOAD_SHARE = 0.95, 1448 / 1514
CLOSED_BPS = 256e3
QUEUE_BYTES = 256 * 1024
#: Gates are planned for this much more sending: they open and close late.
GUARD = 1.1
#: From one look at the counters to the next.
LOOK_S = 0.015
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
class Options:
    """:ivar short: fewer iterations."""

    rate_bps: float = RATE_BPS
    short: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """:ivar iteration_s: of each job, those that count."""

    iteration_s: tuple[tuple[float, ...], ...]
    opened: int = 0

    @property
    def mean_s(self) -> float:
        return statistics.fmean(map(statistics.fmean, self.iteration_s))


class Bed:
    """Two hypervisors and a pair of VMs for each job."""

    def __init__(self, fabric: fabric_module.Fabric, setting: Setting,
                 rate_bps: float):
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
        for sender in self._senders:
            _send_single_packets(sender)
        fabric.introduce(zip(self._senders, self._receivers))
        self._namespace = fabric.hypervisors['h0'].namespace
        self._classes()

    def _classes(self) -> None:
        """One for each job, and one for all others, all of them open."""
        dev = fabric_module.UPLINK_DEV
        rate = f'{round(self._edge_bps)}bit'
        lines = [f'qdisc replace dev {dev} root handle 1: htb default 9',
                 f'class add dev {dev} parent 1: classid 1:1 htb rate {rate}',
                 f'class add dev {dev} parent 1:1 classid 1:9 htb rate '
                 f'{rate}']
        for i, sender in enumerate(self._senders):
            lines += [
                f'class add dev {dev} parent 1:1 classid 1:{16 + i:x} htb '
                f'rate {rate}',
                f'qdisc add dev {dev} parent 1:{16 + i:x} bfifo limit '
                f'{QUEUE_BYTES}',
                f'filter add dev {dev} parent 1: protocol ip u32 match ip '
                f'src {sender.address}/32 flowid 1:{16 + i:x}']
        shaping.run_batch(self._namespace, lines)

    def _set(self, netlink: pyroute2.IPRoute, index: int, job: int,
             is_open: bool) -> None:
        """Give a job's class its rate; what is open shares the link.

        Without a process of tc, which would be late on a busy machine.
        """
        share_bps = self._edge_bps / self._setting.n_jobs
        rate_bps, ceil_bps = ((share_bps, self._edge_bps) if is_open
                              else (CLOSED_BPS, CLOSED_BPS))
        netlink.tc('change-class', 'htb', index, 0x10010 + job,
                   parent=0x10001, quantum=3028, burst=16384, cburst=16384,
                   rate=int(units.bps_to_bytes_per_s(rate_bps)),
                   ceil=int(units.bps_to_bytes_per_s(ceil_bps)))

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def run(self, keepers: Sequence[keeper.Keeper], iterations: int,
            warm_up: int) -> Found:
        """Let all jobs begin to compute at once.

        :param keepers: of the jobs; empty: no gates.
        """
        jobs = [_Job(*ends, self._size_bytes, self._setting.compute_s,
                     iterations)
                for ends in zip(self._senders, self._receivers)]
        with contextlib.ExitStack() as stack:
            for job in jobs:
                stack.callback(job.close)
            with namespaces.netlink(self._namespace) as netlink:
                index, = netlink.link_lookup(ifname=fabric_module.UPLINK_DEV)
                for i in range(len(jobs)):
                    self._set(netlink, index, i, not keepers)
                began_s = time.monotonic() + 0.1
                for job in jobs:
                    job.start(began_s)
                look = functools.partial(self._look, netlink, index, keepers,
                                         self._counted(netlink, index))
                deadline_s = began_s + _PATIENCE_S + 3 * iterations * (
                    self._setting.compute_s
                    + self._setting.n_jobs * self._setting.send_s)
                while any(job.is_alive() for job in jobs):
                    if time.monotonic() > deadline_s:
                        raise TimeoutError('A job does not end.')
                    look(time.monotonic() - began_s)
                    time.sleep(LOOK_S if keepers else 0.1)
        for job in jobs:
            if job.error is not None:
                raise job.error
        return Found(tuple(tuple(job.times_s[warm_up:]) for job in jobs),
                     sum(one.opened for one in keepers))

    def _look(self, netlink: pyroute2.IPRoute, index: int,
              keepers: Sequence[keeper.Keeper],
              before: dict[int, tuple[int, int]], now_s: float) -> None:
        """Open and close gates."""
        if not keepers:
            return
        counted = self._counted(netlink, index)
        for job, one in enumerate(keepers):
            sent, waiting = counted[16 + job]
            was_open = one.is_open
            is_open = one.look(now_s, sent - before[16 + job][0], waiting)
            if is_open != was_open:
                self._set(netlink, index, job, is_open)

    @staticmethod
    def _counted(netlink: pyroute2.IPRoute, index: int
                 ) -> dict[int, tuple[int, int]]:
        """Bytes sent and bytes that wait, by the number of the class."""
        found = {}
        for message in netlink.get_classes(index=index):
            stats = message.get_attr('TCA_STATS2')
            found[message['handle'] & 0xffff] = (
                stats.get_attr('TCA_STATS_BASIC')['bytes'],
                stats.get_attr('TCA_STATS_QUEUE')['backlog'])
        return found


class _Job(threading.Thread):
    """Computes, sends, waits until all has arrived, and begins again."""

    def __init__(self, sender: fabric_module.VmPort,
                 receiver: fabric_module.VmPort, size_bytes: int,
                 compute_s: float, iterations: int):
        super().__init__(daemon=True)
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
        self._peer.settimeout(_PATIENCE_S)
        self._echo = threading.Thread(target=self._receive, daemon=True)

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
        buffer = bytearray(1 << 16)
        with contextlib.suppress(OSError):
            for _ in range(self._iterations):
                left = len(self._payload)
                while left and (n := self._peer.recv_into(
                        buffer, min(left, len(buffer)))):
                    left -= n
                self._peer.sendall(b'.')

    def close(self) -> None:
        for one in (self._socket, self._peer, self._listener):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in (self, self._echo):
            if thread.ident is not None:
                thread.join(5)


def _send_single_packets(port: fabric_module.VmPort) -> None:
    """A class at a small rate is in debt for long after a large packet, and
    stays so when its rate rises.
    """
    with namespaces.netlink(port.namespace) as netlink:
        index, = netlink.link_lookup(ifname='eth0')
        netlink.link('set', index=index, gso_max_segs=1)


@contextlib.contextmanager
def bed(setting: Setting, rate_bps: float) -> Iterator[Bed]:
    run = namespaces.new_run()
    watcher = janitor.Janitor(run)
    try:
        with fabric_module.Fabric(run) as fabric:
            yield Bed(fabric, setting, rate_bps)
    finally:
        watcher.dismiss()


def figure(name: str, options: Options, display: displays.Display
           ) -> outcome.Outcome:
    """Iteration times by TCP's sharing and by gates, beside the simulator."""
    setting = SETTINGS[name]
    iterations = (setting.warm_up + 3 if options.short
                  else setting.iterations)
    periodic = _periodic(setting)
    gates = shifts.plan(_periodic(setting, GUARD), fair=True).gates
    rows: list[tuple[outcome.Cell, ...]] = []
    means_s = {}
    with bed(setting, options.rate_bps) as at:
        for scheme, keepers in (
                ('fair', []),
                ('shifts', [keeper.Keeper(
                    edge_policy.Gate(
                        gates[job.job_id].period_s, gates[job.job_id].offset_s,
                        GUARD * setting.send_s, at.size_bytes, 1))
                    for job in periodic])):
            display.say(f'{name}: {scheme}, {setting.n_jobs} jobs, '
                        f'{iterations} iterations.')
            found = at.run(keepers, iterations, setting.warm_up)
            simulated_s = _simulated_s(setting, scheme)
            every = np.concatenate(found.iteration_s)
            means_s[scheme] = found.mean_s
            rows.append((scheme, found.mean_s, float(every.std()),
                         float(np.percentile(every, 95)), simulated_s,
                         100 * (found.mean_s / simulated_s - 1)))
    bound_s = bounds.least_mean_iteration_s(periodic)
    rows.append(('bound', bound_s, None, None, None, None))
    ratio = means_s['fair'] / means_s['shifts']
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
         'count. All begin at once. Gates are rates of the jobs\' classes '
         'at the sender\'s uplink; the jobs know nothing of them. They leave '
         f'{GUARD - 1:.0%} more time for sending than it takes.',
         f'Shifted iterations are {ratio:.2f} × as fast; any schedule '
         f'reaches {_simulated_s(setting, "fair") / bound_s:.2f} × at most '
         'over ideal fair sharing.'),
        () if ratio > 1.1 else (
            f'{name}: shifted iterations only {ratio:.2f} × as fast',))


def _periodic(setting: Setting, guard: float = 1.0
              ) -> list[jobs_model.PeriodicJob]:
    return [jobs_model.PeriodicJob(
        str(i), setting.compute_s, {'link': guard * setting.send_s})
        for i in range(setting.n_jobs)]


def _simulated_s(setting: Setting, scheme: str) -> float:
    """The same in the simulator."""
    rate_bps = 1e9
    n = setting.n_jobs
    jobs = [training.Job(str(i), setting.compute_s, fabric_model.Demand(
        np.array([0]), np.array([1 + i]),
        np.array([setting.send_s * rate_bps]), np.ones(1)))
        for i in range(n)]
    found = training.Cluster(np.full(2 * (n + 1), rate_bps)).run(
        jobs, scheme, 100.0, 40.0)
    return float(np.mean([times.mean() for times in found.iteration_s]))


FIGURES: dict[str, Callable[[Options, displays.Display], outcome.Outcome]] = {
    name: functools.partial(figure, name) for name in SETTINGS}
