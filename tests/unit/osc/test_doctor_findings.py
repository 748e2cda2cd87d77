# SPDX-License-Identifier: Apache-2.0

"""Each link of the chain, broken alone."""

import pytest

from tests.unit.osc import controller
from tests.unit.osc import test_overview as overview
from virtco.osc import doctor_findings as findings
from virtco.wire import coflow_bodies as wire
from virtco.wire import health as health_wire
from virtco.wire import host as host_wire

NOW_S = 1e6


def coflow(name='a', **values):
    return overview.coflow(name, **{
        'arrival': NOW_S - 60, 'members': [{'row': 0, 'host': 'h1'}]
        } | values)


def host(name='h1', **values):
    return overview.host(name, **{
        'rate_source': 'measured', 'last_report': NOW_S - 1} | values)


def event(kind, **values):
    return controller.made(wire.Event, **{
        'kind': kind, 'at': NOW_S - 60, 'detail': 'virtco:tm is bad',
        'group_name': 'a', 'project_id': 'p'} | values)


def problem(code, finding=''):
    return health_wire.Problem(code=code, finding=finding)


def answers(**values):
    found = {'health': {'status': 'ok', 'parts': {'database': True}},
             'coflows': [coflow()], 'events': [], 'hosts': [host()],
             'now_s': NOW_S} | values
    return findings.Answers(**found | {
        'health': health_wire.Health(**found['health'])})


def broken(**values):
    return [(one.link, one.state, one.finding)
            for one in findings.examine(answers(**values))
            if one.state != findings.OK]


def test_a_healthy_cloud_has_one_line_per_link():
    found = findings.examine(answers())
    assert {one.state for one in found} == {findings.OK}
    assert len({one.link for one in found}) == len(found) == 7


@pytest.mark.parametrize(('values', 'link', 'state', 'words'), [
    ({'health': {'status': 'failing', 'parts': {'database': False}}},
     'controller', 'error', 'its database'),
    ({'health': {'status': 'failing', 'parts': {'database': False},
                 'problems': [problem('VC-021', 'ro')]}},
     'controller', 'error', 'ro'),
    ({'health': {'status': 'ok', 'problems': [problem('VC-043')]}},
     'controller', 'warning', 'the certificate ends soon'),
    ({'health': {'status': 'starting', 'what': 'loading the planner'}},
     'controller', 'warning', 'loading the planner'),
    ({'coflows': []}, 'nova-scheduler', 'warning', 'no group yet'),
    ({'events': [event('hint_ignored')]}, 'nova-scheduler', 'warning',
     'virtco:tm is bad'),
    ({'events': [event('other_host')]}, 'nova-scheduler', 'warning',
     '1 VMs on other hosts'),
    ({'coflows': [coflow(state='planned', created=NOW_S - 601)]},
     'notifications', 'warning', 'a planned'),
    ({'hosts': []}, 'hypervisors', 'error', 'none has reported'),
    ({'hosts': [host(last_report=None)]}, 'hypervisors', 'error',
     'none has reported'),
    ({'hosts': None}, 'hypervisors', 'warning', 'operators'),
    ({'hosts': [host(last_report=NOW_S - 31)]}, 'hypervisors', 'error',
     'h1 silent'),
    ({'hosts': [host(health='error', error='no HTB')]}, 'hypervisors',
     'error', 'no HTB'),
    ({'hosts': [host(health='degraded')]}, 'hypervisors', 'warning',
     'degraded'),
    ({'hosts': [host(rate_source='unknown')]}, 'rates', 'warning', 'h1'),
    ({'hosts': [host(measured_egress_bps=6e8)]}, 'rates', 'warning', '70%'),
    ({'hosts': [host(generations_behind=6)]}, 'policies', 'warning', 'h1'),
    ({'coflows': [coflow(measured_cct_s=24.0)]}, 'completion', 'warning',
     'a took'),
])
def test_a_broken_link_is_named(values, link, state, words):
    (found,) = broken(**values)
    assert found[:2] == (link, state)
    assert words in found[2]


@pytest.mark.parametrize(('values', 'words'), [
    ({'health': {'status': 'ok', 'mode': 'shadow'}}, 'shadow mode'),
    ({'events': [event('hint_ignored', at=NOW_S - 9.0, detail='new'),
                 event('hint_ignored', at=NOW_S - 99.0, detail='old'),
                 event('hint_ignored', at=NOW_S - 86_399.0, detail='1st')]},
     '3 hints ignored in a day, at last: new'),
    ({'hosts': [host(last_report=None), host('h2')]}, 'h1 silent'),
    ({'hosts': [host(generation=6, applied_generation=None,
                      generations_behind=6)]}, 'h1 behind'),
])
def test_what_is_told_of_a_link(values, words):
    (found,) = broken(**values)
    assert words in found[2]


@pytest.mark.parametrize(('values', 'n'), [
    # One that is silent is not told twice.
    ({'hosts': [host(last_report=NOW_S - 31, health='error')]}, 1),
    ({'hosts': [host(last_report=None, rate_source='unknown'),
                host('h2')]}, 1),
    ({'health': {'status': 'ok', 'mode': 'shadow'},
      'events': [event('other_host')]}, 1),
    # Nor what follows from a controller that does not serve.
    ({'health': {'status': 'starting', 'what': 'x'}, 'coflows': [],
      'hosts': []}, 1),
    ({'health': {'status': 'failing', 'parts': {'keeper': False}},
      'hosts': []}, 1),
    ({'coflows': [], 'events': [event('other')]}, 0),
    ({'events': [event('hint_ignored', at=NOW_S - 86_400.0)]}, 0),
    ({'coflows': [coflow(state='planned', created=None)]}, 0),
    ({'coflows': [coflow(state='planned', created=NOW_S - 600)]}, 0),
    ({'coflows': [coflow(state='active', created=NOW_S - 900)]}, 0),
    ({'hosts': [host(last_report=NOW_S - 30)]}, 0),
    ({'hosts': [host(measured_egress_bps=7e8)]}, 0),
    ({'hosts': [host(measured_egress_bps=6e8, link_egress_bps=None)]}, 0),
    ({'hosts': [host(generations_behind=5)]}, 0),
    ({'coflows': [coflow(measured_cct_s=23.25)]}, 0),
    ({'coflows': [coflow(measured_cct_s=99.0, cct_s=None)]}, 0)])
def test_the_ends_of_what_is_fine(values, n):
    assert len(broken(**values)) == n


@pytest.mark.parametrize('values', [
    {'events': [event('hint_ignored', at=NOW_S - 90_000)]},
    {'hosts': [host(last_report=NOW_S - 29)]},
    # The leader before had numbers of its own.
    {'hosts': [host(generation=2 * 10 ** 9 + 1, generations_behind=1)]},
    {'hosts': [host(generation=None, applied_generation=None)]},
    {'hosts': [host(measured_egress_bps=7.1e8)]},
    {'coflows': [coflow(state='planned', created=NOW_S - 599)]},
    {'coflows': [coflow(measured_cct_s=23.0)]},
])
def test_what_is_within_bounds_is_fine(values):
    assert broken(**values) == []


def row(**values):
    return controller.made(host_wire.Class, **{
        'coflow_id': 'id-a', 'rate_bps': 1e8, 'observed_bps': 9e7,
        'backlog_bytes': 0} | values)


@pytest.mark.parametrize(('values', 'classes', 'state', 'words'), [
    ({}, {'h1': [row()]}, 'ok', 'h1: 90 Mbit/s of 100 Mbit/s'),
    ({}, {'h1': []}, 'error', 'no hypervisor'),
    ({}, {'h1': [row(observed_bps=1e7, backlog_bytes=9)]}, 'warning',
     'packets wait'),
    ({'state': 'planned'}, {}, 'warning', 'is planned'),
    ({'state': 'done'}, {}, 'ok', 'is done'),
    ({'members': [{'row': 3, 'host': None}]}, {}, 'warning', 'rows 3'),
    ({'in_debt': True}, {}, 'warning', 'owes'),
])
def test_a_coflow_in_detail(values, classes, state, words):
    (found,) = findings.examine_coflow(coflow(**values), classes)
    assert found.state == state
    assert words in found.finding


@pytest.mark.parametrize(('row_values', 'words'), [
    ({}, 'h1: 0 bit/s of 100 Mbit/s'),
    ({'backlog_bytes': 9},
     'h1: sends 0 bit/s of 100 Mbit/s and packets wait')])
def test_a_class_that_nobody_observed_sends_nothing(row_values, words):
    (found,) = findings.examine_coflow(coflow(), {
        'h1': [row(observed_bps=None, **row_values)]})
    assert found.finding == words


@pytest.mark.parametrize(('row_values', 'state'), [
    ({'observed_bps': 7e7, 'backlog_bytes': 9}, 'ok'),
    ({'observed_bps': 6.9e7, 'backlog_bytes': 9}, 'warning'),
    ({'observed_bps': None, 'backlog_bytes': 9}, 'warning'),
    ({'observed_bps': 6.9e7}, 'ok')])
def test_packets_that_wait(row_values, state):
    other = row(coflow_id='id-b', observed_bps=0.0, backlog_bytes=9)
    (found,) = findings.examine_coflow(
        coflow(), {'h1': [other, row(**row_values)], 'h2': [other]})
    assert found.state == state and found.finding.startswith('h1: ')
    assert found.link == 'coflow a'


def test_a_coflow_without_hosts_has_no_class_to_miss():
    assert findings.examine_coflow(coflow(), {}) == []
    (found,) = findings.examine_coflow(coflow(state='retired'), {})
    assert found.state == 'ok'


@pytest.mark.parametrize(('n', 'names'), [
    (3, 'h0, h1, h2'), (4, 'h0, h1, h2 and 1 more')])
def test_as_many_names_as_are_short(n, names):
    hosts = [host(f'h{i}', rate_source='unknown') for i in range(n)]
    ((_, _, finding),) = broken(hosts=hosts)
    assert finding == f'{names} of unknown speed'


def test_many_names_are_cut_short():
    hosts = [host(f'h{n}', rate_source='unknown') for n in range(9)]
    ((_, _, finding),) = broken(hosts=hosts)
    assert finding == 'h0, h1, h2 and 6 more of unknown speed'
