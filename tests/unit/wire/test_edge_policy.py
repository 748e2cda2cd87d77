# SPDX-License-Identifier: Apache-2.0

"""Which documents are policies: each field has bounds, each refusal a name."""

import copy
import math

import pytest

from virtco import exception
from virtco.wire import edge_policy

DESTINATION = {'host': 'h1', 'minor': 17, 'weight': 1.0, 'rate_bps': 1e8,
               'ceil_bps': 2e8, 'macs': ['fa:16:3e:00:00:03']}
CLASS = {'coflow_id': 'a', 'name': 'A', 'minor': 16, 'rate_bps': 1e8,
         'ceil_bps': 3e8, 'prio': 2, 'destinations': [DESTINATION]}
FLOW = {'coflow_id': 'a', 'src_vm': 'v', 'src_ip': '10.0.0.1',
        'dst_ip': '10.0.0.2', 'minor': 2, 'dst_port': 5001}
RECEIVED = {'src_ip': 'fd00::1', 'dst_ip': 'fd00::2', 'dst_port': 5002}
LIMIT = {'host': 'h2', 'slot': 1, 'rate_bps': 5e7,
         'macs': ['fa:16:3e:00:00:01']}
UNMANAGED = {'others_bps': 1e7, 'others_macs': ['fa:16:3e:00:00:02'],
             'limits': [LIMIT]}
DOCUMENT = {'host': 'h0', 'generation': 7, 'ttl_s': 60.0, 'egress_bps': 1e9,
            'ingress_bps': 2e9, 'default_rate_bps': 8.0, 'classes': [CLASS],
            'flows': [FLOW], 'received': [RECEIVED], 'unmanaged': UNMANAGED}
CLASS_0 = ('classes', 0)
TO_0 = (*CLASS_0, 'destinations', 0)
LIMIT_0 = ('unmanaged', 'limits', 0)


def changed(*changes):
    """:param changes: (path, value), the value None for a missing field."""
    found = copy.deepcopy(DOCUMENT)
    for path, value in changes:
        inner = found
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
    return found


def read(*changes):
    return edge_policy.EdgePolicy.from_dict(changed(*changes))


def at(policy, path):
    for key in path:
        policy = (policy[key] if isinstance(key, int)
                  else getattr(policy, key))
    return policy


def refused(match, *changes):
    with pytest.raises(exception.PolicyInvalid, match=match):
        read(*changes)


def name(path):
    found = ''
    for key in path:
        found += f'[{key}]' if isinstance(key, int) else f'.{key}'
    return found.lstrip('.')


#: How the limit of a text is told.
TEXT = 'at (least 1 character|most 255 characters)|a string'
#: How the limit of a number is told.
BOUND = 'at (least|most) [0-9]|an? (number|integer)|out of range'
NUMBERS = [
    (('ttl_s',), 0, 604800), (('egress_bps',), 8, 1e13),
    (('ingress_bps',), 8, 1e13), (('default_rate_bps',), 8, None),
    ((*CLASS_0, 'rate_bps'), 0, 1e13), ((*CLASS_0, 'ceil_bps'), 8, 1e13),
    ((*TO_0, 'weight'), 0, 1.000001), ((*TO_0, 'rate_bps'), 0, 1e13),
    ((*TO_0, 'ceil_bps'), 8, 1e13), (('unmanaged', 'others_bps'), 8, 1e13),
    ((*LIMIT_0, 'rate_bps'), 8, 1e13)]
WHOLE = [
    (('generation',), 0, 2 ** 63 - 1),
    ((*CLASS_0, 'minor'), 0x10, 0x6fff), ((*CLASS_0, 'prio'), 0, 7),
    ((*TO_0, 'minor'), 0x10, 0x6fff), (('flows', 0, 'minor'), 2, 0x6fff),
    (('flows', 0, 'dst_port'), 1, 65535),
    (('received', 0, 'dst_port'), 1, 65535), ((*LIMIT_0, 'slot'), 1, 63)]


@pytest.mark.parametrize(('path', 'low', 'high'), NUMBERS,
                         ids=[name(path) for path, *_ in NUMBERS])
def test_numbers_have_bounds(path, low, high):
    for value in (low, high):
        if value is not None:
            assert at(read((path, value)), path) == value
    beyond = [math.nextafter(low, -math.inf), math.nan, math.inf, True, '1',
              None]
    if high is not None:
        beyond.append(math.nextafter(high, math.inf))
    for value in beyond:
        refused(f'{path[-1]}.*{BOUND}', (path, value))


@pytest.mark.parametrize(('path', 'low', 'high'), WHOLE,
                         ids=[name(path) for path, *_ in WHOLE])
def test_whole_numbers_have_bounds(path, low, high):
    # The minors of the class and of its child differ, as they must.
    rest = [((*TO_0, 'minor'), 0x20)] if path == (*CLASS_0, 'minor') else [
        ((*CLASS_0, 'minor'), 0x20), ((*TO_0, 'minor'), high)] if path == (
        'flows', 0, 'minor') else [((*CLASS_0, 'minor'), 0x20)]
    for value in (low, high):
        assert at(read(*rest, (path, value)), path) == value
    beyond = [low - 1, high + 1, low + 0.5, True, str(low)]
    if path[-1] != 'dst_port':
        beyond.append(None)
    for value in beyond:
        refused(f'{path[-1]}.*{BOUND}', *rest, (path, value))


@pytest.mark.parametrize(('path', 'most'), [
    (('classes',), 0x6fff - 0x10 + 1),
    ((*CLASS_0, 'destinations'), 0x6fff - 0x10 + 1),
    (('flows',), 1_000_000), (('received',), 1_000_000),
    (('unmanaged', 'limits'), 63)])
def test_lists_have_bounds(path, most):
    # The list is read, and its first entry refused.
    refused(r'\[0\].*an object', (path, [None] * most))
    refused(f'at most {most} entries', (path, [None] * (most + 1)))
    refused('an array', (path, 'text'))
    assert at(read((path, ()), (('flows',), ())), path) == ()


@pytest.mark.parametrize('path', [('unmanaged', 'others_macs'),
                                  (*LIMIT_0, 'macs'), (*TO_0, 'macs')])
def test_macs_have_bounds(path):
    mac = 'fa:16:3e:00:00:01'
    assert len(at(read((path, [mac] * 1024)), path)) == 1024
    refused('at most 1024 entries', (path, [mac] * 1025))
    refused('an array', (path, mac))
    for wrong in (mac.upper(), mac + ':02', f' {mac}', 5):
        refused('macs.1.*(matching|a string)', (path, [mac, wrong]))


@pytest.mark.parametrize('path', [
    ('host',), (*CLASS_0, 'coflow_id'), (*TO_0, 'host'),
    ('flows', 0, 'coflow_id'), ('flows', 0, 'src_vm'), (*LIMIT_0, 'host')])
def test_texts_have_bounds(path):
    assert at(read((path, 'x' * 255)), path) == 'x' * 255
    for wrong in ('x' * 256, '', None, 5):
        refused(TEXT, (path, wrong))


def test_the_name_of_a_coflow_may_be_empty():
    path = (*CLASS_0, 'name')
    assert at(read((path, '')), path) == ''
    for wrong in ('x' * 256, None, 5):
        refused(TEXT, (path, wrong))


@pytest.mark.parametrize('path', [
    ('flows', 0, 'src_ip'), ('flows', 0, 'dst_ip'),
    ('received', 0, 'src_ip'), ('received', 0, 'dst_ip')])
def test_addresses(path):
    for wrong in ('10.0.0.256', 'fe80::1%eth0', 5, None):
        refused(f'{path[0]}.*{path[-1]}.*(an IPv4 or IPv6 address|matching|'
                'a string)', (path, wrong))
    other = '10.0.0.9' if path[0] == 'received' else 'fd00::9'
    refused(f'{path[0]}.*dst_ip.*the IP version', (path, other))


def test_what_may_be_missing():
    document = changed((('flows', 0, 'dst_port'), None),
                       (('received', 0, 'dst_port'), None),
                       (('unmanaged',), None))
    del document['classes'][0]['destinations'][0]['macs']
    policy = edge_policy.EdgePolicy.from_dict(document)
    assert policy.flows[0].dst_port is policy.received[0].dst_port is None
    assert policy.unmanaged is None
    assert policy.classes[0].destinations[0].macs == ()
    for key in ('classes', 'flows', 'received', 'unmanaged'):
        del document[key]
    assert edge_policy.EdgePolicy.from_dict(document) == (
        edge_policy.EdgePolicy('h0', 7, 60.0, 1e9, 2e9, 8.0))


def test_a_document_is_read_as_it_was_written():
    policy = read()
    assert policy.to_dict() == changed(
        (('classes',), ({**CLASS, 'destinations': (
            {**DESTINATION, 'macs': tuple(DESTINATION['macs'])},)},)),
        (('flows',), (FLOW,)), (('received',), (RECEIVED,)),
        (('unmanaged',), {
            'others_bps': 1e7, 'others_macs': ('fa:16:3e:00:00:02',),
            'limits': ({**LIMIT, 'macs': tuple(LIMIT['macs'])},)}))
    assert edge_policy.EdgePolicy.from_dict(policy.to_dict()) == policy


def test_a_minor_or_slot_is_used_once():
    refused('destinations\\[0\\].minor.*used once', ((*TO_0, 'minor'), 16))
    refused('classes\\[1\\].minor.*used once',
            (('classes',), [CLASS, {**CLASS, 'minor': 17}]))
    second = {**LIMIT, 'slot': 2}
    assert len(read((('unmanaged', 'limits'), [LIMIT, second])
                    ).unmanaged.limits) == 2
    refused('limits\\[1\\].slot.*used once',
            (('unmanaged', 'limits'), [LIMIT, LIMIT]))


def test_a_flow_has_a_class_of_its_coflow_or_none():
    path = 'flows', 0, 'minor'
    assert at(read((path, 17)), path) == 17
    refused('destination of b', (path, 17), (('flows', 0, 'coflow_id'), 'b'))
    # The minor of the class is no one's leaf.
    refused('destination of a', (path, 16))


def test_the_default_rate_is_part_of_the_link():
    rate = 'default_rate_bps',
    assert at(read((rate, 1e9)), rate) == 1e9
    refused('at most egress_bps', (rate, math.nextafter(1e9, math.inf)))


def test_a_refusal_shows_no_more_than_a_line():
    for n, shown in ((158, f'"{"x" * 158}"'), (159, '"' + 'x' * 158 + '…')):
        with pytest.raises(exception.PolicyInvalid) as caught:
            read((('ttl_s',), 'x' * n))
        assert f', got {shown}.' in str(caught.value)
    with pytest.raises(exception.PolicyInvalid, match='document'):
        edge_policy.EdgePolicy.from_dict([])
    refused('^(?!.*document).*unmanaged', (('unmanaged',), []))


def test_constants_that_edge_modules_know():
    assert (edge_policy.ROOT_MINOR, edge_policy.DEFAULT_MINOR,
            edge_policy.FIRST_MINOR, edge_policy.LAST_MINOR,
            edge_policy.PRIOS, edge_policy.MAX_LIMITS,
            edge_policy.MAX_MACS) == (1, 2, 16, 28671, 8, 63, 1024)


def test_a_refusal_names_the_whole_path():
    refused(r'^Policy classes\[0\]: ', (('classes',), [None]))
    refused(r'^Policy classes\[0\]\.destinations\[0\]: ',
            ((*CLASS_0, 'destinations'), [None]))
