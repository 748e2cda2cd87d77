# SPDX-License-Identifier: Apache-2.0

"""Bodies of placements and plans."""

from virtco.api.schemas import common
from virtco.conf import placement as placement_conf

BUDGET_S = {'type': 'number', 'minimum': 0.001, 'maximum': 60}

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
    'budget_s': BUDGET_S,
    'seed': common.COUNT, 'within': common.TEXT, 'spread': common.TEXT,
    'deadline': {'type': ['string', 'number']},
}, required=['groups'])

ADVICE = common.body({'budget_s': BUDGET_S}, required=[])
