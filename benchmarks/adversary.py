# SPDX-License-Identifier: Apache-2.0

"""Edge modules and a tenant that ask for all they can get.

``python -m benchmarks.adversary --edge PORT [--tenant URL]`` connects to a
stream server on loopback as two hosts that send without a pause: one reports
of 1.9 MB in parts, and the other parts that are refused at their end, after
which it comes back. With
``--tenant`` it also lists coflows over ``CONNECTIONS`` connections, each again
as soon as it is answered or refused.
"""

import argparse
from collections.abc import Iterator
import contextlib
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import msgspec
import requests

from benchmarks import emulated_edges
from virtco.wire import frames
from virtco.wire import messages
from virtco.wire import reports

CONNECTIONS = 2
PAUSE_S = 0.1
#: Until it sends.
BEGINS_S = 3.0
SHARE = 0.9
N_DESTINATIONS = 5


def coflows(most_bytes: int) -> list[dict[str, Any]]:
    """Coflows of almost as many bytes."""
    def coflow(number: int) -> dict[str, Any]:
        return {'coflow_id': f'{number:036x}', 'sent_bytes': 6,
                'destinations': [{'host': f'h{host}', 'sent_bytes': 1}
                                 for host in range(N_DESTINATIONS)]}

    return list(map(coflow, range(int(SHARE * most_bytes) // (
        1 + len(msgspec.json.encode(coflow(0)))))))


def large_report() -> bytes:
    """Frames of a report almost as large as an edge module may send."""
    rows = coflows(reports.MOST_BYTES)
    n_rows = len(coflows(frames.MOST_BYTES))
    return b''.join((*(
        emulated_edges.pack('part', coflows=rows[start:start + n_rows])
        for start in range(0, len(rows), n_rows)),
        emulated_edges.pack('report', report=emulated_edges.report())))


def refused_part() -> bytes:
    """A frame that is decoded to its end, refused, and decoded once more."""
    return emulated_edges.pack('part', coflows=[
        *coflows(frames.MOST_BYTES), {'coflow_id': '', 'sent_bytes': 6}])


#: What each host sends.
HOSTS = {'adversary-taken': large_report, 'adversary-refused': refused_part}


def flood(port: int, host: str) -> None:
    """Send as fast as it is read, for ever."""
    hello = messages.frame(messages.Hello(frames.VERSION, host))
    sent = HOSTS[host]()
    while True:
        with contextlib.suppress(OSError), socket.create_connection(
                ('127.0.0.1', port)) as sock:
            sock.sendall(hello)
            while True:
                sock.sendall(sent)
        time.sleep(PAUSE_S)


def ask(url: str) -> None:
    """List the coflows, for ever."""
    session = requests.Session()
    session.trust_env = False
    while True:
        try:
            session.get(f'{url}/v1/coflows', timeout=60)
        except requests.RequestException:
            time.sleep(PAUSE_S)


@contextlib.contextmanager
def beside(port: int, url: str | None = None) -> Iterator[None]:
    """Run it in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, '-m', 'benchmarks.adversary', '--edge', str(port),
         *(['--tenant', url] if url else [])])
    try:
        time.sleep(BEGINS_S)
        yield
        if process.poll() is not None:
            raise SystemExit('the adversary did not run')
    finally:
        process.kill()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog='python -m benchmarks.adversary', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--edge', type=int, required=True,
                        help='port of the stream server')
    parser.add_argument('--tenant', help='URL of the REST API')
    args = parser.parse_args()
    if args.tenant:
        for _ in range(CONNECTIONS):
            threading.Thread(target=ask, args=(args.tenant,),
                             daemon=True).start()
    for host in HOSTS:
        threading.Thread(target=flood, args=(args.edge, host),
                         daemon=True).start()
    threading.Event().wait()


if __name__ == '__main__':
    main()
