# SPDX-License-Identifier: Apache-2.0

"""The policy document: round trip, and refusal of what makes no sense."""

import copy
import json

from hypothesis import given
from hypothesis import strategies as st
import pytest

from tests.unit.edge import test_tcplan
from virtco import exception
from virtco.wire import edge_policy

DOCUMENT = {
    'host': 'h1', 'generation': 3, 'ttl_s': 60.0, 'egress_bps': 1e8,
    'ingress_bps': 1e8, 'default_rate_bps': 2e6,
    'classes': [{
        'coflow_id': 'c1', 'name': 'C1', 'minor': 16, 'rate_bps': 5e7,
        'ceil_bps': 1e8, 'prio': 0, 'destinations': [
            {'host': 'h2', 'minor': 17, 'weight': 1.0, 'rate_bps': 5e7,
             'ceil_bps': 1e8, 'macs': ['fa:16:3e:00:00:02']}]}],
    'flows': [{'coflow_id': 'c1', 'src_vm': 'v1', 'src_ip': '10.0.0.1',
               'dst_ip': '10.0.0.2', 'minor': 17, 'dst_port': None}],
    'received': [{'src_ip': '10.0.0.2', 'dst_ip': '10.0.0.1',
                  'dst_port': None}],
    'unmanaged': {'others_bps': 2e6, 'others_macs': ['fa:16:3e:00:00:09'],
                  'limits': [{'host': 'h2', 'slot': 1, 'rate_bps': 4e7,
                              'macs': ['fa:16:3e:00:00:01']}]}}


def test_document_reads():
    policy = edge_policy.EdgePolicy.from_dict(DOCUMENT)
    assert policy.classes[0].destinations[0].host == 'h2'
    assert json.loads(json.dumps(policy.to_dict())) == DOCUMENT
    old = {key: value for key, value in DOCUMENT.items()
           if key != 'unmanaged'}
    assert edge_policy.EdgePolicy.from_dict(old).unmanaged is None


def test_a_field_of_another_release_is_ignored():
    other = copy.deepcopy(DOCUMENT)
    other['classes'][0]['colour'] = {'red': 1}
    assert edge_policy.EdgePolicy.from_dict(other) == (
        edge_policy.EdgePolicy.from_dict(DOCUMENT))


@given(test_tcplan.policies())
def test_round_trip_over_json(policy):
    document = json.loads(json.dumps(policy.to_dict()))
    assert edge_policy.EdgePolicy.from_dict(document) == policy


def _changed(path, value):
    document = copy.deepcopy(DOCUMENT)
    target = document
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return document


@pytest.mark.parametrize('path, value, field', [
    (('host',), '', 'host'),
    (('unmanaged', 'others_bps'), 0, 'unmanaged.others_bps'),
    (('unmanaged', 'limits', 0, 'slot'), 64, 'unmanaged.limits[0].slot'),
    (('unmanaged', 'limits'), DOCUMENT['unmanaged']['limits'] * 2,
     'unmanaged.limits[1].slot'),
    (('unmanaged', 'others_macs'), ['fa:16:3e:00:00'],
     'unmanaged.others_macs[0]'),
    (('unmanaged', 'limits', 0, 'macs'), ['x; flush ruleset'],
     'unmanaged.limits[0].macs[0]'),
    (('host',), 7, 'host'),
    (('host',), 'x' * 300, 'host'),
    (('generation',), -1, 'generation'),
    (('generation',), True, 'generation'),
    (('ttl_s',), float('inf'), 'ttl_s'),
    (('egress_bps',), float('nan'), 'egress_bps'),
    (('egress_bps',), 0, 'egress_bps'),
    (('default_rate_bps',), 2e8, 'default_rate_bps'),
    (('classes',), {}, 'classes'),
    (('classes', 0), 'c', 'classes[0]'),
    (('classes', 0, 'minor'), 2, 'classes[0].minor'),
    (('classes', 0, 'minor'), 0x10000, 'classes[0].minor'),
    (('classes', 0, 'minor'), 17, 'classes[0].destinations[0].minor'),
    (('classes', 0, 'prio'), 8, 'classes[0].prio'),
    (('classes', 0, 'rate_bps'), -1, 'classes[0].rate_bps'),
    (('classes', 0, 'rate_bps'), '5', 'classes[0].rate_bps'),
    (('classes', 0, 'destinations', 0, 'weight'), 1.5,
     'classes[0].destinations[0].weight'),
    (('flows', 0, 'minor'), 16, 'flows[0].minor'),
    (('flows', 0, 'minor'), 99, 'flows[0].minor'),
    (('flows', 0, 'coflow_id'), 'c2', 'flows[0].minor'),
    (('flows', 0, 'src_ip'), '10.0.0', 'flows[0].src_ip'),
    (('flows', 0, 'src_ip'), '10.0.0.1; flush ruleset', 'flows[0].src_ip'),
    (('flows', 0, 'src_ip'), 167772161, 'flows[0].src_ip'),
    (('flows', 0, 'dst_ip'), 'fd00::1', 'flows[0].dst_ip'),
    (('flows', 0, 'src_ip'), 'fe80::1%; flush ruleset', 'flows[0].src_ip'),
    (('flows', 0, 'dst_port'), 0, 'flows[0].dst_port'),
    (('flows', 0, 'dst_port'), 65536, 'flows[0].dst_port'),
    (('received', 0, 'src_ip'), 'x', 'received[0].src_ip'),
    (('received', 0, 'dst_ip'), 'fd00::1', 'received[0].dst_ip'),
])
def test_nonsense_is_refused_by_name(path, value, field):
    with pytest.raises(exception.PolicyInvalid) as caught:
        edge_policy.EdgePolicy.from_dict(_changed(path, value))
    assert caught.value.kwargs['field'] == field


@pytest.mark.parametrize('path, value', [
    (('host',), 'x' * 255), (('generation',), 0),
    (('generation',), 2 ** 63 - 1), (('ttl_s',), 0.0),
    (('ttl_s',), 7 * 86400.0), (('ingress_bps',), 8), (('egress_bps',), 1e13),
    (('default_rate_bps',), 1e8),
    (('classes', 0, 'minor'), edge_policy.LAST_MINOR),
    (('classes', 0, 'minor'), 0x10), (('classes', 0, 'prio'), 7),
    (('classes', 0, 'rate_bps'), 0.0), (('classes', 0, 'name'), ''),
    (('classes', 0, 'destinations', 0, 'weight'), 0.0),
    (('flows', 0, 'minor'), edge_policy.DEFAULT_MINOR),
    (('flows', 0, 'dst_port'), 1), (('flows', 0, 'dst_port'), 65535)])
def test_limits_themselves_are_taken(path, value):
    assert edge_policy.EdgePolicy.from_dict(_changed(path, value))


@pytest.mark.parametrize('path, value, field', [
    (('host',), 'x' * 256, 'host'), (('generation',), 2 ** 63, 'generation'),
    (('ttl_s',), 7 * 86400.1, 'ttl_s'), (('ttl_s',), -1e-9, 'ttl_s'),
    (('egress_bps',), 7.9, 'egress_bps'),
    (('ingress_bps',), 1.1e13, 'ingress_bps'),
    (('default_rate_bps',), 1e8 + 1, 'default_rate_bps'),
    (('classes', 0, 'minor'), 0xf, 'classes[0].minor'),
    (('classes', 0, 'minor'), edge_policy.LAST_MINOR + 1, 'classes[0].minor'),
    (('classes', 0, 'prio'), -1, 'classes[0].prio'),
    (('classes', 0, 'ceil_bps'), 7.9, 'classes[0].ceil_bps'),
    (('flows', 0, 'minor'), 1, 'flows[0].minor'),
    (('flows', 0, 'src_vm'), '', 'flows[0].src_vm'),
    (('flows', 0, 'dst_port'), True, 'flows[0].dst_port')])
def test_just_beyond_a_limit_is_refused(path, value, field):
    with pytest.raises(exception.PolicyInvalid) as caught:
        edge_policy.EdgePolicy.from_dict(_changed(path, value))
    assert caught.value.kwargs['field'] == field


def test_what_is_shown_of_a_value_is_short():
    for length, shown in ((158, 158 * 'x' + '"'), (159, 158 * 'x' + '…'),
                          (10_000, 158 * 'x' + '…')):
        with pytest.raises(exception.PolicyInvalid) as caught:
            edge_policy.EdgePolicy.from_dict(
                _changed(('flows', 0, 'src_ip'), 'x' * length))
        assert caught.value.kwargs['value'] == '"' + shown


@pytest.mark.parametrize('document', [None, [], 'policy', 3, {}])
def test_something_else_is_refused(document):
    with pytest.raises(exception.PolicyInvalid):
        edge_policy.EdgePolicy.from_dict(document)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5)
    | st.integers(), lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8)


@given(st.sampled_from([
    ('host',), ('classes',), ('flows',), ('classes', 0),
    ('classes', 0, 'destinations'), ('flows', 0), ('flows', 0, 'src_ip'),
    ('classes', 0, 'minor')]), JSON)
def test_no_document_raises_anything_else(path, value):
    try:
        edge_policy.EdgePolicy.from_dict(_changed(path, value))
    except exception.PolicyInvalid:
        pass
