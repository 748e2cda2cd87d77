# SPDX-License-Identifier: Apache-2.0

"""What a group has to keep, written down and read again."""

import pytest

from virtco import hints
from virtco.model import snapshot
from virtco.objects import group_rules

ANTI = 'anti-affinity'


def server_group(*rows, policy=ANTI, hosts=(), most=1):
    return group_rules.ServerGroup(policy, rows, hosts, most)


RULES = group_rules.Rules('rack:required', 'pod:preferred:skew=2', (
    server_group(0, 2, hosts=('h7', 'h9'), most=2),
    server_group(1, policy='soft-affinity')))


def test_rules_are_read_as_they_were_written():
    assert group_rules.of_record(RULES.record()) == RULES
    assert group_rules.Rules().record() == ''
    assert group_rules.of_record('') == group_rules.Rules()


def test_a_host_takes_one_where_nobody_says_more():
    found = group_rules.of_record(
        '{"server_groups": [{"policy": "anti-affinity", "rows": [0, 1]}]}')
    assert found.server_groups == (server_group(0, 1, most=1),)


def test_wishes_are_those_of_the_hint():
    assert RULES.wishes == hints.Wishes(
        hints.Wish('rack', True), hints.Wish('pod', skew=2))
    assert RULES.wishes.required == hints.Wishes(hints.Wish('rack', True))
    assert group_rules.Rules().wishes == hints.Wishes()


@pytest.mark.parametrize('wishes, within, spread', [
    (hints.Wishes(), 'rack:required', 'pod:preferred:skew=2'),
    (hints.Wishes(hints.Wish('row')), 'row:preferred',
     'pod:preferred:skew=2'),
    (hints.Wishes(None, hints.Wish('row', True)), 'rack:required',
     'row:required')])
def test_wishes_that_are_not_told_stay(wishes, within, spread):
    found = RULES.asking(wishes)
    assert (found.within, found.spread) == (within, spread)
    assert found.server_groups == RULES.server_groups


def test_a_server_group_that_has_a_row_already_is_the_same():
    grown = RULES.joined(server_group(4, 2, hosts=('h8',), most=3))
    assert set(grown.server_groups) == {
        server_group(0, 2, 4, hosts=('h8',), most=3),
        RULES.server_groups[1]}
    # Of another policy, or of other rows, it is another one.
    for other in (server_group(0, policy='affinity'), server_group(3)):
        assert set(RULES.joined(other).server_groups) == {
            *RULES.server_groups, other}


def test_rows_are_vms_of_the_problem():
    """Own VMs are members, and take no host from each other."""
    problem = snapshot.PlacementProblem((), (), ())
    assert group_rules.constrained(
        problem, (2, 3, 0), RULES.server_groups, {'h9'}).server_groups == (
            snapshot.ServerGroup(
                snapshot.GroupPolicy.ANTI_AFFINITY, (0, 2),
                frozenset({'h7'}), 2),)
    assert group_rules.constrained(
        problem, (1,), RULES.server_groups).server_groups == (
            snapshot.ServerGroup(snapshot.GroupPolicy.SOFT_AFFINITY, (0,)),)
