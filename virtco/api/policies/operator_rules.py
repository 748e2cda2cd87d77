# SPDX-License-Identifier: Apache-2.0

"""What only operators do."""

from oslo_policy import policy

from virtco.api.policies import base_rules as base

HOSTS = 'virtco:hosts:get'
DRAIN = 'virtco:hosts:drain'
RATES = 'virtco:rates:get'
CHECKS = 'virtco:checks'
PROBES = 'virtco:probes:get'
PROBE = 'virtco:probes:create'
SETTINGS = 'virtco:settings'
PLANS = 'virtco:plans:create'
TOPOLOGY = 'virtco:topology'

RULES = [
    policy.DocumentedRuleDefault(
        HOSTS, base.ADMIN, 'Show hosts.',
        [{'method': 'GET', 'path': '/v1/hosts'},
         {'method': 'GET', 'path': '/v1/hosts/{host}'}]),
    policy.DocumentedRuleDefault(
        DRAIN, base.ADMIN, 'Keep new groups from a host.',
        [{'method': 'PUT', 'path': '/v1/hosts/{host}/drain'},
         {'method': 'DELETE', 'path': '/v1/hosts/{host}/drain'}]),
    policy.DocumentedRuleDefault(
        RATES, base.ADMIN, 'Show the measured rates.',
        [{'method': 'GET', 'path': '/v1/rates'},
         {'method': 'GET', 'path': '/v1/matrices/{kind}'},
         {'method': 'GET', 'path': '/v1/performers'}]),
    policy.DocumentedRuleDefault(
        CHECKS, base.ADMIN, 'Check hosts, and show what was found.',
        [{'method': 'GET', 'path': '/v1/checks'},
         {'method': 'POST', 'path': '/v1/checks'},
         {'method': 'GET', 'path': '/v1/checks/{check_id}'}]),
    policy.DocumentedRuleDefault(
        PROBES, base.ADMIN, 'Show what is measured and what that costs.',
        [{'method': 'GET', 'path': '/v1/probes'},
         {'method': 'GET', 'path': '/v1/probes/{probe_id}'}]),
    policy.DocumentedRuleDefault(
        PROBE, base.ADMIN, 'Order measurements between hosts.',
        [{'method': 'POST', 'path': '/v1/probes'}]),
    policy.DocumentedRuleDefault(
        SETTINGS, base.ADMIN, 'Show and change run-time settings.',
        [{'method': 'GET', 'path': '/v1/settings'},
         {'method': 'GET', 'path': '/v1/settings/history'},
         {'method': 'PATCH', 'path': '/v1/settings'}]),
    policy.DocumentedRuleDefault(
        TOPOLOGY, base.ADMIN, 'Show and change the topology.',
        [{'method': 'GET', 'path': '/v1/topology'},
         {'method': 'PUT', 'path': '/v1/topology'},
         {'method': 'DELETE', 'path': '/v1/topology/{plane}'}]),
    policy.DocumentedRuleDefault(
        PLANS, base.ADMIN, 'Ask what would be planned, and what decided.',
        [{'method': 'POST', 'path': '/v1/plans'},
         {'method': 'GET', 'path': '/v1/advice'},
         {'method': 'POST', 'path': '/v1/advice'},
         {'method': 'GET',
          'path': '/v1/placements/{instance_uuid}/explanation'}]),
]
