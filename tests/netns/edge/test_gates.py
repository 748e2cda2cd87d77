# SPDX-License-Identifier: Apache-2.0

"""Training jobs behind gates that the real edge module keeps."""

import re
import signal
import socket
import statistics
import threading
import time

import pytest

from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import policies
from tests.netns.edge import process
from tests.netns import gear
from virtco.table import edge_policy

LINK_BPS = 40e6
COMPUTE_S, SEND_S = 0.4, 0.32
#: Of the link, what a job alone gets as payload.
PAYLOAD = 0.98 * 1448 / 1514
OPEN_S = 1.1 * SEND_S
PERIOD_S = COMPUTE_S + OPEN_S
ITERATION_BYTES = SEND_S * LINK_BPS / 8
TTL_S = 2.0
CLOSED = f'ceil {0.0125 * LINK_BPS / 1e3:.0f}Kbit'

pytestmark = pytest.mark.netns
real_time = pytest.mark.real_time(
    reason='measures how long TCP transfers take')


class Job(threading.Thread):
    """Computes, sends, waits until all has arrived, and begins again."""

    def __init__(self, src, dst, began_s, together=None):
        super().__init__(daemon=True)
        self.began_s, self.together = began_s, together
        self.payload = bytes(round(PAYLOAD * ITERATION_BYTES))
        self.times_s = []
        self.ended = threading.Event()
        self.listener = beds.in_netns(
            dst.netns, lambda: socket.create_server((dst.ip, 5001)))
        self.sender = beds.in_netns(
            src.netns, lambda: socket.create_connection((dst.ip, 5001), 30))
        self.receiver, _ = self.listener.accept()
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self):
        left, buffer = len(self.payload), bytearray(1 << 16)
        try:
            while got := self.receiver.recv_into(buffer, min(
                    left, len(buffer))):
                left -= got
                if not left:
                    self.receiver.sendall(b'.')
                    left = len(self.payload)
        except OSError:
            pass

    def run(self):
        began_s = self.began_s
        try:
            while not self.ended.wait(max(
                    0, began_s + COMPUTE_S - time.monotonic())):
                self.sender.sendall(self.payload)
                if not self.sender.recv(1):
                    return
                if self.together is not None:
                    self.together.wait()
                now_s = time.monotonic()
                self.times_s.append(now_s - began_s)
                began_s = now_s
        except (OSError, threading.BrokenBarrierError):
            pass

    def some_s(self, first, n):
        beds.wait_for(lambda: len(self.times_s) >= first + n, 60,
                      f'iterations, have {self.times_s[first:]}')
        return self.times_s[first:first + n]

    def close(self):
        self.ended.set()
        if self.together is not None:
            self.together.abort()
        for one in (self.sender, self.receiver, self.listener):
            one.close()
        self.join(5)


@pytest.fixture
def site(make_bed, tmp_path):
    bed = make_bed(2)
    controller = controllers.Controller(bed.ns('h1'))
    edge = process.EdgeProcess(bed, 'h1', tmp_path, gate_clock_error_s=0)
    jobs = []
    yield bed, controller, edge, jobs
    for job in jobs:
        job.close()
    edge.stop()
    controller.stop()


def policy(pairs, generation, gates):
    host = pairs[0][0].host
    builder = policies.PolicyBuilder(host, LINK_BPS, generation=generation,
                                     ttl_s=TTL_S)
    for number, (src, dst) in enumerate(pairs):
        builder.coflow(f'C{number}', 0.45 * LINK_BPS, [(src, dst, 1)])
    document = builder.build().to_dict()
    for number, coflow in enumerate(document['classes'] if gates else ()):
        coflow['gate'] = {
            'period_s': PERIOD_S, 'offset_s': number * OPEN_S,
            'open_s': OPEN_S, 'iteration_bytes': ITERATION_BYTES, 'epoch': 1}
    assert edge_policy.EdgePolicy.from_dict(document)
    return document


@gear.full(
    'unit/edge/test_gate_keeper.py::test_iterations_begin_at_their_turns, '
    'unit/edge/test_gates.py::test_without_a_controller_all_may_send, '
    'netns/edge/test_gates.py::'
    'test_a_killed_module_opens_its_gates_when_it_is_back')
@real_time
def test_two_jobs_take_turns_and_go_on_without_a_controller(site):
    bed, controller, edge, jobs = site
    pairs = [(bed.add_vm('h1'), bed.add_vm('h2')) for _ in range(2)]
    controller.set_policy(policy(pairs, 1, gates=False))
    edge.start()
    controller.wait_report(lambda r: r['applied_generation'] == 1
                           and r['ports'])
    began_s = time.monotonic() + 0.1
    jobs += [Job(*pair, began_s) for pair in pairs]
    for job in jobs:
        job.start()
    # The first ones meet. Later TCP's unfairness may bring them apart.
    shared_s = statistics.fmean(time_s for job in jobs
                                for time_s in job.some_s(0, 2))
    controller.set_policy(policy(pairs, 2, gates=True))
    controller.wait_report(lambda r: r['applied_generation'] == 2)
    first = max(len(job.times_s) for job in jobs) + 3
    # A machine that is busy elsewhere costs a job a turn now and then.
    in_turn_s = statistics.median(time_s for job in jobs
                                  for time_s in job.some_s(first, 4))
    print(f'shared {shared_s:.3f} s, in turn {in_turn_s:.3f} s')
    assert shared_s >= 1.1 * in_turn_s
    # A closed class is no reason to call the kernel another one.
    assert edge.once('--check').stdout.startswith('The kernel holds')
    for job in jobs:
        job.ended.set()
    beds.wait_for(lambda: edge.tc().count(CLOSED) == 4, 10,
                  'gates to close')
    controller.stop()
    beds.wait_for(lambda: 'share the link equally' in edge.log(),
                  TTL_S + 10, 'the decay')
    beds.wait_for(lambda: CLOSED not in edge.tc(), 5, 'open gates')
    assert 'Traceback' not in edge.log()


def test_a_killed_module_opens_its_gates_when_it_is_back(site):
    bed, controller, edge, jobs = site
    pairs = [(bed.add_vm('h1'), bed.add_vm('h2'))]
    controller.set_policy(policy(pairs, 1, gates=True))
    edge.start()
    beds.wait_for(lambda: edge.tc().count(CLOSED) == 2, 10, 'a closed gate')
    edge.stop(signal.SIGKILL)
    # What it left goes on by itself: a trickle.
    assert edge.tc().count(CLOSED) == 2
    job, = jobs[:] = [Job(*pairs[0], time.monotonic() - COMPUTE_S)]
    job.start()
    leaf = f'1:{edge_policy.FIRST_MINOR + 1:x}'
    beds.wait_for(lambda: sent_bytes(edge, leaf) > 10_000, 10, 'progress')
    assert not job.times_s
    edge.start()
    job.some_s(0, 1)


def sent_bytes(edge, classid):
    shown = beds.run('tc', '-s', 'class', 'show', 'dev', 'uplink0',
                     netns=edge.bed.ns(edge.host))
    return int(re.search(rf'class htb {classid} .*\n Sent (\d+) bytes',
                         shown)[1])


@gear.full(
    'unit/edge/test_gates.py::'
    'test_a_clock_that_differs_from_the_controllers_opens')
@real_time
def test_a_job_on_hosts_whose_clocks_differ(make_bed, tmp_path, request):
    """Gates are open where the clock is off, and the job goes on."""
    bed = make_bed(2)
    at = [[bed.add_vm(host) for _ in range(2)] for host in ('h1', 'h2')]
    sites = []
    for host, pairs in (('h1', list(zip(*at, strict=True))),
                        ('h2', list(zip(*at[::-1], strict=True)))):
        home = tmp_path / host
        home.mkdir()
        controller = controllers.Controller(bed.ns(host))
        request.addfinalizer(controller.stop)
        edge = process.EdgeProcess(bed, host, home, has_clock=True)
        request.addfinalizer(edge.stop)
        controller.set_policy(policy(pairs, 1, gates=True))
        edge.start()
        sites.append((controller, edge, pairs))
    began_s = time.monotonic() + 0.1
    jobs = []
    for number in range(2):
        together = threading.Barrier(2)
        for _, _, pairs in sites:
            jobs.append(Job(*pairs[number], began_s, together))
            request.addfinalizer(jobs[-1].close)
    for job in jobs:
        job.start()
    (first, _, _), (second, edge, _) = sites
    for off_s in (0.05, -1.0, 0.0):
        edge.set_clock(off_s)
        found = second.wait_report(
            lambda report: len(report['gates']) == 2 * (not off_s)
            and bool(report['why_gates_open']) == bool(off_s))
        if off_s:
            assert 'differ by at least' in found['why_gates_open']
            beds.wait_for(lambda: CLOSED not in edge.tc(), 5, 'open gates')
        assert len(first.wait_report(lambda report: report['gates'])[
            'gates']) == 2
        begins = [len(job.times_s) for job in jobs]
        some_s = [job.some_s(begin, 2)
                  for job, begin in zip(jobs, begins, strict=True)]
        print(f'{off_s:+.2f} s off: {statistics.fmean(sum(some_s, [])):.2f} s')
    assert 'Traceback' not in edge.log()
