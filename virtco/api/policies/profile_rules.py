# SPDX-License-Identifier: Apache-2.0

"""Profiles: a tenant sees what its own VMs sent, and nobody else's."""

from oslo_policy import policy

from virtco.api.policies import base_rules as base

SHOW = 'virtco:profiles:show'
FORGET = 'virtco:apps:forget'

RULES = [
    policy.DocumentedRuleDefault(
        SHOW, base.READER, 'Show what the VMs of a project sent.', [
            {'method': 'GET', 'path': '/v1/profiles'},
            {'method': 'GET', 'path': '/v1/profiles/{group}'},
            {'method': 'GET', 'path': '/v1/apps'},
            {'method': 'GET', 'path': '/v1/apps/{name}'}]),
    policy.DocumentedRuleDefault(
        FORGET, base.MEMBER, 'Forget what was learned of an application.',
        [{'method': 'DELETE', 'path': '/v1/apps/{name}'}]),
]
