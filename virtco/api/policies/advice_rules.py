# SPDX-License-Identifier: Apache-2.0

"""Advice for the tenant of a group: trees, and ranks for its VMs."""

from oslo_policy import policy

from virtco.api.policies import base_rules as base

ADVISE = 'virtco:groups:advise'
CLUSTERS = 'virtco:groups:clusters'

RULES = [
    policy.DocumentedRuleDefault(
        ADVISE, base.READER,
        'Ask for communication trees and an order of ranks of a group.', [
            {'method': 'GET', 'path': '/v1/groups/{group}/tree'},
            {'method': 'POST', 'path': '/v1/groups/{group}/mapping'}]),
    policy.DocumentedRuleDefault(
        CLUSTERS, base.READER,
        'Ask which VMs of a group share a rack or a host.', [
            {'method': 'GET', 'path': '/v1/groups/{group}/clusters'}]),
]
