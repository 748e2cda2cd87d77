# SPDX-License-Identifier: Apache-2.0

"""Samples of the REST API, against the types that operations declare."""

import json
import pathlib

import msgspec
import pytest

from virtco.api import routes

SAMPLES = json.loads((pathlib.Path(__file__).parents[3]
                      / 'doc/source/api/samples.json').read_text())


@pytest.mark.parametrize('one', routes.OPERATIONS, ids=[
    one.name for one in routes.OPERATIONS])
def test_a_sample_is_of_the_types_of_its_operation(one):
    sample = SAMPLES[one.name]
    assert sample['status'] == one.status
    msgspec.convert(sample['response'], one.answer)
    assert (sample['request']['body'] is None) == (one.body is None)
    if one.body is not None:
        msgspec.convert(sample['request']['body'], one.body)
