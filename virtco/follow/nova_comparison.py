# SPDX-License-Identifier: Apache-2.0

"""What the model believes beside what Nova says. Pure."""

import dataclasses

from virtco.follow import notifications
from virtco.model import states

OVER = frozenset({'DELETED', 'SOFT_DELETED'})
UNDECIDED = frozenset({'BUILD', 'UNKNOWN'})


@dataclasses.dataclass(frozen=True, slots=True)
class Believed:
    """A VM of the model.

    :ivar state: of its row, a :class:`virtco.model.states.MemberState`.
    """

    instance_uuid: str
    project_id: str
    state: str
    host: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """A VM of Nova.

    :ivar is_changing: Nova works on it; a notification will tell the rest.
    :ivar fault: what went wrong last.
    """

    uuid: str
    status: str
    host: str | None
    is_changing: bool = False
    fault: str = ''


def change_of(vm: Believed,
              server: Server | None) -> notifications.Change | None:
    """Return the change that makes the model agree with Nova.

    :param server: None when Nova has no such server.
    """
    if server is None or server.status in OVER:
        return notifications.Gone(vm.instance_uuid)
    if server.is_changing or server.status in UNDECIDED:
        return None
    runs = vm.state == states.MemberState.RUNNING
    if server.status == 'ERROR' and not (runs and server.host):
        # It was never built. One that ran may have failed to migrate, say,
        # and still be there; then its host counts as for any other.
        return notifications.Gone(vm.instance_uuid,
                                  server.fault[:500] or 'in ERROR')
    if server.host is None:
        return (notifications.OffHost(vm.instance_uuid)
                if server.status == 'SHELVED_OFFLOADED' and vm.host else None)
    if server.host != vm.host or not runs:
        return notifications.Built(vm.instance_uuid, server.host)
    return None
