# SPDX-License-Identifier: Apache-2.0

"""Roles the other rules are made of."""

from oslo_policy import policy

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
