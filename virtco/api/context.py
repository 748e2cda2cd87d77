# SPDX-License-Identifier: Apache-2.0

"""Callers of the API, and their permissions."""

from oslo_config import cfg
from oslo_context import context as oslo_context
from oslo_policy import policy as oslo_policy

from virtco import exception
from virtco.api import policies


class Authorizer:
    """Asks the policy rules.

    :ivar is_open: everyone is an operator (``noauth``).
    :ivar asks_certificates: edge modules prove by these who they are.
    """

    def __init__(self, conf: cfg.ConfigOpts):
        self.is_open = conf.api.auth_strategy == 'noauth'
        self.asks_certificates = bool(conf.distributor.client_ca_file)
        _check_file(conf)
        self._enforcer = oslo_policy.Enforcer(conf)
        self._enforcer.register_defaults(policies.list_rules())
        self._enforcer.load_rules()

    def may(self, caller: oslo_context.RequestContext, rule: policies.Rule,
            target: dict[str, str]) -> bool:
        return bool(self._enforcer.authorize(
            rule.name, target, {**caller.to_policy_values(),
                                'user_name': caller.user_name}))


def _check_file(conf: cfg.ConfigOpts) -> None:
    """Refuse a policy file that was named and is missing: oslo.policy would
    take its defaults.

    :raises virtco.exception.Invalid:
    """
    place = conf.get_location('policy_file', 'oslo_policy')
    name = conf.oslo_policy.policy_file
    if (place is not None and place.location is cfg.Locations.user
            and conf.find_file(name) is None):
        raise exception.Invalid(field='[oslo_policy] policy_file', value=name,
                                limit='a readable file')
