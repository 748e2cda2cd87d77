# SPDX-License-Identifier: Apache-2.0

"""What the BPF program of ``[edge] shaper = edt`` costs per packet.

``python -m benchmarks.shapers`` (root) runs it by BPF_PROG_TEST_RUN, with one
class and with 10,000: a packet that passes, one that is dropped, and one of no
class. The kernel's fq and the rest of the stack are not in it. Then it tells
what one look at all classes costs the module, by number of coflows.
"""

import argparse
import struct
import time

from edge_module.privileged import kernel
from edge_module.shaper import bpf
from edge_module.shaper import edt
from edge_module.tcplan import minors
from edge_module.tcplan import model
from edge_module.tcplan import shape
from tests.netns.edge import bed as beds
from virtco.wire import edge_policy

_REPEAT, _TRIES = 200_000, 7
_FIRST = 0x10


def _program(classes: int, rate_bps: float) -> bpf.Program:
    program = bpf.Program.load(str(edt.OBJECT), 'edt')
    counts = bytes(24 * edt.processors())
    for minor in (minors.HOST, *range(_FIRST, _FIRST + classes)):
        program.maps['classes'].set(minor, edt.pack_class(model.HtbClass(
            minor, 1, 0, 0, 0, 0, 1 << 20, 1564, 24, 84), rate_bps))
        program.maps['states'].set(minor, bytes(16))
        program.maps['counts'].set(minor, counts)
    return program


def _cost_ns(classes: int, rate_bps: float, minor: int) -> int:
    """Best of some tries."""
    program = _program(classes, rate_bps)
    context = bytearray(192)
    struct.pack_into('=I', context, 32, 0x10000 | minor)
    return min(program.run(bytes(60), bytes(context), _REPEAT)[2]
               for _ in range(_TRIES))


class _WithoutQueues(edt.EdtShaper):
    """The program alone: no packet is sent here."""

    queues = ('noqueue',)

    def _make_queues(self, ifindex: int) -> None:
        pass

    def _remove_queues(self, ifindex: int) -> None:
        pass


def _look_ms(coflows: int) -> float:
    """Processor time of one look, best of some tries."""
    classes = tuple(edge_policy.CoflowClass(
        f'C{number}', '', 16 + 2 * number, 1e10 / coflows, 1e10,
        min(number, 7), (edge_policy.Destination(
            'h2', 17 + 2 * number, 1.0, 1e10 / coflows, 1e10),))
        for number in range(coflows))
    tree = shape.build_tree(edge_policy.EdgePolicy(
        'h1', 1, 60.0, 1e10, 1e10, 2e8, classes), 1e10, ports=(4,))
    shaper = _WithoutQueues(kernel, 'uplink0', pace_s=0)
    shaper.ensure_root()
    shaper.set_classes(tree.values(), {})
    best_s = float('inf')
    for _ in range(_TRIES):
        start_s = time.thread_time()
        shaper.pace(time.monotonic())
        best_s = min(best_s, time.thread_time() - start_s)
    shaper.delete_root()
    return 1e3 * best_s


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    for classes in (1, 10_000):
        last = _FIRST + classes - 1
        for name, rate_bps, minor in (
                ('passes', 1e13, last), ('is dropped', 8e3, last),
                ('of no class', 1e13, 0)):
            print(f'{classes:6} classes, a packet {name:12} '
                  f'{_cost_ns(classes, rate_bps, minor):5} ns', flush=True)
    bed = beds.Bed(1)
    try:
        for coflows in (3, 30, 300):
            took_ms = beds.in_netns(bed.ns('h1'), _look_ms, coflows)
            print(f'{coflows:6} coflows, a look at all classes '
                  f'{took_ms:8.2f} ms', flush=True)
    finally:
        bed.close()


if __name__ == '__main__':
    main()
