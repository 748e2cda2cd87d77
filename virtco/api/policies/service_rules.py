# SPDX-License-Identifier: Apache-2.0

"""Rules of operations of Nova and the edge modules."""

from virtco.api.policies import base_rules as base
from virtco.wire import host
from virtco.wire import notification
from virtco.wire import placement
from virtco.wire import stream_address

PLACE = 'virtco:placements:update'
EDGE = 'virtco:edge'
HOST = 'virtco:edge:host'
NOTIFY = 'virtco:notifications:create'

RULES = [
    base.rule(PLACE, base.SERVICE, 'Ask for a placement, or release one.',
              placement.PLACE, placement.RELEASE),
    base.rule(EDGE, base.SERVICE, 'Learn where the distributors are.',
              stream_address.SHOW),
    base.rule(
        HOST, 'role:service and user_name:%(host)s',
        'Speak for a host: with a user per hypervisor, called as [edge] host '
        'is. Edge modules with a certificate do not need it. '
        '"rule:virtco:edge" lets every service user speak for every host.',
        stream_address.SHOW, host.POLICY),
    base.rule(NOTIFY, base.SERVICE, 'Deliver a notification of Nova.',
              notification.POST),
]
