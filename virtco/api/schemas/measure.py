# SPDX-License-Identifier: Apache-2.0

"""Bodies of ``/v1/checks``."""

from virtco.api.schemas import common

CHECK = common.body({
    'hosts': common.listed(common.HOST, 1024), 'group': common.ID,
    'purpose': {'enum': ['check', 'discover']}},
    required=[])
