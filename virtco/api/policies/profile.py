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

"""Profiles: a tenant sees what its own VMs sent, and nobody else's."""

from oslo_policy import policy

from virtco.api.policies import base

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
