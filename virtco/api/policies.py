# SPDX-License-Identifier: Apache-2.0

"""Rules of who may call which operations, for policy.yaml."""

import re
from typing import Any

from oslo_policy import policy

from virtco.wire import check
from virtco.wire import coflow_bodies as coflow
from virtco.wire import group
from virtco.wire import host
from virtco.wire import notification
from virtco.wire import operation
from virtco.wire import placement
from virtco.wire import plan
from virtco.wire import probe
from virtco.wire import profile
from virtco.wire import project
from virtco.wire import rate
from virtco.wire import setting
from virtco.wire import stream_address
from virtco.wire import topology

Rule = policy.RuleDefault
ADMIN = 'rule:virtco:admin'
SERVICE = 'rule:virtco:service'
READER = 'rule:virtco:project_reader'
MEMBER = 'rule:virtco:project_member'

#: Roles that the other rules are made of, then each rule.
_RULES = [
    Rule('virtco:admin', 'role:admin', description='Operators.'),
    Rule('virtco:service', 'role:service or rule:virtco:admin',
         description='Nova and the edge modules.'),
    Rule('virtco:project_reader', 'rule:virtco:admin or '
         '(role:reader and project_id:%(project_id)s)',
         description='Those who may see what a project has.'),
    Rule('virtco:project_member', 'rule:virtco:admin or '
         '(role:member and project_id:%(project_id)s)',
         description='Those who may change what a project has.'),
]


def _rule(name: str, check: str, description: str,
          *operations: operation.Operation[Any]) -> Rule:
    """Declare who may call operations."""
    _RULES.append(policy.DocumentedRuleDefault(name, check, description, [
        {'method': one.method, 'path': one.path} for one in operations]))
    return _RULES[-1]


def list_rules() -> list[Rule]:
    """List all rules, for the enforcer and oslo.policy's generators."""
    return _RULES


def rules_of(one: operation.Operation[Any]) -> list[tuple[Rule, list[str]]]:
    """Return the rules that allow an operation, each with the roles in it."""
    asked = {'method': one.method, 'path': one.path}
    return [(rule, _roles(rule)) for rule in _RULES
            if isinstance(rule, policy.DocumentedRuleDefault)
            and asked in rule.operations]


def first_rule(one: operation.Operation[Any]) -> Rule | None:
    """Return the rule that is asked before the operation's handler.

    None where the first rule of an operation is about a project or a host:
    the handler, which finds out about which, asks that rule then. None, too,
    where everybody may.
    """
    return next((rule for rule, _roles in rules_of(one)[:1]
                 if rule.check_str in (ADMIN, SERVICE)), None)


def _roles(rule: Rule) -> list[str]:
    """Return the roles that a rule and those it is made of name."""
    below = [other for other in _RULES
             if f'rule:{other.name}' in rule.check_str.split()
             or f'rule:{other.name}' == rule.check_str]
    return sorted({*re.findall(r'role:(\w+)', rule.check_str), *(
        role for other in below for role in _roles(other))})


# Tenants, about their own projects.
ADVISE = _rule(
    'virtco:groups:advise', READER, 'Ask for communication trees and an order '
    'of ranks of a group.', group.TREE, group.MAPPING)
CLUSTERS = _rule(
    'virtco:groups:clusters', READER, 'Ask which VMs of a group share a rack '
    'or a host.', group.CLUSTERS)
LIST_COFLOWS = _rule(
    'virtco:coflows:list', READER, 'List the coflows and events of a project.',
    coflow.LIST, coflow.EVENTS)
SHOW_COFLOW = _rule(
    'virtco:coflows:show', READER, 'Show a coflow or a placement.',
    coflow.SHOW, placement.SHOW)
REGISTER = _rule('virtco:coflows:register', MEMBER,
                 'Register a traffic matrix.', coflow.REGISTER)
ANNOUNCE = _rule(
    'virtco:coflows:announce', MEMBER, 'Announce a coflow over the VMs of a '
    'living group.', coflow.ANNOUNCE)
END_COFLOW = _rule('virtco:coflows:end', MEMBER, 'Declare a coflow done.',
                   coflow.CHANGE)
PRIORITIZE = _rule(
    'virtco:coflows:prioritize', ADMIN, 'Set the priority class or the weight '
    'of a coflow or of a project.', coflow.CHANGE, project.LIST, project.SHOW,
    project.CHANGE)
DELETE_COFLOW = _rule('virtco:coflows:delete', MEMBER,
                      'Delete a coflow or a matrix.', coflow.DELETE)
PROFILES = _rule(
    'virtco:profiles:show', READER, 'Show what the VMs of a project sent.',
    profile.LIST, profile.SHOW, profile.LIST_APPS, profile.SHOW_APP)
FORGET_APP = _rule(
    'virtco:apps:forget', MEMBER, 'Forget what was learned of an application.',
    profile.FORGET_APP)

# Operators.
HOSTS = _rule('virtco:hosts:get', ADMIN, 'Show hosts.', host.LIST, host.SHOW)
_rule('virtco:hosts:drain', ADMIN, 'Keep new groups from a host.',
      host.DRAIN, host.UNDRAIN)
_rule('virtco:hosts:forget', ADMIN,
      'Delete what is known of a host.', host.FORGET)
_rule('virtco:rates:get', ADMIN, 'Show the measured rates.',
      rate.LIST, rate.MATRIX, rate.PERFORMERS)
_rule('virtco:checks', ADMIN, 'Check hosts, and show what was found.',
      check.LIST, check.ORDER, check.SHOW)
_rule(
    'virtco:probes:get', ADMIN, 'Show what is measured and what that costs.',
    probe.SCHEDULE, probe.SHOW)
_rule('virtco:probes:create', ADMIN,
      'Order measurements between hosts.', probe.ORDER)
_rule(
    'virtco:settings', ADMIN, 'Show and change run-time settings.',
    setting.SHOW, setting.HISTORY, setting.CHANGE)
_rule(
    'virtco:topology', ADMIN, 'Show and change the topology.', topology.SHOW,
    topology.IMPORT, topology.DELETE, topology.CAPACITY)
_rule(
    'virtco:plans:create', ADMIN, 'Ask what would be planned, and what '
    'decided.', plan.PLAN, plan.MOVES, plan.LOOK, placement.EXPLAIN)

# Nova and the edge modules.
_rule(
    'virtco:placements:update', SERVICE, 'Ask for a placement, or release '
    'one.', placement.PLACE, placement.RELEASE)
_rule('virtco:edge', SERVICE, 'Learn where the distributors are.',
      stream_address.SHOW)
SPEAK = _rule(
    'virtco:edge:host', 'role:service and user_name:%(host)s',
    'Speak for a host: with a user per hypervisor, called as [edge] host '
    'is. Edge modules with a certificate do not need it. '
    '"rule:virtco:edge" lets every service user speak for every host.',
    stream_address.SHOW, host.POLICY)
_rule('virtco:notifications:create', SERVICE,
      'Deliver a notification of Nova.', notification.POST)
