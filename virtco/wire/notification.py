# SPDX-License-Identifier: Apache-2.0

"""Versioned notifications of Nova, which come over HTTP."""

from typing import Any

import msgspec

from virtco.wire import fields
from virtco.wire import operation


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """A message of Nova's; other fields of it are ignored.

    :ivar event_type: such as ``instance.create.end``.
    :ivar payload: versioned object of Nova's, as its documents describe it.
    :ivar timestamp: time of the message, by its publisher's clock.
    :ivar publisher_id: such as ``nova-compute:host``.
    """

    event_type: fields.Name
    payload: dict[str, Any]
    timestamp: Any = None
    publisher_id: Any = None


class Followed(operation.Response, frozen=True):
    """Effect of a notification.

    :ivar changed: whether it changed a group.
    """

    changed: bool


POST = operation.Operation(
    'notify', 'POST', '/v1/notifications', Followed,
    'Follow a versioned notification of Nova.', body=Notification,
    status=202, conflict=operation.OVERTAKEN)
