# SPDX-License-Identifier: Apache-2.0

"""Advice for the tenant of a group: trees, and ranks for its VMs."""

from virtco.api.policies import base_rules as base
from virtco.wire import group

ADVISE = 'virtco:groups:advise'
CLUSTERS = 'virtco:groups:clusters'

RULES = [
    base.rule(ADVISE, base.READER, 'Ask for communication trees and an order '
              'of ranks of a group.', group.TREE, group.MAPPING),
    base.rule(CLUSTERS, base.READER, 'Ask which VMs of a group share a rack '
              'or a host.', group.CLUSTERS),
]
