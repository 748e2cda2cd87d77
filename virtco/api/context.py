# SPDX-License-Identifier: Apache-2.0

"""Callers of the API, and their permissions."""

from typing import Any

import falcon
from oslo_config import cfg
from oslo_context import context as oslo_context
from oslo_policy import policy as oslo_policy

from virtco import exception
from virtco.api import policies


class Authorizer:
    """Asks the policy rules; with ``noauth`` everyone is an operator."""

    def __init__(self, conf: cfg.ConfigOpts):
        self._noauth = conf.api.auth_strategy == 'noauth'
        self._asks_certificates = bool(conf.distributor.client_ca_file)
        _check_file(conf)
        self._enforcer = oslo_policy.Enforcer(conf)
        self._enforcer.register_defaults(policies.list_rules())
        self._enforcer.load_rules()

    def context(self, request: falcon.Request) -> oslo_context.RequestContext:
        if self._noauth:
            return oslo_context.RequestContext(
                project_id='', roles=['admin', 'member', 'reader',
                                      'service'], is_admin=True)
        return oslo_context.RequestContext.from_environ(request.env)

    def may(self, request: falcon.Request, rule: policies.Rule,
            target: dict[str, Any] | None = None) -> bool:
        if self._noauth:
            return True
        context = self.context(request)
        return bool(self._enforcer.authorize(
            rule.name, target or {}, {**context.to_policy_values(),
                                 'user_name': context.user_name}))

    def require(self, request: falcon.Request, rule: policies.Rule,
                target: dict[str, Any] | None = None) -> None:
        """Check that the caller satisfies a rule.

        :raises virtco.exception.Forbidden: when the caller does not.
        """
        if not self.may(request, rule, target):
            raise exception.Forbidden(what=rule.name)

    def require_host(self, request: falcon.Request, host: str) -> None:
        """Check that the caller may speak for this host.

        Without tokens only certificates tell hosts apart, and they are seen
        by the distributor alone.

        :raises virtco.exception.Forbidden:
        """
        if self._noauth and self._asks_certificates:
            raise exception.Forbidden(
                what=f'to speak for {host} but at the distributor, by its '
                'certificate')
        self.require(request, policies.SPEAK, {'host': host})

    def who(self, request: falcon.Request) -> str:
        """Return the caller, for the history."""
        if self._noauth:
            return f'somebody at {request.remote_addr}'
        found = self.context(request)
        return str(found.user_name or found.user_id or 'unknown')

    def project(self, request: falcon.Request) -> str | None:
        """Return the caller's project, None without authentication."""
        return None if self._noauth else self.context(request).project_id


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
