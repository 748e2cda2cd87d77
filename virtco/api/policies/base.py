# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
