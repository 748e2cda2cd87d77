# SPDX-License-Identifier: Apache-2.0

"""Bodies of topologies; :mod:`virtco.topology.formats.plain` reads on."""

from virtco.api.schemas import common

#: Nodes are checked while they are read: errors tell which one is wrong.
PLANE = common.body({
    'name': common.HOST,
    'levels': common.listed({'type': 'object'}, 16),
    'nodes': common.listed({'type': 'object'}, 50_000),
}, required=['name'])
#: Without ``vms``: groups of 2, 4, 8, ….
CAPACITY = common.body({
    'flavor': common.RESOURCES,
    'level': common.HOST,
    'plane': common.HOST,
    'vms': common.listed({'type': 'integer', 'minimum': 1,
                          'maximum': 1_000_000}, 16),
    'hosts': common.listed(common.body({
        'host': common.HOST, 'free': common.RESOURCES}), 100_000),
}, required=['flavor', 'level', 'hosts'])
TOPOLOGY = common.body({
    'planes': common.listed(PLANE, 16),
    'generation': common.GENERATION,
    'dry_run': {'type': 'boolean'},
}, required=['planes'])
