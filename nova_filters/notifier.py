# SPDX-License-Identifier: Apache-2.0

"""The ``virtco_http`` notification driver: Nova's notifications over HTTP.

For clouds without a message bus listener. A versioned notification about an
instance goes to ``POST /v1/notifications`` of the controller, in order and in
the background: Nova neither waits for the controller nor fails with it. While
the controller is away the latest 10,000 are kept.
"""

import threading
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging
from oslo_messaging.notify import notifier
from oslo_serialization import jsonutils

from nova_filters import controller_connection as connection
from nova_filters import plugin_options as virtco_conf
from nova_filters import sender

LOG = logging.getLogger(__name__)

#: Notifications kept for a controller that is away; the oldest go first.
QUEUE_SIZE = 10_000
#: Time of one attempt to deliver; a failed one is repeated.
TIMEOUT_S = 5.0
EVENTS = ('instance.', 'compute_task.')


class HTTPDriver(notifier.Driver):
    """Entry point ``virtco_http`` of ``oslo.messaging.notify.drivers``."""

    def __init__(self, conf: cfg.ConfigOpts, topics: Any, transport: Any):
        super().__init__(conf, topics, transport)
        self._lock = threading.Lock()
        self._sender: sender.Sender | None = None

    def notify(self, ctxt: Any, msg: dict[str, Any], priority: str,
               retry: Any) -> None:
        try:
            if self._wanted(msg):
                self._get_sender().put('POST', '/v1/notifications',
                                       jsonutils.to_primitive(msg))
        except Exception:  # Nova's work goes on
            LOG.exception('Notification %s is dropped', msg.get('event_type'))

    @staticmethod
    def _wanted(msg: dict[str, Any]) -> bool:
        payload = msg.get('payload')
        return (isinstance(payload, dict) and 'nova_object.name' in payload
                and str(msg.get('event_type')).startswith(EVENTS))

    def _get_sender(self) -> sender.Sender:
        with self._lock:
            if self._sender is None:
                virtco_conf.register_opts(self.conf)
                self._sender = sender.Sender(
                    connection.Connection(self.conf),
                    queue_size=QUEUE_SIZE,
                    timeout_s=TIMEOUT_S)
            return self._sender
