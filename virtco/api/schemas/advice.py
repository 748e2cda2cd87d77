# SPDX-License-Identifier: Apache-2.0

"""Bodies of advice for a group."""

from virtco.advise import estimates
from virtco.api.schemas import common

MOST_BYTES = 10 ** 15

MAPPING = common.body({
    'tm': common.MATRIX,
    'all_reduce_bytes': {'type': 'number', 'minimum': 1,
                         'maximum': MOST_BYTES},
    'matrix': {'enum': [str(basis) for basis in estimates.Basis]}},
    required=[])
