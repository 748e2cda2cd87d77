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

"""Advice for the tenant of a group: trees, and ranks for its VMs."""

from oslo_policy import policy

from virtco.api.policies import base

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
