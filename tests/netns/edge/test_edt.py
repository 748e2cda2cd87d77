# SPDX-License-Identifier: Apache-2.0

"""Earliest departure times: the program itself, and what stands of it.

This needs no fq. Packets that wait for their time are a matter of the kernel
tier (``tests/kernel/test_edt.py``).
"""

import os
import pathlib
import struct
import time

import pytest

from edge_module.privileged import kernel
from edge_module.shaper import bpf
from edge_module.shaper import edt
from edge_module.tcplan import minors
from edge_module.tcplan import model
from edge_module.tcplan import shape
from tests.netns.edge import bed as beds
from tests.netns.edge import policies
from virtco import exception

LINK_BPS = 100e6
PASS, DROP = 0, 2
CLASS = 0x11

pytestmark = [
    pytest.mark.netns,
    # CI installs clang.
    pytest.mark.skipif(edt.missing() is not None and not os.environ.get('CI'),
                       reason=str(edt.missing()))]


class Runner:
    """The program, fed by BPF_PROG_TEST_RUN."""

    def __init__(self):
        self.program = bpf.Program.load(str(edt.OBJECT), 'edt')
        self.copies = edt.processors()
        for minor in (minors.HOST, CLASS):
            self.set(minor, 12e6)
            self.program.maps['states'].set(minor, bytes(16))
            self.program.maps['counts'].set(minor, bytes(24 * self.copies))

    def set(self, minor, rate_bps, limit_bytes=1 << 20):
        self.program.maps['classes'].set(minor, edt.pack_class(
            model.HtbClass(minor, 1, 0, 0, 0, 0, limit_bytes, 1564, 24, 84),
            rate_bps))

    def send(self, frame_bytes=1476, priority=0x10000 | CLASS, segments=0,
             tstamp=0, repeat=1):
        """(verdict, departure time in ns, cost in ns)."""
        context = bytearray(192)
        struct.pack_into('=I', context, 32, priority)
        struct.pack_into('=Q', context, 152, tstamp)
        struct.pack_into('=I', context, 164, segments)
        verdict, after, took_ns = self.program.run(
            bytes(frame_bytes), bytes(context), repeat)
        return verdict, struct.unpack_from('=Q', after, 152)[0], took_ns

    def counted(self, minor):
        values = self.program.maps['counts'].get(minor, self.copies)
        return tuple(map(sum, zip(*struct.iter_unpack('=3Q', values),
                                  strict=True)))


@pytest.fixture
def runner():
    return Runner()


def _departures(runner, count, **packet):
    found = [runner.send(**packet) for _ in range(count)]
    assert all(verdict == PASS for verdict, _, _ in found)
    return [at_ns for _, at_ns, _ in found if at_ns]


def test_packets_depart_at_the_rate_of_the_wire(runner):
    """1476 bytes and 24 of the wire take 10 ms at 1.2 Mbit/s: long beside the
    moments that a busy machine takes between two packets.
    """
    runner.set(CLASS, 1.2e6)
    before_ns = time.monotonic_ns()
    times = _departures(runner, 15)
    gaps = [later - first for first, later in zip(times, times[1:],
                                                  strict=False)]
    assert len(times) >= 13 and set(gaps) == {10_000_000}
    assert times[0] > before_ns
    assert runner.counted(CLASS) == (15 * 1476, 15, 0)


def test_short_frames_and_super_packets_count_as_on_the_wire(runner):
    runner.set(CLASS, 1.2e6)
    for frame_bytes, segments, wire_bytes in (
            (42, 0, 84), (3000, 2, 3000 + 2 * 24), (64, 0, 88)):
        _departures(runner, 3)
        one, = _departures(runner, 1, frame_bytes=frame_bytes,
                           segments=segments)
        other, = _departures(runner, 1)
        assert other - one == wire_bytes * 8 * 10_000 // 12


def test_what_would_wait_too_long_is_dropped(runner):
    runner.set(CLASS, 1.2e6, limit_bytes=30_000)  # 200 ms
    begin_s = time.monotonic()
    verdicts = [runner.send()[0] for _ in range(60)]
    passed = verdicts.index(DROP)
    # One more leaves every 10 ms that the machine takes.
    assert 20 <= passed <= 22 + (time.monotonic() - begin_s) / 0.01
    bytes_, packets, drops = runner.counted(CLASS)
    assert packets == verdicts.count(PASS) and drops == verdicts.count(DROP)
    assert bytes_ == 1476 * packets
    # What was dropped takes no time from what comes later.
    beds.wait_for(lambda: runner.send()[0] == PASS, 5, 'room')


def test_a_class_that_rises_owes_nothing(runner):
    runner.set(CLASS, 120e3)
    late = _departures(runner, 3)[-1]
    assert late - time.monotonic_ns() > 80e6
    runner.set(CLASS, 12e6)
    times = _departures(runner, 3)
    assert times[-1] - time.monotonic_ns() < 10e6


def test_what_nobody_classifies_is_the_hosts(runner):
    for priority in (0, 7, 0x20000 | CLASS, 0x10000 | 0x99):
        assert runner.send(priority=priority)[0] == PASS
    assert runner.counted(minors.HOST)[1] == 4
    assert runner.counted(CLASS)[1] == 0


def test_a_later_time_of_the_sender_is_kept(runner):
    """TCP may pace by itself."""
    later_ns = time.monotonic_ns() + 10 ** 9
    assert runner.send(tstamp=later_ns)[1] == later_ns
    # Of the wall's clock: fq would drop it.
    assert runner.send(tstamp=time.time_ns())[1] < later_ns


class WithoutFq(edt.EdtShaper):
    """For kernels without fq: the program alone."""

    queues = ('fq', 'mq', 'noqueue', 'pfifo_fast')

    def _make_queues(self, ifindex):
        pass

    def _remove_queues(self, ifindex):
        pass


@pytest.fixture
def uplink(make_bed):
    bed = make_bed(2)
    return bed, WithoutFq(kernel, 'uplink0', pace_s=0)


def _tree(rates):
    builder = policies.PolicyBuilder('h1', LINK_BPS)
    vm = beds.Vm.__new__(beds.Vm)
    vm.uuid, vm.ip, vm.host = 'v', '10.0.0.1', 'h2'
    for number, rate_bps in enumerate(rates):
        builder.coflow(f'C{number}', rate_bps, [(vm, vm, 1)], prio=number)
    return shape.build_tree(builder.build(), LINK_BPS, model.TreeSettings(
        overhead_bytes=24, frame_min_bytes=84), ports=(4,))


def test_the_tree_outlives_the_module(uplink):
    bed, shaper = uplink
    tree = _tree([60e6, 10e6])

    def call(function, *args):
        return beds.in_netns(bed.ns('h1'), function, *args)

    assert not call(shaper.snapshot).present
    call(shaper.ensure_root)
    call(shaper.set_classes, tree.values(), {})
    again = WithoutFq(kernel, 'uplink0', pace_s=0)
    found = call(again.snapshot)
    assert found.present and found.tree == tree
    assert again._rates_bps == pytest.approx(shaper._rates_bps, rel=1e-3)
    call(again.delete_classes, [0x11, 0x10])
    assert call(again.snapshot).tree == {
        minor: item for minor, item in tree.items()
        if minor not in (0x10, 0x11)}
    assert call(again.delete_root) and not call(again.delete_root)
    assert not call(again.snapshot).present


def test_it_counts_and_hands_on_what_is_unused(uplink):
    """Without fq nothing waits, but what would wait too long is dropped."""
    bed, _ = uplink
    shaper = WithoutFq(kernel, 'uplink0')
    a, b = bed.add_vm('h1'), bed.add_vm('h2')

    def call(function, *args):
        return beds.in_netns(bed.ns('h1'), function, *args)

    call(shaper.ensure_root)
    call(shaper.set_classes, _tree([60e6, 10e6]).values(), {})
    flow = beds.Flow(a, b, size_bytes=2_000_000).start()
    beds.wait_for(lambda: flow.done_s, 20, 'its end')
    flow.close()
    stats = call(shaper.stats)
    # No classification here: all of it is the host's, whose guarantee alone
    # would take half a minute.
    assert flow.done_s < 10
    assert stats[minors.HOST].sent_bytes > 2_000_000
    assert stats[minors.LINK].sent_bytes >= stats[minors.HOST].sent_bytes
    call(shaper.pace, time.monotonic())
    assert sum(shaper._rates_bps.values()) <= 1.001 * LINK_BPS
    call(shaper.delete_root)


def test_a_kernel_without_fq_is_named(make_bed):
    if pathlib.Path('/sys/module/sch_fq').exists():
        pytest.skip('this kernel has fq')
    bed = make_bed(2)
    with pytest.raises(exception.KernelRefused, match='fq. of uplink0'):
        beds.in_netns(bed.ns('h1'),
                      edt.EdtShaper(kernel, 'uplink0').ensure_root)


def test_a_device_that_cannot_shape_leaves_it_to_the_kernel(make_bed,
                                                            edge_of):
    """``htb_offload`` on a device without it."""
    from edge_module.qdisc import htb
    bed = make_bed(2)
    edge = edge_of(bed, 'h1')
    uplink = htb.Uplink(kernel, 'uplink0', offload=True)
    edge.enforcer.tree.uplink = uplink
    assert 'offloaded' in uplink.how
    edge.set_ports()
    edge.set_policy(policies.PolicyBuilder('h1', 40e6).build())
    assert uplink.how == 'htb' and not edge.call('drift').classes
