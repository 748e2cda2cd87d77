# SPDX-License-Identifier: Apache-2.0

"""What Nova is told, as one frozen value; its schema is derived from it.

Pure.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import math
from typing import TYPE_CHECKING

import msgspec

from virtco import exception

if TYPE_CHECKING:
    from virtco.db import members

#: Hosts that an answer names; Nova weighs all others less. It takes the first
#: and, as alternates, two or three more.
MOST_HOSTS = 256


class RankedHost(msgspec.Struct, frozen=True):
    """:ivar cct_s: of the group with this VM there; null: not known.
    :ivar objective_s: likewise.
    """

    host: str
    rank: int
    feasible: bool = True
    cct_s: float | None = None
    objective_s: float | None = None
    why: str = ''


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a deadline is promised.

    :ivar at: the deadline, seconds since the epoch.
    :ivar promised: whether it will be kept.
    :ivar bound_s: no placement and no schedule takes less time.
    :ivar bound_here_s: no schedule on the planned hosts that keeps the
        promises to others takes less time; null: it never ends there.
    :ivar earliest_s: least time that could be promised on these hosts; null:
        none could.
    """

    at: float
    promised: bool
    why: str
    bound_s: float | None = None
    bound_here_s: float | None = None
    earliest_s: float | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """To ``PUT /v1/placements/{instance_uuid}``.

    :ivar status: ``planned``, ``neutral`` or ``ignored``.
    :ivar hosts: the best first.
    :ivar refused: of a required wish that cannot be met: its level, how many
        of how many VMs fit, and the resource that limits. Nova's filter then
        passes no host.
    :ivar allowed: of a required wish that is met: the offered hosts that
        keep to it, for any VM of the request. Nova's filter passes no other.
    :ivar row: the member that the instance is.
    :ivar rows: the host of each planned member, of an answer that planned
        the group.
    :ivar deadline: of an answer that planned a group with a deadline.
    :ivar slow_phase: what took most of the time, when it ran out.
    """

    instance_uuid: str
    status: str
    host: str | None = None
    why: str = ''
    group: str | None = None
    group_name: str | None = None
    row: int | None = None
    hosts: list[RankedHost] = []
    rows: Mapping[str, str] | msgspec.UnsetType = msgspec.UNSET
    cct_s: float | None = None
    lower_bound_s: float | None = None
    gap: float | None = None
    method: str | None = None
    bottleneck: str | None = None
    slow_phase: str | None = None
    refused: Mapping[str, str | int] | None = None
    allowed: list[str] | None = None
    deadline: Promise | None = None


ENCODER = msgspec.json.Encoder()
DECODER = msgspec.json.Decoder(Answer)


def neutral(instance_uuid: str, hosts: Iterable[str], why: str,
            status: str = 'neutral', slow_phase: str | None = None,
            group: str | None = None,
            refused: exception.WishRefused | None = None) -> Answer:
    """Without an opinion: Nova's own order stands."""
    return Answer(
        instance_uuid=instance_uuid, status=status, why=why, group=group,
        hosts=ranked(hosts, why), slow_phase=slow_phase,
        refused=None if refused is None else {
            name: refused.kwargs[name]
            for name in ('level', 'fitting', 'wanted', 'limiting')})


def assigned(instance_uuid: str, planned: 'members.Planned',
             alternates: Iterable[str],
             notes: Iterable[tuple[str, str]] = (),
             allowed: list[str] | None = None) -> Answer:
    """The host that the plan of the group holds for a member."""
    return Answer(
        instance_uuid=instance_uuid, status='planned', host=planned.host,
        group=planned.group_id, group_name=planned.group_name,
        row=planned.index,
        why='; '.join(['as planned', *(detail for _kind, detail in notes)]),
        hosts=ranked([planned.host, *alternates], 'as planned'),
        cct_s=planned.cct_s, lower_bound_s=planned.lower_bound_s,
        gap=planned.gap, method=planned.method,
        bottleneck=planned.bottleneck, allowed=allowed)


def ranked(hosts: Iterable[str], why: str) -> list[RankedHost]:
    """Hosts of which nothing more is known than their order."""
    return [RankedHost(host, rank, why=why)
            for rank, host in zip(range(MOST_HOSTS), hosts)]


def finite(value: float | None) -> float | None:
    """JSON knows no infinity; null stands for it."""
    return value if value is not None and math.isfinite(value) else None
