# SPDX-License-Identifier: Apache-2.0

"""Pieces that several schemas share."""

from typing import Any

import msgspec

from virtco.wire import fields

ID = msgspec.json.schema(fields.Id)
NAME = msgspec.json.schema(fields.Name)
PROJECT = {'type': 'string', 'minLength': 1, 'maxLength': 255,
           'pattern': r'^[A-Za-z0-9._:@-]+\Z'}
HOST = msgspec.json.schema(fields.Host)
COUNT = msgspec.json.schema(fields.Count)
GENERATION = msgspec.json.schema(fields.Generation)
LINK_RATE = msgspec.json.schema(fields.LinkRate)
_AMOUNT = msgspec.json.schema(fields.Amount)
RESOURCES = {
    'type': 'object',
    'properties': {'vcpus': _AMOUNT, 'memory_mb': _AMOUNT,
                   'disk_gb': _AMOUNT},
    'required': ['vcpus', 'memory_mb', 'disk_gb'],
    'additionalProperties': False}
TEXT = {'type': 'string', 'maxLength': 4096}
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
