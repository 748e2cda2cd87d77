# SPDX-License-Identifier: Apache-2.0

"""The API as OpenAPI 3.1, from what it validates bodies by.

``python -m virtco.api.openapi`` prints it; ``doc/source/api/openapi.json`` is
what it printed last.
"""

import inspect
import json
import re
import sys
from typing import Any

import msgspec

from virtco.api import routes
from virtco.api import versions
from virtco.api.schemas import advice
from virtco.api.schemas import coflow
from virtco.api.schemas import host
from virtco.api.schemas import measure
from virtco.api.schemas import placement
from virtco.api.schemas import topology
from virtco.ask import answer
from virtco.ask import request
from virtco.decide import asked
from virtco.wire import edge_policy
from virtco.wire import reports

#: Frozen values, whose schemas are derived from them.
TYPES = [answer.Answer, request.Placement, edge_policy.EdgePolicy,
         reports.Report, reports.Measurement, asked.Request]
BODIES: dict[tuple[str, str], Any] = {
    ('put', '/v1/placements/{instance_uuid}'): request.Placement,
    ('post', '/v1/plans'): placement.PLAN,
    ('post', '/v1/advice'): placement.ADVICE,
    ('post', '/v1/groups/{group}/mapping'): advice.MAPPING,
    ('post', '/v1/coflows'): coflow.REGISTER,
    ('patch', '/v1/coflows/{coflow_id}'): coflow.CHANGE,
    ('post', '/v1/groups/{group}/coflows'): coflow.ANNOUNCE,
    ('patch', '/v1/projects/{project_id}'): coflow.CHANGE_PROJECT,
    ('put', '/v1/hosts/{host}/drain'): host.DRAIN,
    ('put', '/v1/hosts/{host}/report'): reports.Report,
    ('post', '/v1/measurements'): reports.Measurement,
    ('post', '/v1/probes'): asked.Request,
    ('post', '/v1/checks'): measure.CHECK,
    ('patch', '/v1/settings'): coflow.SETTINGS,
    ('put', '/v1/topology'): topology.TOPOLOGY,
    ('post', '/v1/capacity'): topology.CAPACITY,
    ('post', '/v1/notifications'): coflow.NOTIFICATION,
}
ANSWERS = {
    ('put', '/v1/placements/{instance_uuid}'): answer.Answer,
    ('get', '/v1/hosts/{host}/policy'): edge_policy.EdgePolicy}


def document() -> dict[str, Any]:
    _, components = msgspec.json.schema_components(
        TYPES, ref_template='#/components/schemas/{name}')
    for schema in components.values():
        if 'description' in schema:
            # Python 3.13 keeps docstrings without their indentation.
            schema['description'] = inspect.cleandoc(schema['description'])
    return {
        'openapi': '3.1.0',
        'info': {'title': 'VirtCO', 'version': versions.VERSIONS[-1]},
        'paths': {path: {method: _operation(method, path, resource)
                         for method in ('get', 'put', 'post', 'patch',
                                        'delete')
                         if hasattr(resource, f'on_{method}')}
                  for path, resource in routes.RESOURCES.items()},
        'components': {'schemas': components}}


def _operation(method: str, path: str, resource: type) -> dict[str, Any]:
    found: dict[str, Any] = {
        'operationId': f'{method}{resource.__name__}' + (
            'One' if '{' in path else ''),
        'responses': {'default': {'description': 'Done, or an error.'}}}
    names = re.findall(r'{(\w+)}', path)
    if names:
        found['parameters'] = [
            {'name': name, 'in': 'path', 'required': True,
             'schema': {'type': 'string'}} for name in names]
    if (method, path) in BODIES:
        found['requestBody'] = {'required': True, 'content': _content(
            BODIES[method, path])}
    if (method, path) in ANSWERS:
        found['responses']['200'] = {
            'description': 'OK', 'content': _content(ANSWERS[method, path])}
    return found


def _content(schema: Any) -> dict[str, Any]:
    if isinstance(schema, type):
        schema = {'$ref': f'#/components/schemas/{schema.__name__}'}
    return {'application/json': {'schema': schema}}


def render() -> str:
    return json.dumps(document(), indent=1, sort_keys=True) + '\n'


if __name__ == '__main__':
    sys.stdout.write(render())
