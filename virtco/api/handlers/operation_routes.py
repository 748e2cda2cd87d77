# SPDX-License-Identifier: Apache-2.0

"""``/``, ``/v1``, ``/v1/notifications``, ``/health`` and ``/metrics``."""

from typing import Any

import falcon

from virtco.api import media
from virtco.api import versions
from virtco.api.call import Call
from virtco.wire import api_versions
from virtco.wire import notification

_VERSION = api_versions.Version(
    id='v1.0', min_version=versions.VERSIONS[0],
    max_version=versions.VERSIONS[-1], status='CURRENT',
    links=[api_versions.VersionLink('self', '/v1')])


def list_versions(_call: Call) -> api_versions.Versions:
    """List all major versions."""
    return api_versions.Versions([_VERSION])


def show_version(_call: Call) -> api_versions.Current:
    """Show this major version."""
    return api_versions.Current(_VERSION)


def notify(call: Call, body: notification.Notification
           ) -> notification.Followed:
    """Follow a versioned notification of Nova."""
    return notification.Followed(call.rooms.follow.notified(
        body.event_type, body.payload, body.timestamp, body.publisher_id))


def add_monitoring(app: 'falcon.App[Any, Any]', found: Any) -> None:
    """Serve how a process is.

    :param found: a :class:`virtco.api.deploy.Monitored`.
    """
    resource = _Monitoring(found)
    app.add_route('/health', resource, suffix='health')
    app.add_route('/metrics', resource, suffix='metrics')


class _Monitoring:
    def __init__(self, found: Any):
        self._found = found

    def on_get_health(self, _request: falcon.Request,
                      response: falcon.Response) -> None:
        is_healthy, found = self._found.health()
        media.answer(response, found, 200 if is_healthy else 503)

    def on_get_metrics(self, _request: falcon.Request,
                       response: falcon.Response) -> None:
        response.content_type = 'text/plain; version=0.0.4; charset=utf-8'
        self._found.gauge()
        response.data = self._found.metrics.render()
