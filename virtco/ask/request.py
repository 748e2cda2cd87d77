# SPDX-License-Identifier: Apache-2.0

"""What is read of Nova's question, in the form that planning needs. Pure."""

from virtco.wire import fields
from virtco.wire import placement as wire

Vector = tuple[float, float, float]


def vector(of: fields.Resources) -> Vector:
    """Order the amounts as :data:`virtco.ask.problem.RESOURCES` does."""
    return of.vcpus, of.memory_mb, of.disk_gb


def host_names(request: wire.Placement) -> list[str]:
    return [offer.host for offer in request.hosts]


def free(request: wire.Placement) -> dict[str, Vector]:
    """Map each candidate host to what Nova says is left on it."""
    return {offer.host: vector(offer.free) for offer in request.hosts}
