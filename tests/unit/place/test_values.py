# SPDX-License-Identifier: Apache-2.0

"""What Nova offers and is told: requests, offers, room, answers."""

import math

from hypothesis import given
from hypothesis import strategies as st
import msgspec
import pytest

from virtco import exception
from virtco.db import codec
from virtco.db import members
from virtco.model import booking
from virtco.place import answer as answers
from virtco.place import newest
from virtco.place import problem
from virtco.place import question as requests
from virtco.place import siblings
from virtco.wire import placement as wire

NONE = {'vcpus': 0, 'memory_mb': 0, 'disk_gb': 0}


def request(flavor=(1, 2, 3), free=(), uuid='vm', **values):
    """:param free: (host, vcpus, memory, disk)."""
    def resources(amounts):
        return dict(zip(NONE, amounts, strict=True))

    return msgspec.convert({
        'project_id': 'p', 'hints': {}, 'flavor': resources(flavor),
        'hosts': [{'host': host, 'free': resources(amounts)}
                  for host, *amounts in free or [('h0', 9, 9, 9)]],
        'instance_uuid': uuid} | values, wire.Placement)


def planned(host='h0', **values):
    return members.Planned(**{
        'group_id': 'g', 'group_name': 'G', 'index': 3, 'state': 'PLANNED',
        'host': host, 'cct_s': 2.0, 'lower_bound_s': 1.0, 'gap': 0.5,
        'method': 'spread', 'bottleneck': 'h1 egress'} | values)


def test_what_a_request_holds():
    one = request((1, 2, 3), [('h0', 4, 5, 6), ('h1', 7, 8, 9)])
    assert requests.vector(one.flavor) == (1, 2, 3)
    assert list(one.offers) == ['h0', 'h1']
    assert requests.free(one) == {'h0': (4, 5, 6), 'h1': (7, 8, 9)}
    assert (one.num_instances, one.unplanned_passes) == (1, 0)


@pytest.mark.parametrize(('field', 'good', 'bad'), [
    ('num_instances', [1, 100_000], [0, 100_001]),
    ('launch_index', [None, 0], [-1]),
    ('display_name', [None, 'x' * 4096], ['x' * 4097]),
    ('hints', [{'k': 'v', 'l': ['x'] * 16},
               {str(i): '' for i in range(1024)}],
     [{'l': ['x'] * 17}, {str(i): '' for i in range(1025)}]),
    ('server_group', [{'policy': 'affinity', 'max_per_host': 1},
                      {'policy': 'soft-anti-affinity',
                       'max_per_host': 10_000}],
     [{'policy': 'affinity', 'max_per_host': 0},
      {'policy': 'affinity', 'max_per_host': 10_001},
      {'policy': 'odd'}]),
    ('hosts', [[{'host': 'h' * 255, 'free': NONE}],
               [{'host': 'h', 'free': NONE}] * 10_000],
     [[], [{'host': '', 'free': NONE}], [{'host': 'h' * 256, 'free': NONE}],
      [{'host': 'h\n', 'free': NONE}],
      [{'host': 'h', 'free': NONE}] * 10_001])])
def test_requests_have_bounds(field, good, bad):
    for value in good:
        request(**{field: value})
    for value in bad:
        with pytest.raises(msgspec.ValidationError):
            request(**{field: value})


def test_the_newest_are_remembered():
    found = newest.Newest(4)
    for number in range(4):
        found.put(number, f'{number}')
    # The first comes again, then the second is the oldest.
    found.put(0, 'new')
    found.put(9, '9')
    assert found.items() == [(2, '2'), (3, '3'), (0, 'new'), (9, '9')]
    assert (found.get(0), found.get(1)) == ('new', None)


def test_answers():
    refused = exception.WishRefused(what='w', why='y', level='rack',
                                    fitting=2, wanted=3, limiting='disk')
    none = answers.neutral('vm', ['h0'], 'because', refused=refused)
    assert (none.status, none.host, none.refused) == ('neutral', None, {
        'level': 'rack', 'fitting': 2, 'wanted': 3, 'limiting': 'disk'})
    assert answers.neutral('vm', [], '').refused is None
    hosts = [str(number) for number in range(300)]
    assert len(answers.ranked(hosts, '')) == answers.MOST_HOSTS == 256
    for value, shown in ((None, None), (math.inf, None), (math.nan, None),
                         (0.0, 0.0), (1.5, 1.5)):
        assert codec.finite(value) == shown


def remembered(order=(), drained=(), digest='d', found=None):
    found = found or siblings.Siblings(lambda: drained)
    found.remember(('p', 'G'), 'g', digest, order)
    return found


def alternates(found, hosts, allowed=None, at='h0'):
    one = found.answer(request(free=[(host, 1, 1, 1) for host in hosts]),
                       planned(at), allowed)
    return [entry.host for entry in one.hosts][1:]


def test_the_answer_of_a_planned_member():
    one = siblings.Siblings().answer(
        request(free=[(host, 1, 1, 1) for host in ('h0', 'h1', 'h2')]),
        planned(), ['h0', 'h1', 'h2'], [('k', 'a note')])
    assert (one.status, one.host, one.row, one.group, one.group_name,
            one.cct_s, one.lower_bound_s, one.gap, one.method,
            one.bottleneck, one.why, one.allowed) == (
        'planned', 'h0', 3, 'g', 'G', 2.0, 1.0, 0.5, 'spread', 'h1 egress',
        'as planned; a note', ['h0', 'h1', 'h2'])
    assert [(h.host, h.rank, h.feasible, h.why) for h in one.hosts] == [
        ('h0', 0, True, 'as planned'), ('h1', 1, True, 'as planned'),
        ('h2', 2, True, 'as planned')]


def test_alternates_come_in_the_order_that_suited_the_first():
    found = remembered(('h3', 'h9', 'h1', 'h0'))
    assert alternates(found, ['h0', 'h1', 'h2', 'h3']) == ['h3', 'h1', 'h2']
    assert alternates(remembered(('h3',), {'h3'}), ['h0', 'h2', 'h3']) == [
        'h2']
    assert alternates(found, ['h0', 'h1'], ['h1', 'h4']) == ['h1', 'h4']
    many = [f'h{number}' for number in range(100)]
    assert alternates(remembered(tuple(reversed(many))), many) == [
        f'h{number}' for number in range(99, 67, -1)]
    assert alternates(remembered(), many) == many[1:33]
    # Of the order twice as many are kept as are named.
    assert alternates(remembered((*many[:63], 'x')), ['a', 'x']) == ['x', 'a']
    assert alternates(remembered((*many[:64], 'x')), ['a', 'x']) == ['a', 'x']


def test_what_is_remembered_of_a_group():
    found = remembered(('h3', 'h1'), digest='d')
    # A later member says neither; it stays.
    remembered(digest='', found=found)
    assert found.expects(('p', 'G'), 'd') and found.expects(('p', 'G'), '')
    assert not found.expects(('p', 'G'), 'e')
    assert not found.expects(('p', 'H'), '')
    assert alternates(found, ['h0', 'h1', 'h3']) == ['h3', 'h1']
    # Another group of that name has nothing of it.
    found.remember(('p', 'G'), 'another', '')
    assert not found.expects(('p', 'G'), 'd')
    assert alternates(found, ['h0', 'h1', 'h3']) == ['h1', 'h3']


def test_the_last_groups_are_remembered():
    found = remembered()
    for number in range(siblings.MOST_GROUPS - 1):
        found.remember(('p', str(number)), 'g', 'd')
    assert found.expects(('p', 'G'), 'd')
    remembered(found=found)
    found.remember(('p', 'more'), 'g', 'd')
    assert found.expects(('p', 'G'), 'd')
    assert not found.expects(('p', '0'), 'd')
    assert (siblings.MOST_GROUPS, siblings.MOST_ALTERNATES) == (1024, 32)


VECTORS = st.tuples(*(st.integers(0, 9).map(float) for _ in NONE))


@given(VECTORS, VECTORS)
def test_vectors(free, demand):
    assert booking.fits(demand, free) == all(map(float.__le__, demand, free))
    assert problem.sum_by_host([('a', free), ('b', free), ('a', demand)]) == {
        'a': tuple(f + d for f, d in zip(free, demand)), 'b': free}


def test_vectors_are_of_the_same_resources():
    with pytest.raises(ValueError):
        problem.sum_by_host([('a', (1.0, 1.0))])


@pytest.mark.parametrize(('made', 'field'), [
    (wire.RankedHost('h', 0), 'host'),
    (answers.neutral('vm', [], ''), 'status'), (request(), 'project_id'),
    (request().flavor, 'vcpus'), (request().hosts[0], 'host'),
    (wire.ServerGroup('affinity'), 'policy')])
def test_values_do_not_change(made, field):
    with pytest.raises(AttributeError):
        setattr(made, field, 'other')


def test_fields_that_are_not_known_are_refused():
    for wrong in ({'hosts': [{'host': 'h', 'free': {**NONE, 'gpus': 1}}]},
                  {'hosts': [{'host': 'h', 'free': NONE, 'odd': 1}]},
                  {'server_group': {'policy': 'affinity', 'odd': 1}}):
        with pytest.raises(msgspec.ValidationError):
            request(**wrong)
