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

"""Bodies of placements and plans."""

from virtco.api.schemas import common
from virtco.conf import placement as placement_conf

# Hints and metadata are a tenant's: virtco.hints judges what is in them.
TENANT_TEXT = {'type': 'object', 'maxProperties': 1024,
               'additionalProperties': {
                   'anyOf': [{'type': 'string'},
                             {'type': 'array', 'maxItems': 16,
                              'items': {'type': 'string'}}]}}
SERVER_GROUP = common.body({
    'policy': {'enum': ['affinity', 'anti-affinity', 'soft-affinity',
                        'soft-anti-affinity']},
    'members': common.listed(common.ID),
    'hosts': common.listed(common.HOST),
    'max_per_host': common.nullable(
        {'type': 'integer', 'minimum': 1, 'maximum': 10_000}),
}, required=['policy'])
OFFER = common.body({'host': common.HOST, 'node': common.NAME,
                     'free': common.RESOURCES},
                    required=['host', 'free'])

PLACEMENT = common.body({
    'project_id': common.NAME,
    'user_id': common.nullable(common.NAME),
    'display_name': common.nullable({'type': 'string', 'maxLength': 4096}),
    'reservation_id': common.nullable(
        {'type': 'string', 'maxLength': 255}),
    'launch_index': common.nullable(common.COUNT),
    'num_instances': {'type': 'integer', 'minimum': 1, 'maximum': 100_000},
    'hints': TENANT_TEXT,
    'metadata': TENANT_TEXT,
    'flavor': common.RESOURCES,
    'server_group': common.nullable(SERVER_GROUP),
    'hosts': common.listed(OFFER) | {'minItems': 1},
    'unplanned_passes': common.COUNT,
}, required=['project_id', 'hints', 'flavor', 'hosts'], extra=True)

PLAN = common.body({
    'groups': common.listed(common.body({
        'name': common.NAME, 'tm': common.MATRIX,
        'flavor': common.RESOURCES}), 100) | {'minItems': 1},
    'hosts': common.listed(common.body({
        'host': common.HOST, 'free': common.RESOURCES,
        'egress_bps': common.LINK_RATE, 'ingress_bps': common.LINK_RATE,
    }, required=['host', 'free'])) | {'minItems': 1},
    'planner': {'enum': [name for name, _ in placement_conf.PLANNERS]},
    'objective': {'enum': [name for name, _ in placement_conf.OBJECTIVES]},
    'respect_active': {'type': 'boolean'},
    'budget_s': {'type': 'number', 'minimum': 0.001, 'maximum': 60},
    'seed': common.COUNT,
}, required=['groups', 'hosts'])
