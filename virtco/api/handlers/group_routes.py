# SPDX-License-Identifier: Apache-2.0

"""Advice for the VMs of a group."""

from typing import TypeVar

import msgspec

from virtco.api import policies
from virtco.api.call import Call
from virtco.wire import fields
from virtco.wire import group as wire

_Advice = TypeVar('_Advice', wire.Tree, wire.Mapping)


def advise_tree(call: Call, group: str, query: wire.TreeQuery) -> wire.Tree:
    """Advise trees for a message from or to a member of a group."""
    return _seen(call, call.rooms.objects.advice.tree(
        call.project(query, policies.ADVISE), group, query.root,
        query.size_bytes, query.operation == 'reduce', query.matrix))


def advise_mapping(call: Call, group: str, query: fields.ProjectQuery,
                   body: wire.MappingRequest) -> wire.Mapping:
    """Advise which rank of a matrix should run on which VM."""
    return _seen(call, call.rooms.objects.advice.mapping(
        call.project(query, policies.ADVISE), group, body.tm, body.matrix,
        body.all_reduce_bytes))


def show_clusters(call: Call, group: str, query: wire.ClusterQuery
                  ) -> wire.Clusters:
    """Show which members of a group share a rack or a host."""
    return call.rooms.objects.clusters.show(
        call.project(query, policies.CLUSTERS), group, query.level)


def _seen(call: Call, found: _Advice) -> _Advice:
    """Hide hypervisors from tenants."""
    if call.may(policies.HOSTS):
        return found
    return msgspec.structs.replace(found, members=[
        msgspec.structs.replace(member, host=None)
        for member in found.members])
