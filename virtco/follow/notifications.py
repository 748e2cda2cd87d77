# SPDX-License-Identifier: Apache-2.0

"""Nova's versioned notifications as changes of rows. Pure.

The bus may deliver a notification late, twice, or after a later one. Of the
events of an instance the latest by the time of sending wins, and a deletion
always does: Nova never uses a uuid again.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import contextlib
import dataclasses
import datetime
import ipaddress
from typing import Any
from typing import TypeGuard

import msgspec

from virtco import decoding
from virtco import exception
from virtco import units
from virtco.wire import fields


@dataclasses.dataclass(frozen=True, slots=True)
class Built:
    """The instance runs on ``host`` now.

    :ivar flavor: vcpus, memory_mb and disk_gb, empty when not told.
    :ivar at_s: time at which it was sent; None counts as the latest.
    :ivar addresses: addresses of its ports, empty when not told.
    :ivar limits_bps: the most that its ports send, and receive, None for no
        limit; empty when not told.
    """

    instance_uuid: str
    host: str
    flavor: tuple[tuple[str, float], ...] = ()
    at_s: float | None = None
    addresses: tuple[str, ...] = ()
    limits_bps: tuple[float | None, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Begun:
    """A host begins to build the instance, and may fail.

    :ivar flavor: demand as in :class:`Built`.
    """

    instance_uuid: str
    host: str
    flavor: tuple[tuple[str, float], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """A host reports a port of the instance, which ran nowhere.

    :ivar is_planned: whether it was reserved there as far as was known; else
        it had no host.
    """

    instance_uuid: str
    host: str
    is_planned: bool


@dataclasses.dataclass(frozen=True, slots=True)
class OffHost:
    """The instance exists, but on no host (shelved).

    :ivar at_s: time as in :class:`Built`.
    """

    instance_uuid: str
    at_s: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Gone:
    """The instance is no more, or could not be built (``why``).

    :ivar at_s: time as in :class:`Built`.
    """

    instance_uuid: str
    why: str = ''
    at_s: float | None = None


#: A change of the instance's row.
RowChange = Built | Seen | OffHost | Gone
Change = Begun | RowChange

# Events after which the payload's host is where the instance runs. During a
# live migration only the destination's last word counts: ``.start`` still
# names the source. An evacuation ends with a rebuild.
HOST_EVENTS = frozenset({
    'instance.create.end',
    'instance.interface_attach.end',
    'instance.interface_detach.end',
    'instance.live_migration_post_dest.end',
    'instance.live_migration_rollback.end',
    'instance.rebuild.end',
    'instance.resize_confirm.end',
    'instance.resize_finish.end',
    'instance.resize_revert.end',
    'instance.restore.end',
    'instance.unshelve.end',
})
GONE_EVENTS = frozenset({
    'instance.delete.end',
    'instance.soft_delete.end',
})
OFF_HOST_EVENTS = frozenset({'instance.shelve_offload.end'})
REBUILD_END = 'instance.rebuild.end'
BUILD_START = 'instance.create.start'
_RESOURCES: decoding.Decoder[fields.Resources] = decoding.Decoder(
    fields.Resources, 'flavor')
BUILD_ERROR = 'compute_task.build_instances.error'


def change_of(event_type: str, payload: Mapping[str, Any],
              timestamp: Any = None, publisher: Any = None
              ) -> Change | None:
    """Return the change that a notification tells; None for none.

    :param payload: payload as Nova sends it, ``nova_object.data`` and all. A
        payload that lacks a needed field means nothing: Nova's versions may
        differ.
    :param timestamp: time of the message; without one the payload's
        ``updated_at`` is taken, which counts whole seconds.
    :param publisher: publisher of the message, ``nova-compute:HOST``.
    """
    data = _data(payload)
    if event_type == BUILD_ERROR:
        uuid = data.get('instance_uuid')
        return (Gone(uuid, _reason(data), _seconds(timestamp))
                if _is_id(uuid) else None)
    uuid = data.get('uuid')
    if not _is_id(uuid):
        return None
    at_s = _seconds(timestamp)
    if at_s is None:
        at_s = _seconds(data.get('updated_at'))
    if event_type in HOST_EVENTS:
        host = data.get('host')
        if event_type == REBUILD_END:
            # An evacuation is a rebuild on the new host, and the payload is
            # made before the instance is that host's.
            host = _host_of(publisher) or host
        if not _is_text(host, 255):
            return None
        return Built(uuid, host, _flavor(data), at_s, _addresses(data))
    if event_type == BUILD_START:
        # The instance has no host yet: the publisher is its host.
        host, flavor = _host_of(publisher), _flavor(data)
        return (Begun(uuid, host, flavor) if _is_text(host, 255) and flavor
                else None)
    if event_type in GONE_EVENTS:
        return Gone(uuid, at_s=at_s)
    if event_type in OFF_HOST_EVENTS:
        return OffHost(uuid, at_s)
    return None


def _host_of(publisher: Any) -> str:
    return (publisher.partition(':')[2] if isinstance(publisher, str)
            else '')


def _data(value: Any) -> Mapping[str, Any]:
    """Unwrap a versioned object of Nova; empty for anything else."""
    if not isinstance(value, Mapping):
        return {}
    inner = value.get('nova_object.data', value)
    return inner if isinstance(inner, Mapping) else {}


def _is_id(value: Any) -> TypeGuard[str]:
    return _is_text(value, 36)


def _is_text(value: Any, most_chars: int) -> TypeGuard[str]:
    """Tell whether a database takes the value as a name.

    A notification that it refuses would come again and again.
    """
    return (isinstance(value, str) and 0 < len(value) <= most_chars
            and value.isprintable())


def _seconds(time: Any) -> float | None:
    """Parse a time in ISO 8601, in UTC unless it says otherwise, to seconds
    since the epoch; None for anything else.
    """
    try:
        found = datetime.datetime.fromisoformat(time)
    except (TypeError, ValueError):
        return None
    if found.tzinfo is None:
        found = found.replace(tzinfo=datetime.UTC)
    return found.timestamp()


def _flavor(data: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    flavor = _data(data.get('flavor'))
    try:
        found = _RESOURCES.convert({
            'vcpus': flavor['vcpus'], 'memory_mb': flavor['memory_mb'],
            # A volume-backed server has no image and no root disk on its host.
            'disk_gb': (flavor['root_gb'] if data.get('image_uuid', True)
                        else 0) + flavor['ephemeral_gb']
            + units.swap_gb(flavor.get('swap', 0))})
    except (ArithmeticError, KeyError, TypeError, exception.Invalid):
        return ()
    return tuple(msgspec.structs.asdict(found).items())


def _addresses(data: Mapping[str, Any]) -> tuple[str, ...]:
    rows = data.get('ip_addresses')
    return addresses_of(_data(row).get('address') for row in (
        rows if isinstance(rows, list) else ()))


def addresses_of(texts: Iterable[Any]) -> tuple[str, ...]:
    """Return the IP addresses among values, each once, in order."""
    found = set()
    for text in texts:
        with contextlib.suppress(ValueError):
            found.add(str(ipaddress.ip_address(str(text))))
    return tuple(sorted(found))


def _reason(data: Mapping[str, Any]) -> str:
    reason = _data(data.get('reason'))
    return str(reason.get('exception_message')
               or reason.get('exception') or 'the build failed'
               ).replace('\0', '')[:500]
