# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Pieces that several schemas share."""

from typing import Any

ID = {'type': 'string', 'minLength': 1, 'maxLength': 36,
      'pattern': r'^[A-Za-z0-9._:-]+\Z'}
NAME = {'type': 'string', 'minLength': 1, 'maxLength': 255}
PROJECT = {'type': 'string', 'minLength': 1, 'maxLength': 255,
           'pattern': r'^[A-Za-z0-9._:@-]+\Z'}
HOST_PATTERN = r'^[A-Za-z0-9._:@-]+\Z'
HOST = {'type': 'string', 'minLength': 1, 'maxLength': 255,
        'pattern': HOST_PATTERN}
TEXT = {'type': 'string', 'maxLength': 4096}
ADDRESS = {'type': 'string', 'minLength': 2, 'maxLength': 45,
           'pattern': r'^[0-9A-Fa-f.:]+\Z'}
COUNT = {'type': 'integer', 'minimum': 0, 'maximum': 2 ** 31 - 1}
GENERATION = {'type': 'integer', 'minimum': 0, 'maximum': 2 ** 62}
AMOUNT = {'type': 'number', 'minimum': 0, 'maximum': 1e15}
BYTES = {'type': 'number', 'minimum': 0, 'maximum': 1e21}
RATE = {'type': 'number', 'minimum': 0, 'maximum': 1e15}
LINK_RATE = {'type': 'number', 'exclusiveMinimum': 0, 'maximum': 1e15}
PORT = {'type': 'integer', 'minimum': 1, 'maximum': 65535}
RESOURCES = {
    'type': 'object',
    'properties': {'vcpus': AMOUNT, 'memory_mb': AMOUNT, 'disk_gb': AMOUNT},
    'required': ['vcpus', 'memory_mb', 'disk_gb'],
    'additionalProperties': False}
# A matrix in any form of the hint; virtco.hint_matrix reads it.
MATRIX = {'type': ['string', 'array', 'object']}


def body(properties: dict[str, Any], required: list[str] | None = None,
         extra: bool = False) -> dict[str, Any]:
    """An object; unknown fields are an error unless ``extra``."""
    return {'type': 'object', 'properties': properties,
            'required': list(properties) if required is None else required,
            'additionalProperties': extra}


def listed(items: dict[str, Any], most: int = 10_000) -> dict[str, Any]:
    return {'type': 'array', 'items': items, 'maxItems': most}


def nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {'anyOf': [{'type': 'null'}, schema]}
