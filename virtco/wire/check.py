# SPDX-License-Identifier: Apache-2.0

"""Checks of hosts before they are used, and discoveries of the topology."""

from typing import Annotated
from typing import Literal

import msgspec

from virtco.wire import fields
from virtco.wire import operation
from virtco.wire import topology

Purpose = Literal['check', 'discover']
Kind = Literal['host-egress', 'host-ingress', 'leaf-uplink', 'leaf-downlink']


class Reading(fields.Pair, frozen=True):
    """Measured rate of a pair of hosts.

    :ivar rate_bps: measured rate.
    """

    rate_bps: float


class Finding(operation.Response, frozen=True, kw_only=True):
    """A port that carries less than it should.

    :ivar kind: kind of the port.
    :ivar subject: host or switch.
    :ivar rate_bps: rate that the port carries.
    :ivar expected_bps: rate that the port should carry.
    :ivar evidence: measurements that show it.
    :ivar found: time, in seconds since the epoch; of one that holds now.
    """

    kind: Kind
    subject: str
    rate_bps: float
    expected_bps: float
    evidence: list[Reading] | msgspec.UnsetType = msgspec.UNSET
    found: float | msgspec.UnsetType = msgspec.UNSET


class Check(operation.Response, frozen=True, kw_only=True):
    """A check or discovery with its progress and findings.

    :ivar check_id: id of the check.
    :ivar hosts: hosts that the check measures.
    :ivar trigger: ``command`` or ``launch``.
    :ivar asked: time, in seconds since the epoch.
    :ivar purpose: check the hosts, or discover the tree above them.
    :ivar state: waiting, running, done or failed.
    :ivar seconds: duration of the check.
    :ivar n_rounds: rounds of measurements that it takes.
    :ivar n_rounds_done: rounds that are over.
    :ivar n_failed: trains that brought no rate.
    :ivar sent_bytes: bytes that its measurements sent.
    :ivar findings: ports that are poor.
    :ivar planes: planes that a discovery found; empty where no uplink limits.
    :ivar why: reason why the check failed.
    """

    check_id: str
    hosts: list[str]
    trigger: str
    asked: float
    purpose: Purpose = 'check'
    state: Literal['waiting', 'running', 'done', 'failed'] = 'waiting'
    seconds: float | None = None
    n_rounds: int = 0
    n_rounds_done: int = 0
    n_failed: int = 0
    sent_bytes: float = 0.0
    findings: list[Finding] = []
    planes: list[topology.Plane] = []
    why: str | None = None


class Checks(operation.Response, frozen=True, kw_only=True):
    """The latest checks, and the findings that hold now.

    :ivar checks: the newest last.
    :ivar findings: findings that hold now.
    """

    checks: list[Check]
    findings: list[Finding]


class CheckRequest(operation.Request, frozen=True, kw_only=True):
    """Hosts to check, by name or as those of a group; one of the two.

    :ivar hosts: names of hosts.
    :ivar group: name or id of the group whose hosts are meant.
    :ivar purpose: check the hosts, or discover the tree above them, which
        may be that of all hosts.
    """

    hosts: Annotated[list[fields.Host], msgspec.Meta(
        max_length=1024)] | None = None
    group: fields.Asked | None = None
    purpose: Purpose = 'check'


LIST = operation.Operation(
    'listChecks', 'GET', '/v1/checks', Checks,
    'List checks, and what was found poor and still is.')
ORDER = operation.Operation(
    'orderCheck', 'POST', '/v1/checks', Check,
    'Check hosts, or discover the tree above them, as soon as no other check '
    'runs.', body=CheckRequest, status=202, conflict=operation.OVERTAKEN)
SHOW = operation.Operation(
    'showCheck', 'GET', '/v1/checks/{check_id}', Check,
    'Show a check, and what came of it so far.')
