# SPDX-License-Identifier: Apache-2.0

"""Nova's question, converted to the form that planning needs. Pure."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from virtco.model import booking
from virtco.wire import fields
from virtco.wire import placement as wire

if TYPE_CHECKING:
    from virtco.db import models


def vector(of: 'fields.Resources | models.Member') -> booking.Vector:
    """Order the amounts as :data:`virtco.model.booking.RESOURCES` does."""
    return of.vcpus, of.memory_mb, of.disk_gb


def host_names(request: wire.Placement) -> list[str]:
    """List the names of the hosts that Nova offers, in its order."""
    return [offer.host for offer in request.hosts]


def free(request: wire.Placement, among: Collection[str] | None = None
         ) -> dict[str, booking.Vector]:
    """Map candidate hosts to the resources that Nova shows as free.

    :param among: hosts that matter; None: all.
    """
    return {offer.host: vector(offer.free) for offer in request.hosts
            if among is None or offer.host in among}
