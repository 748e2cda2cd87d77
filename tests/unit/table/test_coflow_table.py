# SPDX-License-Identifier: Apache-2.0

"""The coflow table: rates fit, numbers stay, entries are unambiguous."""

import dataclasses
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from tests.unit import rows
from tests.unit.table import objects
from tests.unit.table import ports as made_ports
from virtco import scheduling
from virtco.model import live
from virtco.table import coflow_table
from virtco.table import host_policies
from virtco.table import layouts
from virtco.wire import edge_policy

HOSTS = ['h0', 'h1', 'h2']
EGRESS_BPS, INGRESS_BPS = 1e8, 1.5e8


def link(host):
    return coflow_table.Link(host, EGRESS_BPS, INGRESS_BPS, 0.02 * EGRESS_BPS)


LINKS = [link(host) for host in HOSTS]


def vm_flow(src, dst, size_bytes=1e6, src_vm=None, **kwargs):
    return coflow_table.VmFlow(
        src_vm=src_vm or f'vm-{src}', src_host=src,
        src_ips=(f'10.0.0.{HOSTS.index(src)}',), dst_host=dst,
        dst_ips=(f'10.0.0.{HOSTS.index(dst)}',), **kwargs), size_bytes


@dataclasses.dataclass
class Case:
    """A coflow of the table, and what it has left per pair of hosts."""

    coflow_id: str
    table: coflow_table.TableCoflow
    left: dict

    @property
    def bytes_left(self):
        return np.array([self.left[pair] for pair in self.table.pairs])


def table_coflow(name, *flows, dst_port=None):
    left = {}
    for flow, size_bytes in flows:
        pair = flow.src_host, flow.dst_host
        left[pair] = left.get(pair, 0) + size_bytes
    return Case(name, coflow_table.TableCoflow(
        name, name.upper(), [flow for flow, _size in flows
                             if flow.src_host != flow.dst_host], dst_port,
        live.Pairs(pair for pair in left if pair[0] != pair[1])), left)


def schedule(coflows):
    ports = rows.port_columns((h, 0.98 * EGRESS_BPS, 0.98 * INGRESS_BPS)
                              for h in HOSTS)
    return scheduling.schedule(
        [live.LiveCoflow(c.coflow_id, live.Flows(c.table.pairs, c.bytes_left))
         for c in coflows], ports, now_s=0)


@dataclasses.dataclass
class Made:
    """The policies of all hosts, and what they were made from."""

    schedule: live.Schedule
    coflows: list
    minors: dict
    found: host_policies.HostPolicies
    options: host_policies.Options
    borrows: bool

    @property
    def changed(self):
        return self.found.changed

    @property
    def policies(self):
        return {host: made.policy()
                for host, made in self.found.of_host.items()}

    def by_objects(self):
        return objects.policies(
            self.schedule, [c.table for c in self.coflows],
            {c.coflow_id: c.left for c in self.coflows}, LINKS, self.minors,
            self.options, self.borrows)


def make(coflows, borrows=False, minors=None, protect=False, grace_s=10,
         before=None, tolerance=0.0):
    """Make all policies, of layouts of their own.

    :param borrows: whether classes may use the link.
    :param before: those that the hosts were told.
    """
    planned = schedule(coflows)
    ranks = {c.coflow_id: c.rank for c in planned.coflows}
    made = layouts.lay_out(
        LINKS, [c.table for c in coflows], minors or {}, ranks, 0, grace_s,
        protect=protect)
    minors = {layout.host: layout.minors for layout in made.of_link}
    options = host_policies.Options()
    return Made(planned, coflows, minors, host_policies.update(
        made, planned, {c.coflow_id: c.bytes_left for c in coflows}, ranks,
        options, tolerance, before and before.found,
        lend=made_ports.lending(made, ranks) if borrows else None),
        options, borrows)


def build(coflows, borrows=False, minors=None):
    made = make(coflows, borrows, minors)
    return made.policies, made.minors


flows = st.builds(
    lambda src, dst, size: vm_flow(src, dst, size),
    st.sampled_from(HOSTS), st.sampled_from(HOSTS),
    st.floats(1, 1e12))
coflow_lists = st.lists(
    st.lists(flows, min_size=1, max_size=6), max_size=14).map(
        lambda found: [table_coflow(f'c{i}', *some)
                       for i, some in enumerate(found)])


@settings(deadline=None)
@given(coflow_lists, st.booleans())
def test_a_host_is_never_over_committed(coflows, borrows):
    policies, _minors = build(coflows, borrows)
    for policy in policies.values():
        total = sum(c.rate_bps for c in policy.classes)
        assert total <= (policy.egress_bps
                         - policy.default_rate_bps) * (1 + 1e-9)
        for one in policy.classes:
            assert math.isclose(sum(d.weight for d in one.destinations), 1)
            assert math.isclose(sum(d.rate_bps for d in one.destinations),
                                one.rate_bps)
            assert 0 < one.rate_bps <= one.ceil_bps * (1 + 1e-9)
            assert one.ceil_bps <= policy.egress_bps
            for child in one.destinations:
                assert child.rate_bps > 0
                assert child.host != policy.host


@settings(deadline=None, max_examples=60)
@given(coflow_lists, coflow_lists, st.booleans(),
       st.lists(st.integers(1, 200), max_size=14))
def test_policies_say_what_objects_say(coflows, others, borrows, percents):
    """The arrays are nothing but a faster way to the same documents."""
    first = make(coflows, borrows)
    moved = [dataclasses.replace(one, left={
        pair: size * percent / 100 for pair, size in one.left.items()})
        for one, percent in zip(coflows, percents + [100] * 14)]
    expected = first.by_objects()
    for host, policy in first.policies.items():
        assert flat(policy) == pytest.approx(flat(expected[host]), rel=1e-9)
    for then in (coflows, moved, others):
        second = make(then, borrows, first.minors)
        news = second.by_objects()
        # An odd tolerance, lest a difference is just as large.
        for tolerance in (0, 0.031415):
            changed = make(then, borrows, first.minors, before=first,
                           tolerance=tolerance).changed
            for host in HOSTS:
                assert (host not in changed) is objects.is_close(
                    expected[host] if tolerance else first.policies[host],
                    news[host] if tolerance else second.policies[host],
                    tolerance)


def flat(policy):
    """A document as one mapping, whose numbers can be compared."""
    return {f'{path}': value for path, value in leaves('', policy.to_dict())}


def leaves(path, value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(f'{path}.{key}', inner)
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from leaves(f'{path}[{index}]', inner)
    elif isinstance(value, (int, float)):
        yield f'{path}', value
    else:
        yield f'{path}={value}', 0


@settings(deadline=None)
@given(coflow_lists)
def test_the_edge_takes_every_document(coflows):
    policies, _minors = build(coflows)
    for policy in policies.values():
        assert edge_policy.EdgePolicy.from_dict(policy.to_dict()) == policy


@settings(deadline=None)
@given(coflow_lists)
def test_minors_are_unique_and_stay(coflows):
    policies, minors = build(coflows)
    again, _minors = build(coflows[1:], minors=minors)
    for host, policy in policies.items():
        numbers = [c.minor for c in policy.classes] + [
            d.minor for c in policy.classes for d in c.destinations]
        assert len(set(numbers)) == len(numbers)
        assert all(n >= coflow_table.FIRST_MINOR for n in numbers)
        before = {c.coflow_id: c.minor for c in policy.classes}
        for one in again[host].classes:
            assert before[one.coflow_id] == one.minor


def test_a_minor_is_free_again_after_the_grace():
    minors = coflow_table.Minors().assign(['a', 'b'], 0, 10)
    assert minors.taken == {'a': 0x10, 'b': 0x11}
    soon = minors.assign(['b', 'c'], 5, 10)
    assert soon.taken == {'a': 0x10, 'b': 0x11, 'c': 0x12}
    # Nobody knows of a need between the two calls, so it may have been.
    assert 'a' in soon.assign(['b', 'c'], 15, 10).taken
    late = soon.assign(['b', 'c', 'd'], 16, 10)
    assert late.taken == {'b': 0x11, 'c': 0x12, 'd': 0x10}
    again = soon.assign(['a', 'b'], 14, 10).assign(['b'], 20, 10)
    assert again.assign(['b'], 29, 10).taken['a'] == 0x10


def test_more_coflows_than_minors_leave_the_last_in_the_default_class():
    keys = [str(i) for i in range(coflow_table.LAST_MINOR)]
    taken = coflow_table.Minors().assign(keys, 0, 10).taken
    assert max(taken.values()) == coflow_table.LAST_MINOR
    assert '0' in taken
    assert keys[-1] not in taken


def test_traffic_inside_a_host_has_no_class():
    policies, _minors = build([table_coflow('a', vm_flow('h0', 'h0'),
                                            vm_flow('h1', 'h0'))])
    assert policies['h0'].classes == ()
    assert [e.src_vm for e in policies['h1'].flows] == ['vm-h1']


def test_a_pair_belongs_to_the_coflow_served_first():
    small = table_coflow('small', vm_flow('h0', 'h1', 1e6))
    large = table_coflow('large', vm_flow('h0', 'h1', 1e9))
    policies, _minors = build([large, small])
    assert [(e.coflow_id, e.dst_port) for e in policies['h0'].flows] == [
        ('small', None)]


def test_ports_tell_coflows_over_one_pair_apart():
    first = table_coflow('a', vm_flow('h0', 'h1'), dst_port=5001)
    second = table_coflow('b', vm_flow('h0', 'h1'), dst_port=5002)
    policies, _minors = build([first, second])
    assert {(e.coflow_id, e.dst_port) for e in policies['h0'].flows} == {
        ('a', 5001), ('b', 5002)}


def test_addresses_of_two_families_do_not_meet():
    flow = coflow_table.VmFlow(
        'v', 'h0', ('10.0.0.1', 'fd00::1'), 'h1', ('fd00::2', '10.0.0.2'))
    policies, _minors = build([table_coflow('a', (flow, 1e6))])
    assert {(e.src_ip, e.dst_ip) for e in policies['h0'].flows} == {
        ('10.0.0.1', '10.0.0.2'), ('fd00::1', 'fd00::2')}


def test_a_class_has_the_ethernet_addresses_of_its_receivers():
    """None where one is not known, or there are too many; others are news."""
    def flow(dst, *macs, src='h0'):
        return vm_flow(src, dst, dst_macs=macs)

    def to(made, host='h0'):
        (one,) = made.policies[host].classes
        return {child.host: child.macs for child in one.destinations}

    made = make([table_coflow('a', flow('h1', 'm2', 'm1'), flow('h1', 'm3'),
                              flow('h2', 'm4'), flow('h2'))])
    assert to(made) == {'h1': ('m1', 'm2', 'm3'), 'h2': ()}
    many = tuple(f'm{number}' for number in range(1024))
    for macs, expected in ((many, len(many)), ((*many, 'm'), 0)):
        found = to(make([table_coflow('a', flow('h1', *macs))]))
        assert len(found['h1']) == expected
    first = make([table_coflow('a', flow('h1', 'm1'),
                               flow('h1', 'm1', src='h2'))])
    assert to(first) == to(first, 'h2') == {'h1': ('m1',)}
    for mac in 'm1', 'm2':
        again = make([table_coflow('a', flow('h1', mac),
                                   flow('h1', mac, src='h2'))],
                     minors=first.minors, before=first)
        assert {*again.changed} == ({'h0', 'h2'} if mac == 'm2' else set())


def test_entries_are_made_anew_when_minors_change_only():
    table = table_coflow('a', vm_flow('h0', 'h1'), vm_flow('h0', 'h2')).table
    first = table.entries('h0', {'h1': 5})
    assert [entry.minor for entry in first.values()] == [5]
    assert table.entries('h0', {'h1': 5}) is first
    for minors in {'h1': 6}, {'h1': 6, 'h2': 7}, {}:
        assert [entry.minor for entry in table.entries(
            'h0', minors).values()] == list(minors.values())


def test_weights_follow_what_is_left_to_each_host():
    policies, _minors = build([table_coflow(
        'a', vm_flow('h0', 'h1', 25e6), vm_flow('h0', 'h2', 5e6))])
    (one,) = policies['h0'].classes
    assert {d.host: round(d.weight, 3) for d in one.destinations} == {
        'h1': 0.833, 'h2': 0.167}
    assert one.ceil_bps == one.rate_bps


def test_classes_that_borrow_may_use_the_link():
    policies, _minors = build(
        [table_coflow('a', vm_flow('h0', 'h1'))], borrows=True)
    (one,) = policies['h0'].classes
    assert one.ceil_bps == one.destinations[0].ceil_bps == EGRESS_BPS


def test_places_beyond_the_last_prio_share_it():
    policies, _minors = build([
        table_coflow(f'c{i:02}', vm_flow('h0', 'h1', 1e6 * (i + 1)))
        for i in range(10)])
    prios = [c.prio for c in policies['h0'].classes]
    assert prios == [0, 1, 2, 3, 4, 5, 6, 7, 7, 7]


def test_close_policies_are_not_news():
    near = [table_coflow('a', vm_flow('h0', 'h1', 25e6),
                         vm_flow('h0', 'h2', 5e6))]
    moved = [table_coflow('a', vm_flow('h0', 'h1', 24.9e6),
                          vm_flow('h0', 'h2', 5e6))]
    other = [table_coflow('a', vm_flow('h0', 'h1', 5e6),
                          vm_flow('h0', 'h2', 25e6))]
    first = make(near)
    for coflows, expected in ((near, True), (moved, True), (other, False),
                              ([], False)):
        again = make(coflows, minors=first.minors, before=first,
                     tolerance=0.03)
        assert ('h0' not in again.changed) is expected
    assert 'h0' in make(moved, minors=first.minors, before=first).changed


@pytest.mark.parametrize('field', ['egress_bps', 'ingress_bps',
                                   'default_rate_bps'])
def test_another_speed_of_the_link_is_news(field):
    made = make([table_coflow('a', vm_flow('h0', 'h1'))]).found.of_host['h0']
    for factor, expected in ((1.0, True), (1.02, True), (1.1, False),
                             (0.9, False)):
        again = dataclasses.replace(made, link=dataclasses.replace(
            made.link, **{field: factor * getattr(made.link, field)}))
        assert made.is_close(again, 0.03) is expected


def test_being_allowed_to_borrow_is_news():
    coflows = [table_coflow('a', vm_flow('h0', 'h1'))]
    before = make(coflows)
    after = make(coflows, True, before.minors, before=before, tolerance=0.1)
    assert 'h0' in after.changed


@pytest.mark.parametrize('field', ['ingress_bps', 'default_rate_bps', ''])
def test_a_link_of_another_speed_alone_changes_its_hosts_policy(field):
    """No rate of a class depends on what arrives."""
    coflows = [table_coflow('a', vm_flow('h0', 'h1'), vm_flow('h1', 'h2'))]
    planned, left = schedule(coflows), {'a': coflows[0].bytes_left}
    ranks = {'a': 0}

    def update(links, before=None, borrows=False):
        laid = layouts.lay_out(
            links, [coflows[0].table], {} if before is None else {
                one.host: one.minors for one in before.layouts.of_link},
            ranks, 0, 10, before=before and before.layouts)
        return host_policies.update(
            laid, planned, left, ranks, tolerance=0.01, before=before,
            lend=made_ports.lending(laid, ranks) if borrows else None)

    first = update(LINKS)
    assert set(first.changed) == set(HOSTS)
    links = [LINKS[0], dataclasses.replace(LINKS[1], **(
        {field: 0.5 * getattr(LINKS[1], field)} if field else {})), LINKS[2]]
    again = update(links, before=first)
    assert again.changed == (('h1',) if field else ())
    assert not field or again.of_host['h1'].policy() != (
        first.of_host['h1'].policy())
    # Those that may use the whole link have other ceils.
    borrowing = update(links, again, borrows=True)
    assert set(borrowing.changed) >= {'h0', 'h1'}


def test_whose_a_pair_is_is_news():
    def sizes(first_bytes):
        return [table_coflow('a', vm_flow('h0', 'h1', first_bytes)),
                table_coflow('b', vm_flow('h0', 'h1', 1e6)),
                *(table_coflow(f'z{i}', vm_flow('h2', 'h1', 10 + i))
                  for i in range(8))]
    before = make(sizes(2e6))
    after = make(sizes(5e5), minors=before.minors, before=before,
                 tolerance=math.inf)
    assert before.policies['h0'].flows[0].coflow_id == 'b'
    assert after.policies['h0'].flows[0].coflow_id == 'a'
    assert 'h0' in after.changed


def test_receivers_are_told_when_they_want_to_know():
    coflows = [table_coflow('a', vm_flow('h1', 'h2'), dst_port=5001),
               table_coflow('b', vm_flow('h2', 'h1'), vm_flow('h2', 'h2'))]
    quiet = make(coflows)
    assert not any(policy.received for policy in quiet.policies.values())
    told = make(coflows, protect=True, minors=quiet.minors, before=quiet,
                tolerance=0.1)
    one, two = f'10.0.0.{HOSTS.index("h1")}', f'10.0.0.{HOSTS.index("h2")}'
    assert told.policies['h2'].received == (
        edge_policy.ReceivedPair(one, two, 5001),)
    assert told.policies['h1'].received == (
        edge_policy.ReceivedPair(two, one),)
    assert told.changed == ('h1', 'h2')


def test_without_classes_every_pair_is_counted_in_the_default_class():
    first = table_coflow('a', vm_flow('h0', 'h1'), vm_flow('h1', 'h2'))
    # Of two coflows over the same pair the first has the entry.
    second = table_coflow('b', vm_flow('h0', 'h1'), vm_flow('h0', 'h2'))
    ranks = {'a': 0, 'b': 1}
    made = layouts.lay_out(
        LINKS, [second.table, first.table], {}, ranks, 0, 10,
        is_counted=True)
    found = {host: made.policy() for host, made in host_policies.update(
        made, live.Schedule(0.0, ()), {}, ranks).of_host.items()}
    assert {host: [(f.coflow_id, f.src_ip, f.dst_ip) for f in policy.flows]
            for host, policy in found.items()} == {
        'h0': [('a', '10.0.0.0', '10.0.0.1'), ('b', '10.0.0.0', '10.0.0.2')],
        'h1': [('a', '10.0.0.1', '10.0.0.2')], 'h2': []}
    for policy in found.values():
        assert policy.classes == ()
        assert {f.minor for f in policy.flows} <= {edge_policy.DEFAULT_MINOR}
        # The edge takes it.
        assert edge_policy.EdgePolicy.from_dict(policy.to_dict()) == policy
