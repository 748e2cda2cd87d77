# SPDX-License-Identifier: Apache-2.0

"""Bounds of the traffic that measures a path."""

import msgspec
import pytest

from virtco import decoding
from virtco import exception
from virtco.wire import probe_order

TRAFFIC = decoding.Decoder(probe_order.Traffic)


@pytest.mark.parametrize('traffic', [
    probe_order.Train(1, 2, 64), probe_order.Train(1000, 5000, 8972),
    probe_order.Bulk(1e-9, 1, 0.001), probe_order.Bulk(10.0, 2 ** 28, 1.0)])
def test_traffic_may_reach_its_bounds(traffic):
    assert TRAFFIC.decode(msgspec.json.encode(traffic)) == traffic


@pytest.mark.parametrize('field, value', [
    ('bursts', 0), ('bursts', 1001), ('bursts', True), ('packets', 1),
    ('packets', 5001), ('packet_bytes', 63), ('packet_bytes', 8973),
    ('lasts_s', 0.0), ('lasts_s', 10.01), ('lasts_s', True),
    ('size_bytes', 0), ('size_bytes', 2 ** 28 + 1), ('size_bytes', 1.5),
    ('window_s', 0.0009), ('window_s', 1.01), ('window_s', '1')])
def test_traffic_beyond_its_bounds_is_named(field, value):
    traffic = {'op': 'bulk', 'lasts_s': 1.0} if field in (
        probe_order.Bulk.__struct_fields__) else {
        'op': 'train', 'bursts': 1, 'packets': 2, 'packet_bytes': 64}
    with pytest.raises(exception.Invalid, match=f'^{field}: expected'):
        TRAFFIC.convert(traffic | {field: value})


def test_payload_of_a_train():
    assert probe_order.Train(2, 3, 100).size_bytes == 600
