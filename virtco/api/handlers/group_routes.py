# SPDX-License-Identifier: Apache-2.0

"""Advice for the VMs of a group."""

from typing import TypeVar

import msgspec

from virtco.api.call import Call
from virtco.api.policies import advice_rules as rules
from virtco.api.policies import operator_rules
from virtco.wire import fields
from virtco.wire import group as wire

_Advice = TypeVar('_Advice', wire.Tree, wire.Mapping)


def tree(call: Call, group: str, query: wire.TreeQuery) -> wire.Tree:
    return _seen(call, call.rooms.objects.advice.tree(
        call.project(query, rules.ADVISE), group, query.root,
        query.size_bytes, query.operation == 'reduce', query.matrix))


def mapping(call: Call, group: str, query: fields.ProjectQuery,
            body: wire.MappingRequest) -> wire.Mapping:
    return _seen(call, call.rooms.objects.advice.mapping(
        call.project(query, rules.ADVISE), group, body.tm, body.matrix,
        body.all_reduce_bytes))


def clusters(call: Call, group: str, query: wire.ClusterQuery
             ) -> wire.Clusters:
    return call.rooms.objects.clusters.show(
        call.project(query, rules.CLUSTERS), group, query.level)


def _seen(call: Call, found: _Advice) -> _Advice:
    """Hide hypervisors from tenants."""
    if call.may(operator_rules.HOSTS):
        return found
    return msgspec.structs.replace(found, members=[
        msgspec.structs.replace(member, host=None)
        for member in found.members])
