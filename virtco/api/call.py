# SPDX-License-Identifier: Apache-2.0

"""A request as handlers see it: the caller, and the application's state."""

from collections.abc import Callable
import dataclasses
from typing import Any

import falcon
from oslo_context import context as oslo_context

from virtco import app
from virtco import exception
from virtco.api import context
from virtco.api import policies
from virtco.api.policies import Rule
from virtco.wire import fields


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """Request to an operation; its body and parameters are decoded."""

    rooms: app.App
    authorizer: context.Authorizer
    request: falcon.Request

    @property
    def caller(self) -> oslo_context.RequestContext:
        """User, project and roles of the sender, from keystone's headers."""
        return oslo_context.RequestContext.from_environ(self.request.env)

    def may(self, rule: Rule, **target: str) -> bool:
        """Tell whether the caller may, to a target where one is named."""
        return self.authorizer.is_open or self.authorizer.may(
            self.caller, rule, target)

    def require(self, rule: Rule, **target: str) -> None:
        """Check that the caller satisfies a rule.

        :raises virtco.exception.Forbidden: when the caller does not.
        """
        if not self.may(rule, **target):
            raise exception.Forbidden(what=rule.name)

    def require_host(self, host: str) -> None:
        """Check that the caller may speak for this host.

        Without tokens only certificates tell hosts apart, and they are seen
        by the distributor alone.

        :raises virtco.exception.Forbidden: when the caller may not.
        """
        if self.authorizer.is_open and self.authorizer.asks_certificates:
            raise exception.Forbidden(
                what=f'to speak for {host} but at the distributor, by its '
                'certificate')
        self.require(policies.SPEAK, host=host)

    def who(self) -> str:
        """Name the caller, for the history."""
        if self.authorizer.is_open:
            return f'somebody at {self.request.remote_addr}'
        caller = self.caller
        return str(caller.user_name or caller.user_id or 'unknown')

    def callers_project(self) -> str:
        """Return the caller's project, empty without authentication."""
        return '' if self.authorizer.is_open else self.caller.project_id or ''

    def is_gone(self) -> Callable[[], bool]:
        """Return a function that tells whether the client has closed."""
        found: Callable[[], bool] = self.request.env.get(
            'waitress.client_disconnected', bool)
        return found

    def project(self, query: fields.ProjectQuery, rule: Rule) -> str | None:
        """Find the project that is asked about; None, of operators: all.

        :raises virtco.exception.Forbidden: by the rule.
        """
        project_id = query.project_id
        if project_id is None and not self.may(rule, project_id=''):
            project_id = self.callers_project()
        self.require(rule, project_id=project_id or '')
        return project_id

    def own_project(self, project_id: Any, rule: Rule) -> str:
        """Find the project that is named, or else the caller's own.

        :raises virtco.exception.Forbidden: by the rule.
        :raises virtco.exception.Invalid: where there is neither.
        """
        project_id = project_id or self.callers_project()
        self.require(rule, project_id=project_id)
        if not project_id:
            raise exception.Invalid(field='project_id', value=None,
                                    limit='the id of a project')
        return str(project_id)
