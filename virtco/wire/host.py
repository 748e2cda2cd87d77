# SPDX-License-Identifier: Apache-2.0

"""Hypervisors as operators see and empty them."""

from typing import Literal

import msgspec

from virtco.wire import edge_policy
from virtco.wire import fields
from virtco.wire import operation

DrainState = Literal['draining', 'drained']


class ClassRates(operation.Response, frozen=True, kw_only=True):
    """Rates of a class on the uplink of a host.

    :ivar minor: number of the HTB class, such as ``7000:10``.
    :ivar prio: place in the order of the host's coflows, 0 is the first.
    :ivar rate_bps: guaranteed rate.
    :ivar ceil_bps: upper limit.
    :ivar observed_bps: rate of the last reports; null: none is known.
    :ivar backlog_bytes: in the class's queues; null: not reported.
    """

    minor: str
    prio: int
    rate_bps: float
    ceil_bps: float
    observed_bps: float | None
    backlog_bytes: float | None


class Class(ClassRates, frozen=True, kw_only=True):
    """A coflow's class on the uplink of a host.

    :ivar coflow_id: id of the coflow.
    :ivar name: name of the coflow.
    :ivar destinations: hosts that the coflow sends to from here.
    """

    coflow_id: str
    name: str
    destinations: list[str]


class Host(operation.Response, frozen=True, kw_only=True):
    """A host that reports, or whose rates were measured.

    :ivar host: name of the host.
    :ivar egress_bps: rate out of the host that coflows are scheduled by.
    :ivar ingress_bps: rate into the host that coflows are scheduled by.
    :ivar link_egress_bps: rate out of the host that the uplink's device tells.
    :ivar link_ingress_bps: rate into the host that the uplink's device tells.
    :ivar measured_egress_bps: estimate by packet trains.
    :ivar measured_ingress_bps: estimate by packet trains.
    :ivar measured_age_s: age of that estimate.
    :ivar rate_source: source of ``egress_bps`` and ``ingress_bps``.
    :ivar coflows_bps: rate of all coflows in the last reports.
    :ivar background_bps: rate of the traffic that belongs to no coflow.
    :ivar generation: generation of the newest policy.
    :ivar generations_behind: policies that the host did not apply yet.
    :ivar applied_generation: generation of the policy that the host keeps.
    :ivar last_report: time of the last report, in seconds since the epoch.
    :ivar coflows: ids of the coflows with a class here.
    :ivar vms: instances whose ports are here.
    :ivar health: state that the edge module reports.
    :ivar error: last error of the edge module.
    :ivar cpu_s: processor time of the edge module since its start.
    :ivar drain: null: new groups are planned here.
    :ivar drain_reason: reason that the operator gave.
    :ivar drain_since: time, in seconds since the epoch.
    :ivar classes: classes of the newest policy; only in the answer for one
        host.
    """

    host: str
    egress_bps: float
    ingress_bps: float
    link_egress_bps: float | None
    link_ingress_bps: float | None
    measured_egress_bps: float | None
    measured_ingress_bps: float | None
    measured_age_s: float | None
    rate_source: str
    coflows_bps: float
    background_bps: float
    generation: int | None
    generations_behind: int
    applied_generation: int | None
    last_report: float | None
    coflows: list[str]
    vms: list[str]
    health: str | None
    error: str | None
    cpu_s: float | None
    drain: DrainState | None
    drain_reason: str | None
    drain_since: float | None
    classes: list[Class] | msgspec.UnsetType = msgspec.UNSET


class Hosts(operation.Response, frozen=True):
    """A list of hosts.

    :ivar hosts: each one that is known.
    """

    hosts: list[Host]


class Drain(operation.Request, frozen=True):
    """Reason for which a host is drained.

    :ivar reason: text for the history and for readers of the host.
    """

    reason: fields.LongText = ''


class Drained(operation.Response, frozen=True, kw_only=True):
    """A host for which no new group is planned.

    :ivar host: name of the host.
    :ivar drain: ``draining`` while VMs of groups are there, or will be.
    :ivar drain_reason: reason that was given.
    :ivar drain_since: time, in seconds since the epoch.
    """

    host: str
    drain: DrainState | None
    drain_reason: str | None
    drain_since: float | None


LIST = operation.Operation(
    'listHosts', 'GET', '/v1/hosts', Hosts,
    'List the hosts with their rates and policies.')
SHOW = operation.Operation(
    'showHost', 'GET', '/v1/hosts/{host}', Host,
    'Show a host and the classes of its policy.')
FORGET = operation.Operation(
    'forgetHost', 'DELETE', '/v1/hosts/{host}', operation.NOTHING,
    'Delete all that is known of a host without VMs of groups.',
    status=204, conflict='VMs of groups are on the host, or planned to be.')
POLICY = operation.Operation(
    'showPolicy', 'GET', '/v1/hosts/{host}/policy', edge_policy.EdgePolicy,
    'Show the policy of a host, as its edge module is told.')
DRAIN = operation.Operation(
    'drainHost', 'PUT', '/v1/hosts/{host}/drain', Drained,
    'Plan no new group for a host, and advise moves away from it.',
    body=Drain, conflict=operation.OVERTAKEN)
UNDRAIN = operation.Operation(
    'undrainHost', 'DELETE', '/v1/hosts/{host}/drain', operation.NOTHING,
    'Use a drained host again.', status=204, conflict=operation.OVERTAKEN)
