# SPDX-License-Identifier: Apache-2.0

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
