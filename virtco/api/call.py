# SPDX-License-Identifier: Apache-2.0

"""A request as handlers see it: the caller, and the application's state."""

from collections.abc import Callable
import dataclasses
from typing import Any

import falcon

from virtco import app
from virtco import exception
from virtco.api import context
from virtco.api.policies import Rule
from virtco.wire import fields


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """Request to an operation; its body and parameters are decoded."""

    rooms: app.App
    authorizer: context.Authorizer
    request: falcon.Request

    def may(self, rule: Rule, project_id: str | None = None) -> bool:
        """Tell whether the caller may, of a project where one is named."""
        return self.authorizer.may(
            self.request, rule,
            None if project_id is None else {'project_id': project_id})

    def require(self, rule: Rule, project_id: str | None = None) -> None:
        """Check that the caller satisfies a rule.

        :raises virtco.exception.Forbidden: when the caller does not.
        """
        self.authorizer.require(
            self.request, rule,
            None if project_id is None else {'project_id': project_id})

    def require_host(self, host: str) -> None:
        """Check that the caller may speak for this host.

        :raises virtco.exception.Forbidden: when the caller may not.
        """
        self.authorizer.require_host(self.request, host)

    def who(self) -> str:
        """Name the caller, for the history."""
        return self.authorizer.who(self.request)

    def is_gone(self) -> Callable[[], bool]:
        """Return what tells whether the client closed its connection."""
        found: Callable[[], bool] = self.request.env.get(
            'waitress.client_disconnected', bool)
        return found

    def project(self, query: fields.ProjectQuery, rule: Rule) -> str | None:
        """Find the project that is asked about; None, of operators: all.

        :raises virtco.exception.Forbidden: by the rule.
        """
        project_id = query.project_id
        if project_id is None and not self.may(rule, ''):
            project_id = self.authorizer.project(self.request)
        self.require(rule, project_id or '')
        return project_id

    def own_project(self, project_id: Any, rule: Rule) -> str:
        """Find the project that is named, or else the caller's own.

        :raises virtco.exception.Forbidden: by the rule.
        :raises virtco.exception.Invalid: where there is neither.
        """
        project_id = (project_id or self.authorizer.project(self.request)
                      or '')
        self.require(rule, project_id)
        if not project_id:
            raise exception.Invalid(field='project_id', value=None,
                                    limit='the id of a project')
        return str(project_id)
