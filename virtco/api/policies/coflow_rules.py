# SPDX-License-Identifier: Apache-2.0

"""Coflows: a tenant sees and ends its own."""

from virtco.api.policies import base_rules as base
from virtco.wire import coflow_bodies as coflow
from virtco.wire import placement
from virtco.wire import project

LIST = 'virtco:coflows:list'
SHOW = 'virtco:coflows:show'
REGISTER = 'virtco:coflows:register'
ANNOUNCE = 'virtco:coflows:announce'
END = 'virtco:coflows:end'
PRIORITIZE = 'virtco:coflows:prioritize'
DELETE = 'virtco:coflows:delete'

RULES = [
    base.rule(LIST, base.READER, 'List the coflows and events of a project.',
              coflow.LIST, coflow.EVENTS),
    base.rule(SHOW, base.READER, 'Show a coflow or a placement.',
              coflow.SHOW, placement.SHOW),
    base.rule(REGISTER, base.MEMBER, 'Register a traffic matrix.',
              coflow.REGISTER),
    base.rule(ANNOUNCE, base.MEMBER, 'Announce a coflow over the VMs of a '
              'living group.', coflow.ANNOUNCE),
    base.rule(END, base.MEMBER, 'Declare a coflow done.', coflow.CHANGE),
    base.rule(PRIORITIZE, base.ADMIN, 'Set the priority class or the weight '
              'of a coflow or of a project.', coflow.CHANGE, project.LIST,
              project.SHOW, project.CHANGE),
    base.rule(DELETE, base.MEMBER, 'Delete a coflow or a matrix.',
              coflow.DELETE),
]
