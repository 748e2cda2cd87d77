# SPDX-License-Identifier: Apache-2.0

"""Rules of operations for operators alone."""

from virtco.api.policies import base_rules as base
from virtco.wire import check
from virtco.wire import host
from virtco.wire import placement
from virtco.wire import plan
from virtco.wire import probe
from virtco.wire import rate
from virtco.wire import setting
from virtco.wire import topology

HOSTS = 'virtco:hosts:get'
DRAIN = 'virtco:hosts:drain'
FORGET = 'virtco:hosts:forget'
RATES = 'virtco:rates:get'
CHECKS = 'virtco:checks'
PROBES = 'virtco:probes:get'
PROBE = 'virtco:probes:create'
SETTINGS = 'virtco:settings'
PLANS = 'virtco:plans:create'
TOPOLOGY = 'virtco:topology'

RULES = [
    base.rule(HOSTS, base.ADMIN, 'Show hosts.', host.LIST, host.SHOW),
    base.rule(DRAIN, base.ADMIN, 'Keep new groups from a host.',
              host.DRAIN, host.UNDRAIN),
    base.rule(FORGET, base.ADMIN, 'Delete what is known of a host.',
              host.FORGET),
    base.rule(RATES, base.ADMIN, 'Show the measured rates.',
              rate.LIST, rate.MATRIX, rate.PERFORMERS),
    base.rule(CHECKS, base.ADMIN, 'Check hosts, and show what was found.',
              check.LIST, check.ORDER, check.SHOW),
    base.rule(PROBES, base.ADMIN, 'Show what is measured and what that costs.',
              probe.SCHEDULE, probe.SHOW),
    base.rule(PROBE, base.ADMIN, 'Order measurements between hosts.',
              probe.ORDER),
    base.rule(SETTINGS, base.ADMIN, 'Show and change run-time settings.',
              setting.SHOW, setting.HISTORY, setting.CHANGE),
    base.rule(TOPOLOGY, base.ADMIN, 'Show and change the topology.',
              topology.SHOW, topology.IMPORT, topology.DELETE,
              topology.CAPACITY),
    base.rule(PLANS, base.ADMIN, 'Ask what would be planned, and what '
              'decided.', plan.PLAN, plan.MOVES, plan.LOOK,
              placement.EXPLAIN),
]
