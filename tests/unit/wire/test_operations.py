# SPDX-License-Identifier: Apache-2.0

"""Documents of the REST API, against those that its callers were told."""

import json
import pathlib

import msgspec

from virtco.api import openapi
from virtco.api import routes

DESCRIBED = pathlib.Path(__file__).parents[3] / 'doc/source/api/openapi.json'


def test_fields_limits_and_operations_are_as_described():
    """Each limit of a field, each status and each example stands there."""
    described = json.loads(DESCRIBED.read_text())
    found = json.loads(openapi.render())
    assert found['components']['schemas'] == described['components']['schemas']
    assert found['paths'] == described['paths']


def test_examples_are_of_their_types():
    for one in routes.OPERATIONS:
        if one.example is not None:
            assert msgspec.json.decode(msgspec.json.encode(one.example),
                                       type=one.body) == one.example
