# SPDX-License-Identifier: Apache-2.0

"""Nova's question for a host, the answer, and the reasons of the decision."""

from collections.abc import Mapping
import functools
import re
from typing import Annotated
from typing import Literal

import msgspec

from virtco.wire import check
from virtco.wire import fields
from virtco.wire import operation

_HOST = re.compile(fields.HOST_PATTERN)
#: Hints and metadata of a tenant; virtco.hints judges their content.
TenantText = Annotated[
    dict[str, str | Annotated[list[str], msgspec.Meta(max_length=16)]],
    msgspec.Meta(max_length=1024)]
Cap = Annotated[float, msgspec.Meta(gt=0, le=1e15)]
Burst = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
#: Fields of a question that a member keeps, in addition to its flavor.
CAPS = ('egress_cap_bps', 'ingress_cap_bps', 'egress_burst_bytes',
        'ingress_burst_bytes')
Status = Literal['planned', 'neutral', 'ignored']


class Offer(operation.Request, frozen=True, gc=False):
    """A candidate host of Nova's.

    :ivar host: name of the host.
    :ivar free: resources that are left on it.
    :ivar node: hypervisor of the host.
    """

    # Checked all at once: as a pattern it takes half of the decoding's time.
    host: Annotated[str, msgspec.Meta(
        min_length=1, max_length=255,
        extra_json_schema={'pattern': fields.HOST_PATTERN})]
    free: fields.Resources
    node: fields.Name = ''


class ServerGroup(operation.Request, frozen=True):
    """Nova's server group of the instance.

    :ivar policy: affinity or anti-affinity, also soft.
    :ivar members: instances of the group.
    :ivar hosts: hosts of the members.
    :ivar max_per_host: members that may share a host.
    """

    policy: Annotated[str, msgspec.Meta(
        pattern='^(soft-)?(anti-)?affinity\\Z')]
    members: Annotated[list[fields.Id], msgspec.Meta(max_length=10_000)] = []
    hosts: Annotated[list[fields.Host], msgspec.Meta(max_length=10_000)] = []
    max_per_host: Annotated[
        int, msgspec.Meta(ge=1, le=10_000)] | None = None


class Placement(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Nova's question for a host of one instance.

    :ivar project_id: project of the instance.
    :ivar hints: scheduler hints that begin with ``virtco:``.
    :ivar flavor: resources that the instance takes.
    :ivar hosts: candidates.
    :ivar egress_cap_bps: the flavor's ``quota:vif_outbound_average``.
    :ivar ingress_cap_bps: the flavor's ``quota:vif_inbound_average``.
    :ivar egress_burst_bytes: bytes that the server may send beyond the cap,
        after a pause.
    :ivar ingress_burst_bytes: bytes that the server may receive beyond the
        cap, after a pause.
    :ivar metadata: metadata of the server whose keys begin with ``virtco:``.
    :ivar user_id: user who launches it.
    :ivar display_name: name of the server.
    :ivar reservation_id: id of the request for several servers.
    :ivar launch_index: number of the instance among those of the request.
    :ivar num_instances: number of instances of the request.
    :ivar server_group: server group of the instance.
    :ivar unplanned_passes: passes of Nova before this one that had no answer.
    :ivar instance_uuid: id of the server, from the path; left out of the body.
    """

    project_id: fields.Name
    hints: TenantText
    flavor: fields.Resources
    hosts: Annotated[list[Offer], msgspec.Meta(min_length=1,
                                               max_length=10_000)]
    egress_cap_bps: Cap | None = None
    ingress_cap_bps: Cap | None = None
    egress_burst_bytes: Burst = 0.0
    ingress_burst_bytes: Burst = 0.0
    metadata: TenantText = {}
    user_id: fields.Name | None = None
    display_name: Annotated[str, msgspec.Meta(max_length=4096)] | None = None
    reservation_id: fields.Text | None = None
    launch_index: fields.Count | None = None
    num_instances: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1
    server_group: ServerGroup | None = None
    unplanned_passes: fields.Count = 0
    instance_uuid: str = ''

    def __post_init__(self) -> None:
        """Check the names of all hosts, and tell as msgspec does."""
        if not _HOST.match(''.join(self.offers)):
            at = next(i for i, offer in enumerate(self.hosts)
                      if not _HOST.match(offer.host))
            raise ValueError('Expected `str` matching regex '
                             f'{fields.HOST_PATTERN!r} - at `$.hosts[{at}]'
                             '.host`')

    @functools.cached_property
    def offers(self) -> dict[str, Offer]:
        """The candidates by their names, in Nova's order."""
        return {offer.host: offer for offer in self.hosts}


class RankedHost(operation.Response, frozen=True):
    """A host in the order of preference.

    :ivar host: name of the host.
    :ivar rank: 0 is the best.
    :ivar feasible: whether the VM could be there.
    :ivar cct_s: CCT of the group with this VM there; null: not known.
    :ivar objective_s: objective with this VM there; null: not known.
    :ivar why: reason for the rank.
    """

    host: str
    rank: int
    feasible: bool = True
    cct_s: float | None = None
    objective_s: float | None = None
    why: str = ''


class Promise(operation.Response, frozen=True, kw_only=True):
    """Whether a deadline is promised.

    :ivar at: the deadline, in seconds since the epoch.
    :ivar promised: whether it will be kept.
    :ivar why: reason.
    :ivar bound_s: no placement under the group's constraints takes less
        time, by any schedule.
    :ivar bound_here_s: no schedule on the planned hosts that keeps the
        promises to others takes less time; null: it never ends there.
    :ivar earliest_s: least time that could be promised on these hosts; null:
        none could.
    """

    at: float
    promised: bool
    why: str
    bound_s: float | None = None
    bound_here_s: float | None = None
    earliest_s: float | None = None


class Decided(operation.Response, frozen=True, kw_only=True):
    """A decision about an instance.

    :ivar instance_uuid: id of the instance.
    :ivar status: ``planned``, ``neutral`` or ``ignored``.
    :ivar host: the best one.
    :ivar why: reason.
    :ivar group: id of the group.
    :ivar group_name: name of the group.
    :ivar row: the member that the instance is.
    :ivar cct_s: planned completion time of the group.
    :ivar bottleneck: port that decides ``cct_s``.
    :ivar deadline: promise for the group, where its deadline was asked.
    """

    instance_uuid: str
    status: Status
    host: str | None = None
    why: str = ''
    group: str | None = None
    group_name: str | None = None
    row: int | None = None
    cct_s: float | None = None
    bottleneck: str | None = None
    deadline: Promise | None = None


class Answer(Decided, frozen=True, kw_only=True):
    """Hosts for an instance, or no opinion.

    :ivar hosts: the best first.
    :ivar rows: the host of each planned member, of an answer that planned
        the group.
    :ivar lower_bound_s: ``cct_s`` is at least that in ``bound_scope``.
    :ivar bound_scope: placements that ``lower_bound_s`` and ``gap`` cover,
        such as any placement under these constraints.
    :ivar gap: distance of the plan from the bound, as a fraction.
    :ivar method: method that found the plan.
    :ivar slow_phase: phase that took most of the time, when it ran out.
    :ivar refused: required wish that cannot be met: its level, how many of how
        many VMs fit, and the resource that limits. Nova's filter then passes
        no host.
    :ivar allowed: offered hosts that keep to a required wish, for any VM of
        the request. Nova's filter passes no other.
    """

    hosts: list[RankedHost] = []
    rows: Mapping[str, str] | msgspec.UnsetType = msgspec.UNSET
    lower_bound_s: float | None = None
    bound_scope: str | None = None
    gap: float | None = None
    method: str | None = None
    slow_phase: str | None = None
    refused: Mapping[str, str | int] | None = None
    allowed: list[str] | None = None


class Kept(Answer, frozen=True, kw_only=True):
    """The last answer for an instance, and where the instance is now.

    :ivar project_id: project of the instance.
    :ivar at: time of the answer, in seconds since the epoch.
    :ivar state: state of the member; null: it is none.
    :ivar host_now: host that the instance is on; null: none, or hidden.
    """

    project_id: str
    at: float
    state: str | None
    host_now: str | None


class Reason(operation.Response, frozen=True, kw_only=True):
    """Effect that one change of the problem would have had on the plan.

    :ivar kind: ``coflow`` (one less), ``room`` (for one VM more) or ``rate``
        (twice as much).
    :ivar subject: the coflow, host or port that is changed.
    :ivar host: host of the VM in this case.
    :ivar cct_s: CCT of its group in this case.
    :ivar instead_of_s: CCT of its group as planned.
    :ivar saved_objective_s: time by which all coflows together would end
        earlier.
    :ivar limiting: port that would decide the group's time, if known.
    :ivar text: the same as a sentence.
    """

    kind: str
    subject: str
    host: str
    cct_s: float | None
    instead_of_s: float | None
    saved_objective_s: float | None
    limiting: str
    text: str


class Explanation(Decided, frozen=True, kw_only=True):
    """Reasons for an answer.

    :ivar phases_s: time that each phase of the answer took.
    :ivar reasons: the strongest first.
    :ivar is_complete: whether the time was enough for all questions.
    :ivar seconds: duration of the explanation.
    :ivar why_not: why there are no reasons.
    :ivar findings: findings of checks about the group's hosts and the switches
        above.
    """

    phases_s: Mapping[str, float] = {}
    reasons: list[Reason] = []
    is_complete: bool = False
    seconds: float = 0.0
    why_not: str = ''
    findings: list[check.Finding] = []


class ExplanationQuery(operation.Query, frozen=True):
    """Effort of an explanation.

    :ivar budget_s: time for all questions, in seconds; the controller
        chooses where it is not given.
    """

    budget_s: fields.Budget | None = None



PLACE = operation.Operation(
    'place', 'PUT', '/v1/placements/{instance_uuid}', Answer,
    'Ask for a host of an instance, as CoflowWeigher does.', body=Placement)
SHOW = operation.Operation(
    'showPlacement', 'GET', '/v1/placements/{instance_uuid}', Kept,
    'Show the last answer for an instance, and where the instance is.')
RELEASE = operation.Operation(
    'releasePlacement', 'DELETE', '/v1/placements/{instance_uuid}',
    operation.NOTHING, 'Give up the reservation of an instance.', status=204,
    conflict=operation.OVERTAKEN)
EXPLAIN = operation.Operation(
    'explainPlacement', 'GET', '/v1/placements/{instance_uuid}/explanation',
    Explanation, 'Explain what decided the host of an instance.',
    query=ExplanationQuery)
