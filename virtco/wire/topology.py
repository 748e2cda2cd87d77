# SPDX-License-Identifier: Apache-2.0

"""The tree of switches above the hosts, and the room below each."""

from typing import Annotated
from typing import Literal

import msgspec

from virtco.wire import fields
from virtco.wire import operation

#: Such as ``100Gbit``, or bits per second.
Rate = str | float
#: Such as 4, or ``4:1``.
Ratio = str | float
ChangeKind = Literal['plane', 'level', 'node', 'uplink', 'host']


class Ways(operation.Request, frozen=True, omit_defaults=True):
    """Rates of an uplink whose directions differ.

    :ivar up: towards the top.
    :ivar down: towards the hosts.
    """

    up: Rate | None = None
    down: Rate | None = None


class Level(operation.Request, frozen=True, omit_defaults=True):
    """Switches that are as far above the hosts.

    :ivar name: name of the level.
    :ivar uplink: rate of its switches' uplinks where the switch gives none.
    :ivar oversubscription: rates below a switch by the rate of its uplink.
    """

    name: str
    uplink: Rate | Ways | None = None
    oversubscription: Ratio | None = None


class Node(operation.Request, frozen=True, omit_defaults=True):
    """A switch, or several that act as one.

    :ivar name: unique in its plane.
    :ivar uplink: rate towards the top.
    :ivar oversubscription: rates below by the rate of the uplink.
    :ivar hosts: hosts at this switch, as a host list such as
        ``compute[01-16]``.
    :ivar nodes: switches below this one.
    """

    name: str
    uplink: Rate | Ways | None = None
    oversubscription: Ratio | None = None
    hosts: str | list[str] | None = None
    nodes: list['Node'] | None = None


class Plane(operation.Request, frozen=True):
    """A network of the cloud.

    :ivar name: name of the plane; coflows use ``front-end``.
    :ivar levels: levels from the hosts upwards.
    :ivar nodes: switches at the top.
    """

    name: fields.Host
    levels: Annotated[list[Level], msgspec.Meta(max_length=16)] = []
    nodes: Annotated[list[Node], msgspec.Meta(max_length=50_000)] = []


class Uplink(operation.Response, frozen=True, kw_only=True):
    """Uplink of a switch above the hosts of coflows.

    :ivar name: name of the switch.
    :ivar up_bps: rate towards the top that coflows are scheduled by: the
        topology's, or a lower one that a check found; null: no limit.
    :ivar down_bps: rate towards the hosts, likewise.
    :ivar nominal_up_bps: rate of the topology towards the top.
    :ivar nominal_down_bps: rate of the topology towards the hosts.
    :ivar observed_up_bps: rate of the coflows of the last reports, upwards.
    :ivar observed_down_bps: rate of the coflows of the last reports,
        downwards.
    """

    name: str
    up_bps: float | None
    down_bps: float | None
    nominal_up_bps: float | None
    nominal_down_bps: float | None
    observed_up_bps: float
    observed_down_bps: float


class Topology(operation.Response, frozen=True, kw_only=True):
    """All planes.

    :ivar planes: networks of the cloud.
    :ivar generation: generation of the last change, for :class:`Import`.
    :ivar hosts_without_leaf: hosts with an edge module that are not in the
        plane, by plane.
    :ivar uplinks: uplinks of the switches of ``front-end``.
    """

    planes: list[Plane]
    generation: int
    hosts_without_leaf: dict[str, list[str]]
    uplinks: list[Uplink] = []


class Import(operation.Request, frozen=True, kw_only=True):
    """Planes that replace those of their names; others stay.

    :ivar planes: networks of the cloud.
    :ivar generation: generation that the topology must have, or the import is
        refused.
    :ivar dry_run: only tell what would change.
    """

    planes: Annotated[list[Plane], msgspec.Meta(max_length=16)]
    generation: fields.Generation | None = None
    dry_run: bool = False


class TopologyChange(operation.Response, frozen=True):
    """A difference that an import makes.

    :ivar plane: name of the plane.
    :ivar kind: kind of the changed thing.
    :ivar name: name of the changed thing.
    :ivar before: place or value before; null: it is new.
    :ivar after: place or value after; null: it is gone.
    """

    plane: str
    kind: ChangeKind
    name: str
    before: str | None
    after: str | None


class Imported(operation.Response, frozen=True, kw_only=True):
    """Changes that an import makes.

    :ivar changes: the differences.
    :ivar applied: false: it was a dry run.
    :ivar generation: generation of the topology now.
    :ivar hosts_without_leaf: hosts with an edge module that are not in the
        plane, by plane.
    """

    changes: list[TopologyChange]
    applied: bool
    generation: int
    hosts_without_leaf: dict[str, list[str]]


class Room(operation.Request, frozen=True):
    """Free resources of a host.

    :ivar host: name of the host.
    :ivar free: resources that are left on it.
    """

    host: fields.Host
    free: fields.Resources


class CapacityRequest(operation.Request, frozen=True, kw_only=True):
    """How many groups would fit below each switch of a level.

    :ivar flavor: resources that each VM takes.
    :ivar level: name of the level.
    :ivar hosts: resources that are left on each host that takes VMs.
    :ivar plane: name of the plane.
    :ivar vms: sizes of groups; 2, 4, 8, 16 and 32 where none are given.
    """

    flavor: fields.Resources
    level: fields.Host
    hosts: Annotated[list[Room], msgspec.Meta(max_length=100_000)]
    plane: fields.Host = 'front-end'
    vms: Annotated[list[Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]],
                   msgspec.Meta(max_length=16)] = []


class Domain(operation.Response, frozen=True, kw_only=True):
    """VMs and groups that fit below one switch.

    :ivar name: name of the switch.
    :ivar n_hosts: offered hosts below it.
    :ivar slots: VMs of the flavor, all hosts together.
    :ivar most_per_host: VMs on its roomiest host.
    :ivar limiting: resource that ends first; empty without a host.
    :ivar groups: how many groups of each size fit, each size alone.
    """

    name: str
    n_hosts: int
    slots: int
    most_per_host: int
    limiting: str
    groups: dict[str, int]


class Capacity(operation.Response, frozen=True, kw_only=True):
    """VMs and groups that fit below each switch of a level.

    :ivar plane: name of the plane.
    :ivar level: name of the level.
    :ivar domains: the switches of the level.
    :ivar hosts_without_leaf: offered, but the plane does not have them.
    """

    plane: str
    level: str
    domains: list[Domain]
    hosts_without_leaf: list[str]



SHOW = operation.Operation(
    'showTopology', 'GET', '/v1/topology', Topology,
    'Show the planes of the topology.')
IMPORT = operation.Operation(
    'importTopology', 'PUT', '/v1/topology', Imported,
    'Replace planes of the topology, or tell what that would change.',
    body=Import, conflict=operation.OVERTAKEN)
DELETE = operation.Operation(
    'deletePlane', 'DELETE', '/v1/topology/{plane}', operation.NOTHING,
    'Delete a plane.', status=204, conflict=operation.OVERTAKEN)
CAPACITY = operation.Operation(
    'countCapacity', 'POST', '/v1/capacity', Capacity,
    'Count how many groups fit below each switch of a level.',
    body=CapacityRequest)
