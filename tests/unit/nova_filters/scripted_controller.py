# SPDX-License-Identifier: Apache-2.0

"""An HTTP controller that does what a test tells it, also badly."""

from collections.abc import Callable
from http import server
import json
import threading
import time
from typing import Any

import fixtures

Body = dict[str, Any]


def planned(hosts: list[str], uuid: str = 'u') -> Body:
    """An answer that ranks these hosts."""
    return {'instance_uuid': uuid, 'status': 'planned', 'host': hosts[0],
            'why': 'test', 'hosts': [
                {'host': host, 'rank': rank, 'feasible': True, 'cct_s': 1.0,
                 'objective_s': 1.0, 'why': ''}
                for rank, host in enumerate(hosts)]}


def neutral() -> Body:
    return {'status': 'neutral', 'host': None, 'why': 'test', 'hosts': []}


class ScriptedController(fixtures.Fixture):
    """Serves ``PUT /v1/placements`` and ``POST /v1/notifications``.

    :ivar mode: ``plan`` answers with what ``plan(body, uuid)`` returns; the
        other modes are faults, see ``_Handler``.
    :ivar calls: (uuid, body) of each placement call, in order.
    :ivar notifications: bodies, in order.
    """

    def __init__(self, plan: Callable[[Body, str], Body] | None = None):
        super().__init__()
        self.mode = 'plan'
        self.plan = plan or (lambda body, uuid: neutral())
        self.calls: list[tuple[str, Body]] = []
        self.notifications: list[Body] = []
        self.released = threading.Event()

    def _setUp(self) -> None:
        self._server = server.ThreadingHTTPServer(('127.0.0.1', 0), _Handler)
        self._server.daemon_threads = True
        self._server.controller = self  # type: ignore[attr-defined]
        self.port = self._server.server_port
        self.url = f'http://127.0.0.1:{self.port}'
        threading.Thread(target=self._server.serve_forever,
                         kwargs={'poll_interval': 0.02},
                         daemon=True).start()
        self.addCleanup(self._server.server_close)
        self.addCleanup(self._server.shutdown)
        self.addCleanup(self.released.set)


class _Handler(server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True

    def log_message(self, *_args: Any) -> None:
        """Quiet."""

    def _body(self) -> Any:
        size = int(self.headers.get('Content-Length', 0))
        return json.loads(self.rfile.read(size))

    def do_POST(self) -> None:
        controller = self.server.controller
        body = self._body()
        if controller.mode == 'plan':
            controller.notifications.append(body)
            self._answer(200, b'{}')
        else:
            getattr(self, '_' + controller.mode)()

    def do_PUT(self) -> None:
        controller = self.server.controller
        body, uuid = self._body(), self.path.rsplit('/', 1)[1]
        controller.calls.append((uuid, body))
        if controller.mode == 'plan':
            self._answer(200, json.dumps(
                controller.plan(body, uuid)).encode())
        else:
            getattr(self, '_' + controller.mode)()

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header('Content-Length', str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _hang(self) -> None:
        self.server.controller.released.wait(20)
        self.close_connection = True

    def _garbage(self) -> None:
        self._answer(200, b'\x00\xff<html>')

    def _wrong_shape(self) -> None:
        self._answer(200, b'{"status": "planned", "hosts": {"h0": 1}}')

    def _deep(self) -> None:
        self._answer(200, b'[' * 100_000)

    def _error(self) -> None:
        self._answer(500, b'<h1>Internal Server Error</h1>')

    def _refusal(self) -> None:
        self._answer(400, json.dumps({'error': {
            'code': 'virtco.invalid', 'title': 'Invalid',
            'detail': 'flavor.vcpus: expected at least 0, got -1.'}}).encode())

    def _close(self) -> None:
        self.close_connection = True

    def _drip(self) -> None:
        """Never ends, and no two bytes are far apart."""
        self._send_slowly(b'HTTP/1.1 200 OK\r\nX-Slow: ' + b'a' * 1000)

    def _drip_body(self) -> None:
        self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n')
        self._send_slowly(b' ' * 1000)

    def _endless(self) -> None:
        self.wfile.write(b'HTTP/1.1 200 OK\r\n\r\n')
        self._send(b' ' * 65536, 10_000, 0.0)

    def _send_slowly(self, content: bytes) -> None:
        for position in range(len(content)):
            self._send(content[position:position + 1], 1, 0.02)

    def _send(self, content: bytes, times: int, pause_s: float) -> None:
        self.close_connection = True
        for _ in range(times):
            if self.server.controller.released.is_set():
                return
            try:
                self.wfile.write(content)
                self.wfile.flush()
            except OSError:
                return
            time.sleep(pause_s)
