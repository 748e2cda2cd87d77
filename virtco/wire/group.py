# SPDX-License-Identifier: Apache-2.0

"""Advice for the VMs of a group: trees, mappings and clusters."""

from typing import Annotated
from typing import Literal

import msgspec

from virtco.wire import fields
from virtco.wire import operation

Basis = Literal['constant', 'rpca', 'median', 'raw']
Size = Annotated[float, msgspec.Meta(ge=1, le=1e15)]


class Member(operation.Response, frozen=True, kw_only=True):
    """A VM of a group.

    :ivar row: row of the matrix.
    :ivar instance_uuid: id of the server.
    :ivar display_name: name of the server.
    :ivar addresses: addresses that its host reports.
    """

    row: int
    instance_uuid: str | None
    display_name: str | None
    addresses: tuple[str, ...]


class AdvisedMember(Member, frozen=True, kw_only=True):
    """A VM of a group, and its host.

    :ivar host: host that it runs on; null where that is hidden.
    """

    host: str | None


class Estimate(operation.Response, frozen=True, kw_only=True):
    """Advice by one estimate of the rates.

    :ivar matrix: estimate of the rates.
    :ivar estimator: method that made the estimate.
    :ivar noise: noise of the readings about the estimate.
    :ivar trust: how far it may be followed.
    :ivar n_measured: pairs that were measured.
    :ivar n_pairs: pairs of the group's hosts.
    :ivar best: name of the best tree or mapping.
    :ivar bound_s: none takes less time.
    :ivar predicted_s: predicted time of each tree or mapping.
    :ivar as_chosen_s: time of the best by the estimate that was asked for.
    """

    matrix: Basis
    estimator: str | None
    noise: float | None
    trust: str | None
    n_measured: int
    n_pairs: int
    best: str
    bound_s: float
    predicted_s: dict[str, float]
    as_chosen_s: float


class Order(operation.Response, frozen=True, kw_only=True):
    """Ranks for a library that builds a tree of a fixed shape.

    :ivar shape: shape of the tree.
    :ivar order: row of the member for each rank.
    :ivar predicted_s: time of a message.
    :ivar n_segments: into which the message is cut.
    """

    shape: str
    order: list[int]
    predicted_s: float
    n_segments: int


class NamedTree(operation.Response, frozen=True, kw_only=True):
    """A tree of any shape.

    :ivar tree: name of the tree.
    :ivar predicted_s: time of a message.
    :ivar n_segments: into which the message is cut.
    :ivar edges: rows of sender and receiver.
    """

    tree: str
    predicted_s: float
    n_segments: int
    edges: list[tuple[int, int]]


class Advice(operation.Response, frozen=True, kw_only=True):
    """Order of the ranks of a group, best by an estimate of the rates.

    :ivar group: id of the group.
    :ivar group_name: name of the group.
    :ivar members: VMs of the group.
    :ivar matrix: estimate of the rates that decides.
    :ivar size_bytes: size of the message or exchange.
    :ivar order: row of the member for each rank.
    :ivar rank_hint: the same, for a launch.
    :ivar predicted_s: time with that order.
    :ivar bound_s: no tree or mapping takes less time.
    :ivar best: name of the best mapping, or tree of any shape.
    :ivar estimates: advice by other estimates.
    """

    group: str
    group_name: str
    members: list[AdvisedMember]
    matrix: Basis
    size_bytes: float
    order: list[int]
    rank_hint: list[int]
    predicted_s: float
    bound_s: float
    best: str
    estimates: list[Estimate]


class Tree(Advice, frozen=True, kw_only=True):
    """Trees of one message from or to a member.

    :ivar operation: ``broadcast`` or ``reduce``.
    :ivar root: row of the member.
    :ivar shape: shape of the tree that ``order`` is best for.
    :ivar orders: the best of each shape first.
    :ivar trees: the best first.
    """

    operation: Literal['broadcast', 'reduce']
    root: int
    shape: str
    orders: list[Order]
    trees: list[NamedTree]


class TreeQuery(fields.ProjectQuery, frozen=True, kw_only=True):
    """Message for which trees are wanted.

    :ivar project_id: project of the group; where it is not given, the
        caller's own, or for an operator any project.
    :ivar operation: direction of the bytes: from the root to all, or from all
        to the root.
    :ivar root: row of the member.
    :ivar size_bytes: size of the message, in bytes.
    :ivar matrix: estimate of the rates that decides.
    """

    operation: Literal['broadcast', 'reduce'] = 'broadcast'
    root: Annotated[int, msgspec.Meta(ge=0)] = 0
    #: As the RPCA paper's section V broadcasts.
    size_bytes: Size = 8e6
    matrix: Basis = 'constant'


class NamedMapping(operation.Response, frozen=True, kw_only=True):
    """A mapping of ranks to members.

    :ivar mapping: name of the mapping.
    :ivar order: row of the member for each rank.
    :ivar predicted_s: time of the exchange.
    :ivar gap: to the bound, as a fraction.
    """

    mapping: str
    order: list[int]
    predicted_s: float
    gap: float | None


class Mapping(Advice, frozen=True, kw_only=True):
    """Mappings of the ranks of a matrix to the VMs of a group.

    :ivar operation: ``exchange`` or ``all_reduce``.
    :ivar mappings: the best first.
    """

    operation: Literal['exchange', 'all_reduce']
    mappings: list[NamedMapping]


class MappingRequest(operation.Request, frozen=True, kw_only=True):
    """Bytes between ranks; those of the group's hint where none are given.

    :ivar tm: matrix as for ``virtco:tm``.
    :ivar all_reduce_bytes: bytes of NCCL's all-reduce, in place of ``tm``.
    :ivar matrix: estimate of the rates that decides.
    """

    tm: fields.Matrix | None = None
    all_reduce_bytes: Size | None = None
    matrix: Basis = 'constant'


class Clustered(Member, frozen=True, kw_only=True):
    """A VM of a group, and the cluster that it is of.

    :ivar cluster: equal for VMs that share a rack or host, and of no other
        meaning; null: it is on no host.
    """

    cluster: str | None


class Clusters(operation.Response, frozen=True, kw_only=True):
    """Members of a group by the rack or host that they share.

    :ivar group_id: id of the group.
    :ivar group_name: name of the group.
    :ivar level: level that the members of a cluster share.
    :ivar members: VMs of the group.
    """

    group_id: str
    group_name: str
    level: Literal['rack', 'host']
    members: list[Clustered]


class ClusterQuery(fields.ProjectQuery, frozen=True, kw_only=True):
    """Selection of the clusters of a group.

    :ivar project_id: project of the group; where it is not given, the
        caller's own, or for an operator any project.
    :ivar level: level at which the members of a cluster are together.
    """

    level: Literal['rack', 'host'] = 'rack'


TREE = operation.Operation(
    'adviseTree', 'GET', '/v1/groups/{group}/tree', Tree,
    'Advise trees for a message from or to a member of a group.',
    query=TreeQuery)
MAPPING = operation.Operation(
    'adviseMapping', 'POST', '/v1/groups/{group}/mapping', Mapping,
    'Advise which rank of a matrix should run on which VM of a group.',
    body=MappingRequest, query=fields.ProjectQuery)
CLUSTERS = operation.Operation(
    'showClusters', 'GET', '/v1/groups/{group}/clusters', Clusters,
    'Show which members of a group share a rack or a host.',
    query=ClusterQuery)
