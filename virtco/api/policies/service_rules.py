# SPDX-License-Identifier: Apache-2.0

"""What Nova and the edge modules do."""

from oslo_policy import policy

from virtco.api.policies import base_rules as base

PLACE = 'virtco:placements:update'
EDGE = 'virtco:edge'
HOST = 'virtco:edge:host'
NOTIFY = 'virtco:notifications:create'

RULES = [
    policy.DocumentedRuleDefault(
        PLACE, base.SERVICE, 'Ask for a placement, or release one.',
        [{'method': 'PUT', 'path': '/v1/placements/{instance_uuid}'},
         {'method': 'DELETE', 'path': '/v1/placements/{instance_uuid}'}]),
    policy.DocumentedRuleDefault(
        EDGE, base.SERVICE, 'Learn where the distributors are.',
        [{'method': 'GET', 'path': '/v1/distributor'}]),
    policy.DocumentedRuleDefault(
        HOST, 'role:service and user_name:%(host)s',
        'Speak for a host: with a user per hypervisor, called as [edge] host '
        'is. Edge modules with a certificate do not need it. '
        '"rule:virtco:edge" lets every service user speak for every host.',
        [{'method': 'GET', 'path': '/v1/distributor'},
         {'method': 'GET', 'path': '/v1/hosts/{host}/policy'}]),
    policy.DocumentedRuleDefault(
        NOTIFY, base.SERVICE, 'Deliver a notification of Nova.',
        [{'method': 'POST', 'path': '/v1/notifications'}]),
]
