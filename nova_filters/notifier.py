# SPDX-License-Identifier: Apache-2.0

"""The ``virtco_http`` notification driver: Nova's notifications over HTTP.

For clouds without a message bus listener. A versioned notification about an
instance goes to ``POST /v1/notifications`` of the controller, in order and in
the background: Nova neither waits for the controller nor fails with it. While
the controller is away the latest ``notification_queue_size`` are kept.
"""

import threading
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging
from oslo_messaging.notify import notifier
from oslo_serialization import jsonutils

from nova_filters import conf as virtco_conf
from nova_filters import connection
from nova_filters import sender

LOG = logging.getLogger(__name__)

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
                options = self.conf.virtco
                self._sender = sender.Sender(
                    connection.Connection(self.conf),
                    queue_size=options.notification_queue_size,
                    timeout_s=options.notification_timeout_s)
            return self._sender
