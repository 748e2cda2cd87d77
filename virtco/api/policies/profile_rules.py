# SPDX-License-Identifier: Apache-2.0

"""Profiles: a tenant sees what its own VMs sent, and nobody else's."""

from virtco.api.policies import base_rules as base
from virtco.wire import profile

SHOW = 'virtco:profiles:show'
FORGET = 'virtco:apps:forget'

RULES = [
    base.rule(SHOW, base.READER, 'Show what the VMs of a project sent.',
              profile.LIST, profile.SHOW, profile.LIST_APPS,
              profile.SHOW_APP),
    base.rule(FORGET, base.MEMBER, 'Forget what was learned of an '
              'application.', profile.FORGET_APP),
]
