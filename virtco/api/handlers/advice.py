# SPDX-License-Identifier: Apache-2.0

"""``/v1/groups/{group}/…``: advice for its tenant."""

import math
from typing import Any

import falcon

from virtco import app
from virtco import exception
from virtco.api import context
from virtco.api import media
from virtco.api.handlers import coflows
from virtco.api.policies import advice as rules
from virtco.api.policies import operator as operator_rules
from virtco.api.schemas import advice as schema
from virtco.know import advice
from virtco.know import clusters

OPERATIONS = ('broadcast', 'reduce')


class Tree:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._advice = rooms.know.advice
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request, response: falcon.Response,
               group: str) -> None:
        """Of a message of ``size_bytes`` from or to the member ``root``."""
        operation = request.get_param('operation', default=OPERATIONS[0])
        if operation not in OPERATIONS:
            raise exception.Invalid(field='operation', value=operation,
                                    limit='one of ' + ', '.join(OPERATIONS))
        root = request.get_param_as_int('root', min_value=0, default=0)
        size_bytes = request.get_param_as_float(
            'size_bytes', min_value=1, max_value=schema.MOST_BYTES,
            default=advice.SIZE_BYTES)
        if math.isnan(size_bytes):
            raise exception.Invalid(field='size_bytes', value='NaN',
                                    limit='a number of bytes')
        project_id = coflows.project(request, self._authorizer, rules.ADVISE)
        response.media = _seen(self._authorizer, request, self._advice.tree(
            project_id, group, root, size_bytes, operation == 'reduce',
            request.get_param('matrix', default=advice.BASES[0])))


class Mapping:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._advice = rooms.know.advice
        self._authorizer = authorizer

    def on_post(self, request: falcon.Request, response: falcon.Response,
                group: str) -> None:
        """Of the ranks of ``tm``, of NCCL's all-reduce, or of the hint."""
        body = media.read(request, schema.MAPPING)
        project_id = coflows.project(request, self._authorizer, rules.ADVISE)
        response.media = _seen(
            self._authorizer, request, self._advice.mapping(
                project_id, group, body.get('tm'),
                body.get('matrix', advice.BASES[0]),
                body.get('all_reduce_bytes')))


class Clusters:
    def __init__(self, rooms: app.App, authorizer: context.Authorizer):
        self._clusters = rooms.know.clusters
        self._authorizer = authorizer

    def on_get(self, request: falcon.Request, response: falcon.Response,
               group: str) -> None:
        """Which members share a rack or a host, by ids of no meaning."""
        response.media = self._clusters.show(
            coflows.project(request, self._authorizer, rules.CLUSTERS),
            group, request.get_param('level', default=clusters.LEVELS[0]))


def _seen(authorizer: context.Authorizer, request: falcon.Request,
          found: dict[str, Any]) -> dict[str, Any]:
    """What the caller may know: hypervisors are the operators' business."""
    if authorizer.may(request, operator_rules.HOSTS):
        return found
    return found | {'members': [member | {'host': None}
                                for member in found['members']]}
