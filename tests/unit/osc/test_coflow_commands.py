# SPDX-License-Identifier: Apache-2.0

"""``virtco coflow …``: what is asked of the controller, what is shown."""

from osc_lib import exceptions as osc_exceptions
import pytest

from tests.unit.osc import controller
from virtco import exception
from virtco.osc import coflow_commands as coflow

A = {'id': 'i-a', 'name': 'a', 'group_name': 'a', 'project_id': 'p',
     'state': 'active'}
GONE = {'id': 'i-g', 'name': 'gone', 'group_name': 'gone', 'project_id': 'p',
        'state': 'retired'}


def _event(group, kind='hint_ignored', at=1.0, project_id='p'):
    return {'kind': kind, 'group_name': group, 'project_id': project_id,
            'instance_uuid': f'vm-{group}', 'detail': f'bad {group}',
            'at': at}


EVENTS = [_event('later', at=5.0), _event('other', kind='other_host'),
          _event('a'), _event('gone'), _event('earlier'),
          _event('late', kind='neutral', at=0.7),
          _event('a', project_id='q', at=0.5)]


def _controller(**answers):
    return controller.Controller(**{
        'GET /v1/coflows': {'coflows': [A, GONE]},
        'GET /v1/coflows?limit=500&retired=False': {'coflows': [A]},
        'GET /v1/events': {'events': EVENTS},
        'GET /v1/coflows/i-a': A, **answers})


@pytest.mark.parametrize(('argv', 'names'), [
    ([], ['a', 'a', 'late', 'earlier', 'gone', 'later']),
    (['--all'], ['a', 'gone', 'a', 'late', 'earlier', 'later']),
    (['--state', 'neutral'], ['late']),
    (['--state', 'ignored'], ['a', 'earlier', 'gone', 'later'])])
def test_hints_that_made_no_coflow_stand_behind_the_coflows(argv, names):
    found, _ = controller.rows(coflow.ListCoflows, _controller(), *argv)
    assert [one['name'] for one in found] == names


def test_an_ignored_hint_has_its_reason():
    found, _ = controller.rows(coflow.ListCoflows, _controller(),
                               '--state', 'ignored')
    assert {name: value for name, value in found[-1].items()
            if value is not None} == {
        'id': 'vm-later', 'name': 'later', 'state': 'ignored',
        'project_id': 'p', 'warnings': 'bad later', 'why': 'bad later',
        'arrival': 5.0}


@pytest.mark.parametrize('asked', ['late', 'vm-late'])
def test_a_group_without_a_coflow_is_shown_with_its_reason(asked):
    found, _ = controller.rows(coflow.ShowCoflow, _controller(), asked)
    assert (found['id'], found['state'], found['why']) == (
        'vm-late', 'neutral', 'bad late')


def test_the_newest_reason_of_a_group_is_shown():
    one = _controller(**{'GET /v1/events': {'events': [
        _event('b', at=2.0) | {'detail': 'new'}, _event('b')]}})
    assert controller.rows(coflow.ShowCoflow, one, 'b')[0]['why'] == 'new'


def test_a_state_and_a_project_are_asked_of_the_controller():
    one = _controller()
    found, _ = controller.rows(coflow.ListCoflows, one, '--state', 'retired',
                               '--project', 'p')
    assert [c['name'] for c in found] == ['a', 'gone']
    assert one.asked == [
        ('GET', '/v1/coflows?project_id=p&limit=500&state=retired', None)]


def test_a_page_of_coflows_is_asked_of_the_controller():
    one = _controller()
    controller.rows(coflow.ListCoflows, one, '--limit', '2', '--marker', 'i')
    assert one.asked == [('GET', '/v1/coflows?limit=2&marker=i', None)]
    # The controller refuses it.
    controller.rows(coflow.ListCoflows, one, '--limit', '0')
    assert one.asked[1:] == [('GET', '/v1/coflows?limit=0', None)]


def test_a_coflow_is_shown_ended_and_deleted_by_its_name():
    one = _controller(**{'PATCH /v1/coflows/i-a': A | {'state': 'done'},
                         'DELETE /v1/coflows/i-a': None})
    assert controller.rows(coflow.ShowCoflow, one, 'a')[0].items() >= A.items()
    ended, _ = controller.rows(coflow.SetCoflow, one, 'a', '--done')
    assert ended['state'] == 'done'
    controller.run(coflow.DeleteCoflow, one, 'a')
    assert [ask for ask in one.asked if ask[1].startswith('/v1/coflows/')] == [
        ('GET', '/v1/coflows/i-a', None),
        ('PATCH', '/v1/coflows/i-a', {'state': 'done'}),
        ('DELETE', '/v1/coflows/i-a', None)]


def test_a_matrix_is_registered_as_text_or_from_a_file(tmp_path):
    path = tmp_path / 'tm.json'
    path.write_text('[[0,1,5]]')
    one = controller.Controller(**{'POST /v1/coflows': A})
    for argv, stdin in (('-', '[[0,1,5]]'), (str(path), ''),
                        (f'@{path}', '')):
        one.asked.clear()
        (found,), _ = controller.rows(coflow.CreateCoflow, one, 'm', argv,
                                      stdin=stdin)
        assert found.items() >= A.items()
        assert one.asked[0][2]['tm'] == '[[0,1,5]]'
    controller.run(coflow.CreateCoflow, one, 'm', '[[1,0,7]]',
                   '--project', 'q')
    assert one.asked == [
        ('POST', '/v1/coflows', {'name': 'm', 'tm': '[[0,1,5]]'}),
        ('POST', '/v1/coflows', {'name': 'm', 'tm': '[[1,0,7]]',
                                 'project_id': 'q'})]
    with pytest.raises(exception.Invalid, match='no such file'):
        controller.run(coflow.CreateCoflow, one, 'm', '@/none/tm.json')
    with pytest.raises(osc_exceptions.CommandError, match='needs --group'):
        controller.run(coflow.CreateCoflow, one, 'm', '[[1,0,7]]',
                       '--expires', '60')


def test_a_coflow_is_announced_over_a_group():
    one = controller.Controller(**{
        'POST /v1/groups/g/coflows': {'coflows': [A | {'expires': 9.0}]}})
    found, _ = controller.rows(
        coflow.CreateCoflow, one, 'm', '[[0,1,5]]', '--group', 'g',
        '--expires', '60', '--project', 'p')
    assert [(c['id'], c['expires']) for c in found] == [('i-a', 9.0)]
    controller.run(coflow.CreateCoflow, one, 'm', '[[0,1,5]]', '--group', 'g')
    body = {'name': 'm', 'tm': '[[0,1,5]]'}
    assert one.asked == [
        ('POST', '/v1/groups/g/coflows?project_id=p',
         body | {'expires_s': 60.0}),
        ('POST', '/v1/groups/g/coflows', body)]


def test_which_members_share_a_rack():
    one = controller.Controller(**{'GET /v1/groups/g/clusters': {'members': [
        {'row': 0, 'display_name': 'v', 'instance_uuid': 'u', 'cluster': '1',
         'addresses': ['192.0.2.1']}]}})
    (found,), _ = controller.rows(coflow.ShowClusters, one, 'g', '--level',
                                  'host', '--project', 'p')
    assert (found['cluster'], found['addresses']) == ('1', ['192.0.2.1'])
    assert one.asked == [
        ('GET', '/v1/groups/g/clusters?level=host&project_id=p', None)]


@pytest.mark.parametrize(('argv', 'body'), [
    (['--priority-class', '0'], {'priority_class': 0}),
    (['--weight', '2.5'], {'weight': 2.5}),
    (['--priority-class', '3', '--weight', '0'],
     {'priority_class': 3, 'weight': 0.0})])
def test_priorities_of_coflows_and_of_projects(argv, body):
    one = _controller(**{'PATCH /v1/coflows/i-a': A,
                         'PATCH /v1/projects/q': {'project_id': 'q'}})
    controller.run(coflow.SetCoflow, one, 'a', *argv)
    controller.run(coflow.SetProject, one, 'q', *argv)
    controller.run(coflow.SetProject, one, 'q', '--forgive', *argv)
    assert one.asked[1:] == [
        ('PATCH', '/v1/coflows/i-a', body),
        ('PATCH', '/v1/projects/q', body),
        ('PATCH', '/v1/projects/q', {'debt_bytes': 0} | body)]


def test_forgiving_alone_and_nothing_at_all():
    one = _controller(**{'PATCH /v1/projects/q': {'project_id': 'q'}})
    controller.run(coflow.SetProject, one, 'q', '--forgive')
    assert one.asked == [('PATCH', '/v1/projects/q', {'debt_bytes': 0})]
    for command, name in (coflow.SetProject, 'q'), (coflow.SetCoflow, 'a'):
        with pytest.raises(osc_exceptions.CommandError, match='--weight'):
            controller.run(command, one, name)
    assert len(one.asked) == 1


def test_projects_and_events_are_listed():
    one = _controller(**{'GET /v1/projects': {'projects': [
        {'project_id': 'q', 'priority_class': 1, 'weight': 2.0,
         'debt_bytes': 5.0}]}})
    (found,), _ = controller.rows(coflow.ListProjects, one)
    assert found == {'project_id': 'q', 'priority_class': 1, 'weight': 2.0,
                     'debt_bytes': 5.0}
    found, _ = controller.rows(coflow.ListEvents, one, '--project', 'p')
    assert [e['detail'] for e in found] == [e['detail'] for e in EVENTS]
    assert one.asked[-1][1] == '/v1/events?project_id=p'


def _plan(n_delays=0, **values):
    return {'cct_s': 2.0, 'lower_bound_s': 1.0, 'gap': 1.0, 'method': 'exact',
            'bound_scope': 'this placement',
            'n_hosts': 3, 'bottleneck': 'egress of h1', 'notes': ['A note.'],
            'vms': [{'group': 'plan', 'row': 0, 'host': 'h1'}],
            'delays': [{'name': f'c{i}', 'project_id': 'p', 'coflow_id': 'x',
                        'before_s': 0.0 if i else 1.0,
                        'after_s': None if i else 2.0}
                       for i in range(n_delays)]} | values


def _planned(plan, *argv, session=None):
    one = controller.Controller(**{'POST /v1/plans': plan})
    found, told = controller.rows(coflow.CreatePlan, one, *argv,
                                  session=session)
    (_, _, body), = one.asked
    return found, told.splitlines(), body


def test_a_plan_of_a_matrix_and_a_flavor():
    found, told, body = _planned(
        _plan(), '--tm', '[[0,1,5]]', '--flavor',
        'vcpus=2,memory_mb=512,disk_gb=10', '--within', 'rack', '--spread',
        'host', '--budget', '0.5')
    assert found == [{'group': 'plan', 'row': 0, 'host': 'h1'}]
    assert told == ['CCT 2 s, at least 1 s for this placement, gap 100.0 %; '
                    'exact on 3 hosts, '
                    'egress of h1 decides', 'A note.',
                    'It would delay nobody.']
    assert body == {
        'groups': [{'name': 'plan', 'tm': '[[0,1,5]]', 'flavor': {
            'vcpus': 2.0, 'memory_mb': 512.0, 'disk_gb': 10.0}}],
        'within': 'rack', 'spread': 'host', 'budget_s': 0.5}
    _, _, body = _planned(_plan(), '--tm', '[]', '--flavor', 'vcpus=1')
    assert list(body) == ['groups']


def test_a_plan_tells_whether_a_deadline_could_be_promised():
    _, told, body = _planned(
        _plan(deadline={'why': 'no: 3 s could be promised'}), '--tm', '[]',
        '--flavor', 'vcpus=1', '--deadline', '2')
    assert body['deadline'] == '2'
    assert told[2] == 'Deadline: no: 3 s could be promised.'


def test_a_plan_of_a_file(tmp_path):
    path = tmp_path / 'plan.json'
    path.write_text('{"groups": []}')
    _, told, body = _planned(_plan(gap=None), str(path))
    assert body == {'groups': []} and 'gap unknown;' in told[0]
    for text, name in (('{', str(path)), ('[]', str(path)),
                       ('{"h1": 1}', str(path)),
                       ('', '/none/plan.json')):
        path.write_text(text)
        with pytest.raises(exception.Invalid, match=name):
            controller.run(coflow.CreatePlan, controller.Controller(), name)


@pytest.mark.parametrize('argv', [
    [], ['--tm', '[]'], ['--flavor', 'vcpus=1']])
def test_a_plan_wants_a_matrix_and_a_flavor(argv):
    with pytest.raises(osc_exceptions.CommandError, match='or a file'):
        controller.run(coflow.CreatePlan, controller.Controller(), *argv)


NO_ROOM = 409, {'error': {'code': 'virtco.infeasible',
                          'detail': 'no room'}}


def _forecast(cct_s):
    return _plan(coflows=[{'name': 'a', 'cct_s': 0.5},
                          {'name': 'b', 'cct_s': cct_s}])


def _waited(monkeypatch, patience_s, *answers):
    """Return what is told, the bodies and the sleeps of a plan that waits."""
    sleeps = []
    monkeypatch.setattr(coflow.time, 'monotonic', lambda: sum(sleeps))
    monkeypatch.setattr(coflow.time, 'sleep', sleeps.append)
    one = controller.Controller(**{'POST /v1/plans': list(answers)})
    _, told = controller.rows(
        coflow.CreatePlan, one, '--tm', '[]', '--flavor', 'vcpus=1',
        '--patience', str(patience_s))
    assert not one.answers['POST /v1/plans']
    return (told.splitlines(), [body.get('alone') for _, _, body in one.asked],
            sleeps)


def test_a_plan_waits_while_less_than_a_quarter_of_what_it_may_save(
        monkeypatch):
    # Without other groups, then now: 0.25 · (42 - 2) = 10 s may be waited.
    told, alone, sleeps = _waited(
        monkeypatch, 120, *map(_forecast, (2, 42, 42, 14)))
    assert alone == [True, None, None, None]
    assert sleeps == [4.0, 4.0]
    assert told[0] == ('CCT 42 s now and 2 s without other groups: waits 10 s '
                       'at most; egress of h1 decides')
    assert told[1] == 'Waited 8 s: CCT 14 s instead of 42 s, 20 s saved'


def test_a_plan_waits_for_room_until_its_patience_ends(monkeypatch):
    told, _, sleeps = _waited(monkeypatch, 60, _forecast(2), NO_ROOM,
                              NO_ROOM, _forecast(None), _forecast(2))
    assert sleeps == [2.0, 2.0, 2.0]
    assert told[0].startswith(
        'CCT never now and 2 s without other groups: waits 1 min at most; ')
    assert told[1] == 'Waited 6 s: CCT 2 s instead of never'
    with pytest.raises(exception.PlacementInfeasible):
        _waited(monkeypatch, 60, _forecast(2), *[NO_ROOM] * 31)


def test_a_plan_that_no_wait_makes_better_comes_at_once(monkeypatch):
    told, _, sleeps = _waited(monkeypatch, 60, _forecast(2), _forecast(2))
    assert not sleeps and told[0].startswith('CCT 2 s, at least')
    with pytest.raises(exception.PlacementInfeasible):
        _waited(monkeypatch, 60, NO_ROOM)


@pytest.mark.parametrize('patience_s', ['-1', 'nan', 'inf', '3601'])
def test_a_patience_is_bounded(patience_s):
    with pytest.raises(exception.Invalid, match='--patience.* 0 to 3600 sec'):
        controller.run(coflow.CreatePlan, controller.Controller(), '--tm',
                       '[]', '--flavor', 'vcpus=1',
                       f'--patience={patience_s}')


@pytest.mark.parametrize('flavor', ['1:2', '1:2:3', 'm1.small'])
def test_any_other_flavor_is_asked_of_nova(flavor):
    with pytest.raises(exception.Invalid, match='keystone'):
        controller.run(coflow.CreatePlan, controller.Controller(), '--tm',
                       '[]', '--flavor', flavor)


@pytest.mark.parametrize(('n', 'more'), [(5, []), (6, [
    'And 1 more; --delays lists them.'])])
def test_the_first_five_that_a_plan_delays_are_told(n, more):
    argv = ('--tm', '[]', '--flavor', 'vcpus=1')
    found, told, _ = _planned(_plan(n), *argv)
    assert told[2:] == [
        'It would delay c0 of project p from 1 s to 2 s.',
        *(f'It would delay c{i} of project p from 0 s to never.'
          for i in range(1, 5)), *more]
    found, _, _ = _planned(_plan(n), *argv, '--delays')
    assert [one['name'] for one in found] == [f'c{i}' for i in range(n)]
    assert found[0] == {'name': 'c0', 'project_id': 'p', 'before_s': 1.0,
                        'after_s': 2.0, 'coflow_id': 'x'}
