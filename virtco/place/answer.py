# SPDX-License-Identifier: Apache-2.0

"""Answers to Nova, with and without an opinion. Pure."""

from collections.abc import Iterable
from typing import Any

import msgspec

from virtco import exception
from virtco.model import snapshot
from virtco.wire import placement as wire

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


def figures(plan: snapshot.Plan) -> dict[str, Any]:
    """Return a plan's times and their certificate, as answers have them.

    JSON has null for those that are not finite.
    """
    return {name: getattr(plan, name) for name in (
        'cct_s', 'lower_bound_s', 'bound_scope', 'gap', 'method',
        'bottleneck')}


def ranked(hosts: Iterable[str], why: str) -> list[wire.RankedHost]:
    """Rank hosts of which only the order is known."""
    return [wire.RankedHost(host, rank, why=why)
            for rank, host in zip(range(MOST_HOSTS), hosts)]
