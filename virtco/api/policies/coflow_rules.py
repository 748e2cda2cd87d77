# SPDX-License-Identifier: Apache-2.0

"""Coflows: a tenant sees and ends its own."""

from oslo_policy import policy

from virtco.api.policies import base_rules as base

LIST = 'virtco:coflows:list'
SHOW = 'virtco:coflows:show'
REGISTER = 'virtco:coflows:register'
ANNOUNCE = 'virtco:coflows:announce'
END = 'virtco:coflows:end'
PRIORITIZE = 'virtco:coflows:prioritize'
DELETE = 'virtco:coflows:delete'


def _rule(name: str, check: str, description: str, method: str,
          path: str) -> policy.DocumentedRuleDefault:
    return policy.DocumentedRuleDefault(
        name, check, description, [{'method': method, 'path': path}])


RULES = [
    _rule(LIST, base.READER, 'List the coflows and events of a project.',
          'GET', '/v1/coflows'),
    _rule(SHOW, base.READER, 'Show a coflow or a placement.', 'GET',
          '/v1/coflows/{id}'),
    _rule(REGISTER, base.MEMBER, 'Register a traffic matrix.', 'POST',
          '/v1/coflows'),
    _rule(ANNOUNCE, base.MEMBER,
          'Announce a coflow over the VMs of a living group.', 'POST',
          '/v1/groups/{group}/coflows'),
    _rule(END, base.MEMBER, 'Declare a coflow done.', 'PATCH',
          '/v1/coflows/{id}'),
    policy.DocumentedRuleDefault(
        PRIORITIZE, base.ADMIN,
        'Set the priority class or the weight of a coflow or of a project.',
        [{'method': 'PATCH', 'path': '/v1/coflows/{id}'},
         {'method': 'GET', 'path': '/v1/projects'},
         {'method': 'GET', 'path': '/v1/projects/{project_id}'},
         {'method': 'PATCH', 'path': '/v1/projects/{project_id}'}]),
    _rule(DELETE, base.MEMBER, 'Delete a coflow or a matrix.', 'DELETE',
          '/v1/coflows/{id}'),
]
