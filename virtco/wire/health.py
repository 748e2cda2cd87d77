# SPDX-License-Identifier: Apache-2.0

"""How a process is, for load balancers and monitoring."""

import msgspec

from virtco.wire import operation


class Leadership(operation.Response, frozen=True, kw_only=True):
    """Who leads, as far as a process knows.

    :ivar epoch: number of the leadership; null: none is known.
    :ivar here: whether this process leads.
    :ivar reached: whether the leader hears this process.
    """

    epoch: int | None
    here: bool
    reached: bool


class Problem(operation.Response, frozen=True):
    """Problem that a process found in itself or around it.

    :ivar code: its kind, for ever the same; see the page on troubleshooting.
    :ivar finding: one line; empty where the caller may know the code only.
    """

    code: str
    finding: str


class Health(operation.Response, frozen=True, kw_only=True):
    """State of a process; other fields depend on the process.

    :ivar status: ``ok``, ``degraded``, ``failing`` or ``starting``.
    :ivar parts: whether each part works.
    :ivar problems: found by the process when it tested itself last.
    :ivar hosts: hosts with a policy.
    :ivar mode: ``shadow`` where nothing follows from decisions.
    :ivar leader: process that leads.
    :ivar what: step of the start that is under way.
    :ivar since: beginning of the start, in seconds since the epoch.
    :ivar for_s: how long the start takes already.
    """

    status: str
    parts: dict[str, bool] | msgspec.UnsetType = msgspec.UNSET
    problems: list[Problem] | msgspec.UnsetType = msgspec.UNSET
    hosts: int | msgspec.UnsetType = msgspec.UNSET
    mode: str | msgspec.UnsetType = msgspec.UNSET
    leader: Leadership | msgspec.UnsetType = msgspec.UNSET
    what: str | None | msgspec.UnsetType = msgspec.UNSET
    since: float | msgspec.UnsetType = msgspec.UNSET
    for_s: float | msgspec.UnsetType = msgspec.UNSET


SHOW = operation.Operation(
    'showHealth', 'GET', '/health', Health,
    'Tell whether the process serves; with status 503 where it does not.',
    failed_status=503)
METRICS = operation.Operation(
    'showMetrics', 'GET', '/metrics', str,
    'Show the metrics in the text format of Prometheus.')
