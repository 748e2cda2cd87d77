# SPDX-License-Identifier: Apache-2.0

"""Answers to Nova, with and without an opinion. Pure."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from virtco import exception
from virtco.model import snapshot
from virtco.wire import placement as wire

if TYPE_CHECKING:
    from virtco.db import members

#: Hosts that an answer names; Nova weighs all others less. It takes the first
#: and, as alternates, two or three more.
MOST_HOSTS = 256
ENCODER = msgspec.json.Encoder()
DECODER = msgspec.json.Decoder(wire.Answer)


def neutral(instance_uuid: str, hosts: Iterable[str], why: str,
            status: wire.Status = 'neutral', slow_phase: str | None = None,
            group: str | None = None,
            refused: exception.WishRefused | None = None) -> wire.Answer:
    """Build an answer without a plan: Nova's own order stands."""
    return wire.Answer(
        instance_uuid=instance_uuid, status=status, why=why, group=group,
        hosts=ranked(hosts, why), slow_phase=slow_phase,
        refused=None if refused is None else {
            name: refused.kwargs[name]
            for name in ('level', 'fitting', 'wanted', 'limiting')})


def assigned(instance_uuid: str, planned: 'members.Planned',
             alternates: Iterable[str],
             notes: Iterable[tuple[str, str]] = (),
             allowed: list[str] | None = None) -> wire.Answer:
    """Build the answer for a member whose host the group's plan holds."""
    return wire.Answer(
        instance_uuid=instance_uuid, status='planned', host=planned.host,
        group=planned.group_id, group_name=planned.group_name,
        row=planned.index,
        why='; '.join(['as planned', *(detail for _kind, detail in notes)]),
        hosts=ranked([planned.host, *alternates], 'as planned'),
        cct_s=planned.cct_s, lower_bound_s=planned.lower_bound_s,
        bound_scope=snapshot.Scope.CONSTRAINTS,
        gap=planned.gap, method=planned.method,
        bottleneck=planned.bottleneck, allowed=allowed)


def ranked(hosts: Iterable[str], why: str) -> list[wire.RankedHost]:
    """Rank hosts of which only the order is known."""
    return [wire.RankedHost(host, rank, why=why)
            for rank, host in zip(range(MOST_HOSTS), hosts)]
