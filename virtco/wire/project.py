# SPDX-License-Identifier: Apache-2.0

"""Operators' settings for all coflows of a project."""

from typing import Literal

import msgspec

from virtco.wire import fields
from virtco.wire import operation


class Project(operation.Response, frozen=True, kw_only=True):
    """A project for which something was set, or that owes.

    :ivar project_id: id of the project.
    :ivar priority_class: class of its coflows; the lowest is served first.
    :ivar weight: share of its coflows beside those of others.
    :ivar debt_bytes: sent by its coflows beyond their hints, not yet paid.
    """

    project_id: str
    priority_class: int
    weight: float
    debt_bytes: float


class Projects(operation.Response, frozen=True):
    """A list of projects.

    :ivar projects: in the order of their ids.
    """

    projects: list[Project]


class ProjectChange(operation.Request, frozen=True, kw_only=True):
    """Fields of a project to set; at least one.

    :ivar priority_class: class of the project's coflows.
    :ivar weight: share of the project's coflows.
    :ivar debt_bytes: 0, to forgive the debt.
    """

    priority_class: fields.PriorityClass | msgspec.UnsetType = msgspec.UNSET
    weight: fields.Weight | msgspec.UnsetType = msgspec.UNSET
    debt_bytes: Literal[0] | msgspec.UnsetType = msgspec.UNSET


LIST = operation.Operation(
    'listProjects', 'GET', '/v1/projects', Projects,
    'List the projects for which something was set, or that owe.')
SHOW = operation.Operation(
    'showProject', 'GET', '/v1/projects/{project_id}', Project,
    'Show class, weight and debt of a project.')
CHANGE = operation.Operation(
    'changeProject', 'PATCH', '/v1/projects/{project_id}', Project,
    'Set class or weight of all coflows of a project, or forgive its debt.',
    body=ProjectChange, conflict=operation.OVERTAKEN)
