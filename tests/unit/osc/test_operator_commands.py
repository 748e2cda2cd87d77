# SPDX-License-Identifier: Apache-2.0

"""Commands of operators: hosts, placements, advice, settings."""

from osc_lib import exceptions as osc_exceptions
import pytest

from tests.unit.osc import controller
from virtco import exception
from virtco.osc import coflow_commands
from virtco.osc import operator_commands as operator

HOST = {'host': 'h1', 'egress_bps': 2e9, 'ingress_bps': 1e9,
        'coflows': ['a', 'b', 'c'], 'classes': [
            {'name': 'a', 'prio': 1, 'rate_bps': 3e8, 'coflow_id': 'i',
             'destinations': ['h2']}]}
PLACED = {'instance_uuid': 'u', 'status': 'planned', 'host': 'h1',
          'host_now': 'h1', 'why': 'least CCT', 'cct_s': 2.0,
          'lower_bound_s': 1.0, 'gap': 1.0, 'method': 'exact',
          'bound_scope': 'any placement under these constraints',
          'group_name': 'g', 'row': 3, 'bottleneck': 'egress of h2',
          'hosts': [{'rank': 1, 'host': 'h1', 'cct_s': 2.0, 'why': ''}]}
EXPLAINED = {'reasons': [{'kind': 'room', 'subject': 's', 'host': 'h2',
                          'cct_s': 1.5, 'instead_of_s': 2.0,
                          'saved_objective_s': 0.5, 'text': 'no room'}],
             'phases_s': {'start': 1e-4, 'search': 0.5, 'little': 9.9e-5},
             'is_complete': True, 'why_not': ''}


def test_hosts_are_listed_with_the_number_of_their_coflows():
    (found,), _ = controller.rows(operator.ListHosts, controller.Controller(
        **{'GET /v1/hosts': {'hosts': [HOST]}}))
    assert (found['host'], found['n_coflows']) == ('h1', 3)
    assert (found['egress_bps'], found['ingress_bps']) == (2e9, 1e9)


def test_a_host_and_its_classes():
    one = controller.Controller(**{'GET /v1/hosts/h1': HOST})
    found, _ = controller.rows(operator.ShowHost, one, 'h1')
    assert found.items() >= {
        name: HOST[name] for name in HOST if name != 'classes'}.items()
    assert 'classes' not in found
    (found,), _ = controller.rows(operator.ListHosts, one, '--classes', 'h1')
    assert (found['name'], found['rate_bps'], found['destinations']) == (
        'a', 3e8, ['h2'])


def test_a_host_is_drained_and_comes_back():
    one = controller.Controller(**{
        'PUT /v1/hosts/h1/drain': {'drain': 'draining'},
        'DELETE /v1/hosts/h1/drain': None})
    found, _ = controller.rows(operator.SetHost, one, 'h1', '--drain',
                               '--reason', 'x')
    assert found['drain'] == 'draining'
    controller.run(operator.SetHost, one, 'h1', '--drain')
    found, _ = controller.rows(operator.SetHost, one, 'h1', '--undrain')
    assert (found['host'], found['drain']) == ('h1', None)
    assert one.asked == [('PUT', '/v1/hosts/h1/drain', {'reason': 'x'}),
                         ('PUT', '/v1/hosts/h1/drain', {'reason': ''}),
                         ('DELETE', '/v1/hosts/h1/drain', None)]


def test_a_host_is_drained_or_not():
    for argv in ([], ['--drain', '--undrain']):
        with pytest.raises(SystemExit):
            controller.run(operator.SetHost, controller.Controller(), 'h1',
                           *argv)


def test_a_host_is_deleted():
    one = controller.Controller(**{'DELETE /v1/hosts/h1': None})
    controller.run(operator.DeleteHost, one, 'h1')
    assert one.asked == [('DELETE', '/v1/hosts/h1', None)]


UUID = '00000000-0000-4000-8000-000000000001'


def _explain(placed, explained, *argv, **answers):
    one = controller.Controller(**{
        f'GET /v1/placements/{UUID}': placed,
        f'GET /v1/placements/{UUID}/explanation': explained or {
            'reasons': [], 'phases_s': {}, 'is_complete': True,
            'why_not': ''}}, **answers)
    found, told = controller.rows(operator.ExplainPlacement, one,
                                  *(argv or [UUID]))
    return found, told.splitlines(), one


def test_a_placement_is_explained():
    found, told, one = _explain(PLACED, EXPLAINED, UUID, '--budget', '0.5')
    assert [host['host'] for host in found] == ['h1']
    assert 'feasible' in found[0]
    assert told == [
        'Instance u: planned on h1', 'Why: least CCT',
        'Group g, row 3: CCT 2 s, at least 1 s for any placement under these '
        'constraints, gap 100.0 %, by exact',
        'Limiting: egress of h2',
        'Time of the plan: start 100 us, search 500 ms', '- no room']
    assert one.asked[1][1] == f'/v1/placements/{UUID}/explanation?budget_s=0.5'


def test_reasons_instead_of_hosts():
    found, _, _ = _explain(PLACED, EXPLAINED, UUID, '--reasons')
    assert found == [EXPLAINED['reasons'][0] | {'limiting': ''}]


def _named(*names):
    """Answers with two coflows of a group, whose VMs have these names."""
    coflow = {'id': 'c1', 'name': 'g', 'group_name': 'g'}
    return {'GET /v1/coflows?limit=500&server=g-1': {'coflows': [
        coflow | {'group': 'G'}, coflow | {'id': 'c0', 'group': 'G'}]},
            'GET /v1/coflows/c0': coflow | {'members': [
                {'row': row, 'display_name': name, 'instance_uuid':
                 UUID[:-1] + str(1 + row)} for row, name in enumerate(names)]}}


def test_an_instance_is_found_by_its_name():
    found, _, one = _explain(PLACED, EXPLAINED, 'g-1',
                             **_named('g-1', 'g-2'))
    assert found and [path for _, path, _ in one.asked] == [
        '/v1/coflows?limit=500&server=g-1', '/v1/coflows/c0',
        f'/v1/placements/{UUID}',
        f'/v1/placements/{UUID}/explanation']


@pytest.mark.parametrize('names, why', [
    (['g-2'], "There is no VM of a group called 'g-1'."),
    (['g-1', 'g-1'], "2 VMs of groups are called 'g-1'; give an id of "
     f'{UUID}, {UUID[:-1]}2.')])
def test_a_name_of_no_instance_or_of_several(names, why):
    with pytest.raises(osc_exceptions.CommandError) as error:
        _explain(PLACED, EXPLAINED, 'g-1', **_named(*names))
    assert str(error.value) == why


def test_a_gap_may_be_unknown():
    found, told, _ = _explain(PLACED | {'gap': None, 'bottleneck': None},
                              None)
    assert found and told == [
        'Instance u: planned on h1', 'Why: least CCT',
        'Group g, row 3: CCT 2 s, at least 1 s for any placement under these '
        'constraints, gap unknown, by exact']


@pytest.mark.parametrize(('values', 'lines'), [
    ({'host': None, 'host_now': None}, ['Instance u: planned']),
    ({'host_now': 'h9'}, ['Instance u: planned on h1',
                          'It is on h9 now.']),
    ({'host': None, 'host_now': 'h9'}, ['Instance u: planned',
                                        'It is on h9 now.']),
    ({'host_now': None}, ['Instance u: planned on h1'])])
def test_where_an_instance_was_planned_and_is(values, lines):
    _, told, _ = _explain(PLACED | {'cct_s': None} | values, None)
    assert told == [*lines, 'Why: least CCT']


@pytest.mark.parametrize(('status', 'explained', 'last'), [
    ('planned', {'why_not': 'gone'}, 'What decided is unknown: gone'),
    ('planned', {'why_not': 'gone', 'is_complete': False},
     'What decided is unknown: gone'),
    ('planned', {'is_complete': False},
     'There was no time for every question; give --budget.'),
    ('ignored', {'why_not': 'gone'}, '- no room'),
    ('ignored', {'is_complete': False}, '- no room'),
    ('planned', {'findings': [{'kind': 'leaf-uplink', 'subject': 'h3',
                               'rate_bps': 1e9, 'expected_bps': 4e9}]},
     'Check: leaf-uplink of h3 has 1 Gbit/s instead of 4 Gbit/s')])
def test_what_was_not_found_out_is_told(status, explained, last):
    _, told, _ = _explain(PLACED | {'status': status}, EXPLAINED | explained)
    assert told[-1] == last


def test_another_refusal_is_told_as_it_is():
    with pytest.raises(exception.Forbidden):
        _explain(PLACED, (403, {'error': {'code': 'virtco.forbidden',
                                          'detail': 'no'}}))


def test_advice_as_it_stands_and_anew():
    one = controller.Controller(**{
        'GET /v1/advice': {'moves': [{'row': 1}]},
        'POST /v1/advice': {'moves': [{'row': 2}]}})
    (old,), _ = controller.rows(operator.ListAdvice, one)
    (new,), _ = controller.rows(operator.ListAdvice, one, '--now',
                                '--budget', '2.5')
    assert (old['row'], new['row']) == (1, 2)
    assert one.asked == [('GET', '/v1/advice', None),
                         ('POST', '/v1/advice', {'budget_s': 2.5})]


def test_settings_and_their_history():
    one = controller.Controller(**{
        'GET /v1/settings': {'order': 'sebf'},
        'PATCH /v1/settings': {'order': 'fifo'},
        'GET /v1/settings/history': {'changes': [
            {'at': 1.0, 'who': 'w', 'what': 'order', 'before': 'a',
             'after': 'b'}]}})
    assert controller.rows(operator.ShowSettings, one)[0]['order'] == 'sebf'
    found, _ = controller.rows(operator.SetSettings, one, '--order', 'fifo',
                               '--ceil', 'link')
    assert found['order'] == 'fifo'
    assert one.asked[-1] == ('PATCH', '/v1/settings',
                             {'order': 'fifo', 'ceil': 'link'})
    with pytest.raises(osc_exceptions.CommandError, match='--planner, '):
        controller.run(operator.SetSettings, one)
    (change,), _ = controller.rows(coflow_commands.ListEvents, one,
                                   '--changes')
    assert (change['who'], change['after']) == ('w', 'b')
