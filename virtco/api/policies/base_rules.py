# SPDX-License-Identifier: Apache-2.0

"""Roles the other rules are made of, and how a rule is declared."""

from typing import Any

from oslo_policy import policy

from virtco.wire import operation

ADMIN = 'rule:virtco:admin'
SERVICE = 'rule:virtco:service'
READER = 'rule:virtco:project_reader'
MEMBER = 'rule:virtco:project_member'

RULES = [
    policy.RuleDefault(
        'virtco:admin', 'role:admin',
        description='Operators.'),
    policy.RuleDefault(
        'virtco:service', 'role:service or rule:virtco:admin',
        description='Nova and the edge modules.'),
    policy.RuleDefault(
        'virtco:project_reader',
        'rule:virtco:admin or '
        '(role:reader and project_id:%(project_id)s)',
        description='Those who may see what a project has.'),
    policy.RuleDefault(
        'virtco:project_member',
        'rule:virtco:admin or '
        '(role:member and project_id:%(project_id)s)',
        description='Those who may change what a project has.'),
]


def rule(name: str, check: str, description: str,
         *operations: operation.Operation[Any]) -> policy.RuleDefault:
    """Declare who may call operations."""
    return policy.DocumentedRuleDefault(name, check, description, [
        {'method': one.method, 'path': one.path} for one in operations])
