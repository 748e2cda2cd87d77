# SPDX-License-Identifier: Apache-2.0

"""Edge modules and a tenant that ask for all they can get.

``python -m benchmarks.adversary --edge PORT [--tenant URL]`` connects to a
stream server on loopback as two hosts that send reports of 1.9 MB without a
pause; those of the second one are refused, and it comes back. With
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

CONNECTIONS = 2
PAUSE_S = 0.1
#: Until it sends.
BEGINS_S = 3.0
SHARE = 0.9
#: Destinations of a coflow in a report that is taken, and in one that has more
#: coflows than a report may have.
TAKEN, REFUSED = 5, 2


def large_report(n_destinations: int) -> bytes:
    """A frame almost as large as an edge module may send."""
    def coflow(number: int) -> dict[str, Any]:
        return {'coflow_id': f'{number:036x}', 'sent_bytes': 6,
                'destinations': [{'host': f'h{host}', 'sent_bytes': 1}
                                 for host in range(n_destinations)]}

    n_coflows = int(SHARE * frames.MOST_BYTES) // (
        1 + len(msgspec.json.encode(coflow(0))))
    report = emulated_edges.report(False)
    return emulated_edges.pack('report', report=report | {
        'coflows': list(map(coflow, range(n_coflows)))})


def flood(port: int, n_destinations: int) -> None:
    """Send reports as fast as they are read, for ever."""
    hello = messages.frame(messages.Hello(
        frames.VERSION, f'adversary-{n_destinations}'))
    frame = large_report(n_destinations)
    while True:
        with contextlib.suppress(OSError), socket.create_connection(
                ('127.0.0.1', port)) as sock:
            sock.sendall(hello)
            while True:
                sock.sendall(frame)
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
    threading.Thread(target=flood, args=(args.edge, REFUSED),
                     daemon=True).start()
    flood(args.edge, TAKEN)


if __name__ == '__main__':
    main()
