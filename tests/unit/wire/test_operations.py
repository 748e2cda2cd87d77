# SPDX-License-Identifier: Apache-2.0

"""Samples of the REST API, against the types that operations declare."""

import json
import pathlib

import msgspec
import pytest

from virtco.wire import fields
from virtco.wire import operations
from virtco.wire import probe

SAMPLES = json.loads((pathlib.Path(__file__).parents[3]
                      / 'doc/source/api/samples.json').read_text())


@pytest.mark.parametrize('one', operations.OPERATIONS, ids=[
    one.name for one in operations.OPERATIONS])
def test_a_sample_is_of_the_types_of_its_operation(one):
    sample = SAMPLES[one.name]
    assert sample['status'] == one.status
    msgspec.convert(sample['response'], one.answer)
    assert (sample['request']['body'] is None) == (one.body is None)
    if one.body is not None:
        msgspec.convert(sample['request']['body'], one.body)


def test_an_order_of_measurements_has_defaults_and_limits():
    order = msgspec.convert({'pairs': [['a', 'b']]}, probe.ProbeRequest)
    assert (order.bursts, order.packets, order.lasts_s) == (10, 200, 3.0)
    for field, most in (('bursts', 1000), ('packets', 5000),
                        ('packet_bytes', 8972), ('lasts_s', 10)):
        body = {'pairs': [['a', 'b']], field: most}
        assert getattr(msgspec.convert(body, probe.ProbeRequest), field) == (
            most)
        with pytest.raises(msgspec.ValidationError, match=field):
            msgspec.convert(body | {field: most + 1}, probe.ProbeRequest)


def test_a_weight_has_bounds():
    for weight in (1e-6, 1e6):
        assert msgspec.convert(weight, fields.Weight) == weight
    for weight in (0.99e-6, 1e6 + 0.5):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(weight, fields.Weight)
