# SPDX-License-Identifier: Apache-2.0

"""Edge modules' real connections, without a kernel below."""

import threading
import time

from oslo_config import cfg

from edge_module import edge_options
from edge_module import kept_state
from edge_module import stream
from tests.unit import made

#: Counted at a time.
STEP_BYTES = 10_000_000


class Edge:
    """The connection of one host, and what it heard.

    :param url: of the REST API.
    :ivar generation: of the last policy.
    :ivar policy: the last one.
    """

    def __init__(self, home, host, url, ca_file=None):
        conf = cfg.ConfigOpts()
        edge_options.register_opts(conf)
        conf([], project='virtco', default_config_files=[])
        conf.set_override('host', host, 'edge')
        conf.set_override('controller_url', url, 'edge')
        if ca_file is not None:
            conf.set_override('cafile', str(ca_file), edge_options.AUTH)
        (home / host).mkdir(parents=True)
        self.host = host
        self.generation, self.policy = 0, {}
        self.ports, self.link_bps, self._sent = [], 1e9, {}
        self._stop = threading.Event()
        self.link = stream.Link(conf, lambda: self.generation, self._stop,
                                kept_state.StateDir(str(home / host)),
                                self._take)
        self._thread = threading.Thread(target=self.link.run, daemon=True)
        self._thread.start()

    def _take(self):
        offer = self.link.take_policy()
        self.generation, self.policy = offer.generation, offer.policy
        self.link.say_taken(offer.generation)

    def has_class(self, coflow):
        """Whether there is a class of the coflow of this id or name."""
        return any(coflow in (one['coflow_id'], one['name'])
                   for one in self.policy.get('classes', ()))

    def add_port(self, vm, number):
        self.ports = [*self.ports, {
            'vm': vm, 'dev': f'tap{number}', 'ips': [f'10.1.0.{number % 250}'],
            'mac': f'02:00:00:00:00:{number % 250:02x}'}]

    def count(self, coflow_id, dst):
        counts = self._sent.setdefault(coflow_id, {})
        counts[dst] = counts.get(dst, 0) + STEP_BYTES

    def report(self):
        total = {coflow_id: sum(counts.values())
                 for coflow_id, counts in self._sent.items()}
        self.link.outbox.put_report(made.report(
            boot_id='b', boot_ms=int(1000 * time.monotonic()),
            applied_generation=self.generation, ports=self.ports,
            link={'egress_bps': self.link_bps, 'dev': 'eth0',
                  'ingress_bps': self.link_bps},
            uplink_sent_bytes=sum(total.values()), health='ok',
            coflows=[{'coflow_id': coflow_id, 'sent_bytes': total[coflow_id],
                      'destinations': [
                          {'host': dst, 'sent_bytes': sent_bytes}
                          for dst, sent_bytes in counts.items()]}
                     for coflow_id, counts in self._sent.items()]))

    def close(self):
        self._stop.set()
        self.link.outbox._rouse()
        self._thread.join(20)
