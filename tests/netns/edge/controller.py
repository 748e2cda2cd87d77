# SPDX-License-Identifier: Apache-2.0

"""The controller's side of the edge protocol, for tests of the agent.

Real HTTP on loopback of a namespace; it serves one policy and keeps the
reports.
"""

import http.server
import json
import threading
import time

from tests.netns.edge import bed as beds


class Controller:
    """Listens in a namespace; ``policy`` may be any JSON value."""

    def __init__(self, netns, port=8791):
        self.netns = netns
        self.address = ('127.0.0.1', port)
        self.changed = threading.Condition()
        self.policy = None
        self.generation = 0
        self.reports = []
        self.server = None
        self.start()

    def start(self):
        self.stopped = threading.Event()
        self.server = beds.in_netns(self.netns, self._listen)
        threading.Thread(target=self.server.serve_forever, args=(0.05,),
                         daemon=True).start()

    def _listen(self):
        controller = self

        class Handler(_Handler):
            owner = controller

        server = _Server(self.address, Handler)
        server.daemon_threads = True
        return server

    def stop(self):
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None
            self.stopped.set()
            with self.changed:
                self.changed.notify_all()

    def set_policy(self, document):
        with self.changed:
            self.policy = document
            self.generation += 1
            self.changed.notify_all()

    def wait_report(self, condition, limit_s=10):
        return beds.wait_for(
            lambda: next((report for report in reversed(self.reports[-3:])
                          if condition(report)), None),
            limit_s, f'a report, last {self.reports[-1:]}')


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """Agents that are killed hang up in the middle."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    owner: Controller

    def log_message(self, *args):
        """Stay quiet."""

    def do_GET(self):
        owner = self.owner
        if self.path.endswith('/probes'):
            owner.stopped.wait(10)
            self._answer(204, b'')
            return
        if self.path == '/v1/distributor':
            self._answer(404, b'')
            return
        known = self.headers.get('If-None-Match')
        wait_s = float(self.headers['Prefer'].partition('=')[2])
        deadline = time.monotonic() + wait_s
        with owner.changed:
            while owner.server is not None and (
                    owner.policy is None
                    or known == f'"{owner.generation}"'):
                if not owner.changed.wait(deadline - time.monotonic()):
                    break
            etag, policy = f'"{owner.generation}"', owner.policy
        if owner.server is None:
            self.close_connection = True
            return
        if policy is None or etag == known:
            self._answer(304 if known else 404, b'')
        else:
            self._answer(200, json.dumps(policy).encode(), etag)

    def do_PUT(self):
        length = int(self.headers['Content-Length'])
        report = json.loads(self.rfile.read(length))
        self.owner.reports.append(report)
        self._answer(204, b'')

    def _answer(self, code, body, etag=None):
        self.send_response(code)
        if etag is not None:
            self.send_header('ETag', etag)
        if code != 204:
            self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
