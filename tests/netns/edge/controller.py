# SPDX-License-Identifier: Apache-2.0

"""The controller's side of the edge protocol, for tests of the agent.

A real distributor on loopback of a namespace; it has one policy and keeps the
reports.
"""

import dataclasses
import http.server
import json
import threading

import msgspec
from oslo_config import cfg

from tests.netns.edge import bed as beds
from tests.unit import made
from virtco import metrics
from virtco.conf import opts
from virtco.distribute import edge_session as session
from virtco.distribute import server as servers
from virtco.wire import frames

#: Of the numbers by which the distributor knows policies apart, which are not
#: those that a test writes into its documents.
_FIRST = 1_000_000


@dataclasses.dataclass
class _Policy:
    generation: int
    document: object


class Controller:
    """Listens in a namespace; ``policy`` may be any JSON value."""

    def __init__(self, netns, port=8791):
        self.netns = netns
        self.address = ('127.0.0.1', port)
        self.policy = None
        self.reports = []
        self.server = None
        self._rest = None
        self.conf = cfg.ConfigOpts()
        opts.register_opts(self.conf)
        self.conf([], project='virtco')
        for group, name, value in (
                ('api', 'host', '127.0.0.1'),
                ('distributor', 'port', port + 1),
                ('distributor', 'heartbeat_s', 0.5)):
            self.conf.set_override(name, value, group)
        self.start()

    def start(self):
        beds.in_netns(self.netns, self._listen)
        self.server.start()
        threading.Thread(target=self._rest.serve_forever, args=(0.05,),
                         daemon=True).start()

    def _listen(self):
        self.server = servers.Server(self.conf, servers.Doors(
            epoch=lambda: 1, is_led=lambda: True,
            policy=self._policy_but, n_hosts=lambda: 1, said=self._take),
            metrics.Metrics())
        self._rest = _Server(self.address, _Handler)

    def _policy_but(self, _host, known):
        one = self.policy
        return None if one is None or one.generation == known else (
            one.generation, made.frame(
                'policy', epoch=1, generation=one.generation,
                policy=msgspec.Raw(json.dumps(one.document).encode())))

    def _take(self, _host, event, _payload):
        if isinstance(event, session.Report):
            self.reports.append(json.loads(msgspec.json.encode(
                event.report)))

    def stop(self):
        if self.server is not None:
            self._rest.shutdown()
            self._rest.server_close()
            self.server.stop()
            self.server = None

    def set_policy(self, document):
        self.policy = _Policy(
            self.policy.generation + 1 if self.policy else _FIRST, document)
        if self.server is not None:
            self.server.published(list(self.server.seats()))

    def wait_report(self, condition, limit_s=10):
        return beds.wait_for(
            lambda: next((report for report in reversed(self.reports[-3:])
                          if condition(report)), None),
            limit_s, f'a report, last {self.reports[-1:]}')


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Agents that are killed hang up in the middle."""


class _Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        """Stay quiet."""

    def do_GET(self):
        body = json.dumps({
            'version': frames.VERSION, 'servers': [
                {'host': None, 'tls': False,
                 'port': self.server.server_address[1] + 1}]}).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
