# SPDX-License-Identifier: Apache-2.0

"""One edge module that reports without pause, and the answers of others."""

import contextlib
import socket
import statistics
import threading
import time

import msgspec

from tests.functional.controller import harness
from tests.functional.controller import test_distributor
from virtco.wire import frames
from virtco.wire import messages
from virtco.wire import reports

N_ANSWERS = 9
#: So much that the seconds of a full bucket are still more than what a clock's
#: reading of many days is rounded by.
UNLIMITED = {
    **{f'virtco.distribute.token_bucket.{name}': 1e12 for name in (
        'BYTES_PER_S', 'BURST_BYTES', 'CPU_PER_S', 'BURST_CPU_S')},
    # Nor a rest where a turn takes long, which would do here, too.
    'virtco.distribute.server.REST_S': 0.0}


def frames_of(*coflows, generation=0):
    return b''.join(map(frames.frame, messages.pack_report(
        msgspec.structs.replace(test_distributor.report(
            generation=generation), coflows=coflows))))


def large_report():
    """Frames of a report almost as large as an edge module may send."""
    def coflow(number):
        return reports.CoflowCounters(f'{number:036x}', 6, destinations=tuple(
            reports.DestinationCounter(f'h{host}', 1) for host in range(6)))

    n_coflows = int(0.9 * reports.MOST_BYTES) // len(
        msgspec.json.encode(coflow(0)))
    return frames_of(*map(coflow, range(n_coflows)))


@contextlib.contextmanager
def flood(port):
    """Sends reports as fast as they are read."""
    bare = test_distributor.Bare(port, host='flood')
    assert bare.hear()['type'] == 'welcome'
    sent = large_report()

    def send():
        with contextlib.suppress(OSError):
            while True:
                bare.sock.sendall(sent)

    bare.sock.settimeout(None)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        bare.sock.shutdown(socket.SHUT_RDWR)
        thread.join()
        bare.sock.close()


def answered_s(port):
    """How long one who asks waits for an answer, the median."""
    bare, found = test_distributor.Bare(port, host='polite'), []
    for _ in range(N_ANSWERS):
        began_s = time.perf_counter()
        # It is answered since no report came before it.
        bare.say('heartbeat')
        while (message := bare.hear())['type'] != 'resend':
            assert message['type'] != 'refused', message
        found.append(time.perf_counter() - began_s)
    bare.sock.close()
    return statistics.median(found)


def flooded_s(controller, is_begun):
    port = controller.stream_port()
    with flood(port):
        harness.wait_for(lambda: is_begun(controller), 'the flood')
        return answered_s(port)


def test_who_reports_without_pause_keeps_nobody_else_waiting(make):
    held = make(name='held')
    held_s = flooded_s(held, lambda one: one.metrics()[
        'virtco_edge_throttled_total'])
    assert 'flood says more than its budget allows' in held.log_text()
    assert held.process.poll() is None
    held.stop()
    free = make(name='free', constants=UNLIMITED)
    free_s = flooded_s(free, lambda one: one.call(
        'GET', '/v1/hosts/flood', status=None).get('last_report'))
    assert free.metrics()['virtco_edge_throttled_total'] == 0
    assert free_s > 3 * held_s, (free_s, held_s)


def test_who_was_held_back_is_read_on(make):
    controller = make(constants={
        'virtco.distribute.token_bucket.BURST_BYTES': 1000})
    port = controller.stream_port()
    bare = test_distributor.Bare(port, host='late')
    bare.sock.sendall(
        frames_of(*(reports.CoflowCounters(f'c{number}', 1)
                    for number in range(2000))) + frames_of(generation=7))
    harness.wait_for(lambda: test_distributor.shown(
        controller, 'late').get('applied_generation') == 7, 'the next report')
    assert controller.metrics()['virtco_edge_throttled_total'] >= 1
