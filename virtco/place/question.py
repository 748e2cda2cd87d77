# SPDX-License-Identifier: Apache-2.0

"""Nova's question, converted to the form that planning needs. Pure."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from virtco import exception
from virtco import hints
from virtco.model import booking
from virtco.wire import fields
from virtco.wire import placement as wire

if TYPE_CHECKING:
    from virtco.db import models


def vector(of: 'fields.Resources | models.Member') -> booking.Vector:
    """Order the amounts as :data:`virtco.model.booking.RESOURCES` does."""
    return of.vcpus, of.memory_mb, of.disk_gb


def free(request: wire.Placement, among: Collection[str] | None = None
         ) -> dict[str, booking.Vector]:
    """Map candidate hosts to the resources that Nova shows as free.

    :param among: hosts that matter; None: all.
    """
    offers = request.offers
    return {host: vector(offers[host].free)
            for host in (offers if among is None else among) if host in offers}


def named_group(request: wire.Placement) -> str:
    """Return the name of a group as a hint has it, for events about it.

    It may be none that a group can have, and databases take no NUL.
    """
    name = hints.select(request.metadata | request.hints).get(hints.COFLOW)
    return exception.escaped(name)[:255] if isinstance(name, str) else ''
