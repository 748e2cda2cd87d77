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

"""Bodies of coflows, settings and notifications."""

from virtco.api.schemas import common
from virtco.know import settings

REGISTER = common.body({
    'project_id': common.NAME, 'name': common.NAME, 'tm': common.MATRIX,
}, required=['name', 'tm'])

#: Seconds for which an announced coflow waits for its bytes.
EXPIRES_S, MOST_EXPIRES_S = 3600, 7 * 86400
ANNOUNCE = common.body({
    'name': common.NAME, 'tm': common.MATRIX,
    'expires_s': {'type': 'number', 'exclusiveMinimum': 0,
                  'maximum': MOST_EXPIRES_S, 'default': EXPIRES_S},
}, required=['name', 'tm'])

PRIORITY = {
    'priority_class': {'type': 'integer', 'minimum': -1000,
                       'maximum': 1000},
    'weight': {'type': 'number', 'minimum': 1e-6, 'maximum': 1e6},
}
CHANGE = common.body({'state': {'const': 'done'}} | PRIORITY,
                     required=[]) | {'minProperties': 1}
CHANGE_PROJECT = common.body(PRIORITY | {'debt_bytes': {'const': 0}},
                             required=[]) | {'minProperties': 1}

SETTINGS = common.body({
    name: {'enum': values} for name, values in settings.CHOICES.items()
}, required=[]) | {'minProperties': 1}

NOTIFICATION = common.body({
    'event_type': common.NAME, 'payload': {'type': 'object'},
}, extra=True)
