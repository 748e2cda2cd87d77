# SPDX-License-Identifier: Apache-2.0

"""Bodies of what operators do to hosts."""

from virtco.api.schemas import common

DRAIN = common.body({'reason': common.TEXT}, required=[])
