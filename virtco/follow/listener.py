# SPDX-License-Identifier: Apache-2.0

"""Hears Nova's notifications on the message bus."""

import contextlib
import logging
import sys
import time
from typing import Any
from typing import TYPE_CHECKING

from oslo_config import cfg

from virtco import exception

if TYPE_CHECKING:
    from virtco.follow import follow

LOG = logging.getLogger(__name__)

PUT_BACK_S = 0.5


class Endpoint:
    """Receiver of oslo.messaging's calls, one per message, on its thread."""

    def __init__(self, follow: 'follow.Follow', handled: Any, requeue: Any):
        self._follow = follow
        self._handled = handled
        self._requeue = requeue

    def info(self, _context: Any, publisher: str, event_type: str,
             payload: dict[str, Any], metadata: dict[str, Any]) -> Any:
        """Follow a notification; put it back while the database is away."""
        try:
            self._follow.notified(event_type, payload,
                                  metadata.get('timestamp'), publisher)
        except exception.VirtcoException as error:
            # The database may be back when it comes again.
            LOG.warning('Notification %s is put back: %s', event_type, error)
            time.sleep(PUT_BACK_S)
            return self._requeue
        except Exception:
            LOG.exception('Notification %s cannot be used.', event_type)
        return self._handled

    error = info


def choose_threads() -> None:
    """Choose threads before oslo.messaging loads oslo.service.

    eventlet, which nothing here uses, is hidden from libraries that would
    load it because it is there.
    """
    sys.modules.setdefault('eventlet', None)  # type: ignore[arg-type]
    from oslo_service import backend
    # oslo.service 4.1 cannot choose: ours are threads all the same.
    with contextlib.suppress(ValueError):
        backend.init_backend(backend.BackendType.THREADING)


def start(conf: cfg.ConfigOpts,
          follow: 'follow.Follow') -> contextlib.ExitStack | None:
    """Listen to all message buses until the returned stack is closed; None
    where none is configured. Each cell of Nova may have its own.

    :raises virtco.exception.Invalid: for a URL that is none.
    """
    urls = urls_of(conf)
    if not urls:
        return None
    # Only those who listen pay for these imports.
    choose_threads()
    import oslo_messaging
    targets = [oslo_messaging.Target(topic=topic,
                                     exchange=conf.notifications.exchange)
               for topic in conf.notifications.topics]
    endpoint = Endpoint(follow,
                        oslo_messaging.NotificationResult.HANDLED,
                        oslo_messaging.NotificationResult.REQUEUE)
    found = contextlib.ExitStack()
    for transport in _transports(conf, urls):
        one = oslo_messaging.get_notification_listener(
            transport, targets, [endpoint], executor='threading',
            allow_requeue=True, pool=conf.notifications.pool)
        one.start()
        found.callback(one.stop)
    LOG.info('Listening to Nova\'s notifications on %d message buses.',
             len(urls))
    return found


def urls_of(conf: cfg.ConfigOpts) -> list[str]:
    """Return the transport URLs of all cells without duplicates."""
    return list(dict.fromkeys(filter(None, conf.notifications.transport_url)))


def _transports(conf: cfg.ConfigOpts, urls: list[str]) -> list[Any]:
    """Make a transport per URL.

    :raises virtco.exception.Invalid: for a URL that is none.
    """
    import oslo_messaging
    found = []
    for url in urls:
        try:
            found.append(oslo_messaging.get_notification_transport(
                conf, url=url))
        except oslo_messaging.MessagingException as error:
            raise exception.Invalid(
                field='[notifications] transport_url',
                value=url.partition(':')[0],
                limit=f'the URL of a transport ({error})') from error
    return found
