# SPDX-License-Identifier: Apache-2.0

"""Hosts for Nova's instances, and plans that nobody launches."""

import msgspec

from virtco.api import policies
from virtco.api.call import Call
from virtco.wire import check
from virtco.wire import placement as wire
from virtco.wire import plan as plan_wire


def place(call: Call, instance_uuid: str, body: wire.Placement
          ) -> wire.Answer:
    """Choose a host of an instance."""
    # A copy would check the names of all hosts again.
    msgspec.structs.force_setattr(body, 'instance_uuid', instance_uuid)
    return call.rooms.place.answer(body, call.is_gone())


def show_placement(call: Call, instance_uuid: str) -> wire.Kept:
    """Show the last answer for an instance; tenants see no hosts."""
    found = call.rooms.place.placement(instance_uuid)
    call.require(policies.SHOW_COFLOW, project_id=found.project_id)
    if call.may(policies.HOSTS):
        return found
    # Hypervisors are the operators' business.
    return msgspec.structs.replace(
        found, host=None, host_now=None, hosts=[], rows={}, bottleneck=None,
        why='' if found.status == 'planned' else found.why)


def release_placement(call: Call, instance_uuid: str) -> None:
    """Give up the reservation of an instance."""
    call.rooms.follow.release(instance_uuid)


def explain_placement(call: Call, instance_uuid: str,
                      query: wire.ExplanationQuery) -> wire.Explanation:
    """Explain a placement, with findings about the group's hosts."""
    planner = call.rooms.place
    found = planner.explain(planner.placement(instance_uuid), query.budget_s)
    return msgspec.structs.replace(
        found, findings=_findings(call, found.group or ''))


def _findings(call: Call, group: str) -> list[check.Finding]:
    """Find those about hosts of the group and the switches above."""
    state, objects = call.rooms.state, call.rooms.objects
    hosts = set(state.live.hosts_of_group(group))
    tree = state.live.wire_tree(call.rooms.clock())
    chains = tree.chains()
    above = {one.name for host in hosts if host in tree.leaf_of
             for one in chains[tree.leaf_of[host]]}
    return [msgspec.structs.replace(one, evidence=msgspec.UNSET)
            for one in objects.findings.all() if one.subject in hosts | above]


def list_moves(call: Call) -> plan_wire.Moves:
    """List the moves of running VMs that were found last."""
    return plan_wire.Moves(call.rooms.place.adviser().known())


def find_moves(call: Call, body: plan_wire.Look) -> plan_wire.Moves:
    """Search now for moves that would pay, at most one per group."""
    return plan_wire.Moves(call.rooms.place.adviser().look(
        body.budget_s))


def plan(call: Call, body: plan_wire.PlanRequest) -> plan_wire.Plan:
    """Plan groups that nobody launches."""
    return call.rooms.place.what_if(body)
