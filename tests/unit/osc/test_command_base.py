# SPDX-License-Identifier: Apache-2.0

"""What all commands share: columns, and names of coflows."""

import io
import json
import types

from keystoneauth1 import noauth
from keystoneauth1 import session as ks_session
from osc_lib import exceptions as osc_exceptions
import pytest
import requests

from tests.unit.osc import controller
from virtco import exception
from virtco.client import projects
from virtco.osc import coflow_commands
from virtco.osc import command_base as base
from virtco.osc import matrices
from virtco.osc import operator_commands as operator
from virtco.wire import coflow_bodies as wire

RATES = {'GET /v1/rates': {'pairs': [
    {'src': 'h1', 'dst': 'h2', 'rate_bps': 2e9, 'rtt_s': 5e-4,
     'lower_bound': True, 'method': 'train'}]}}

ID = '01234567-89ab-cdef-0123-456789abcdef'


def _coflow(coflow_id, name='a', group_name='g', state='active'):
    return {'id': coflow_id, 'name': name, 'group_name': group_name,
            'state': state}


@pytest.mark.parametrize(('coflows', 'name', 'coflow_id'), [
    ([_coflow('1'), _coflow('2', 'b')], 'a', '1'),
    ([_coflow('1'), _coflow('2', 'b', 'h')], 'h', '2'),
    ([_coflow('1'), _coflow('2', '1')], '1', '1'),
    ([_coflow('1', state='done'), _coflow('2'),
      _coflow('3', state='retired')], 'a', '2'),
    ([_coflow('1', state='done')], 'a', '1')])
def test_a_coflow_is_found_by_its_id_or_its_name(coflows, name, coflow_id):
    client = controller.Controller(
        **{'GET /v1/coflows': {'coflows': coflows}}).client
    assert base.find_coflow(client, name) == coflow_id


@pytest.mark.parametrize('name, asked', [
    ('live', [False]), ('gone', [False, True]), (ID, [True])])
def test_a_name_is_first_one_of_a_coflow_that_is_not_retired(name, asked):
    """Many retired ones are newer than a coflow that runs for long."""
    lists = {False: [('1', 'live')], True: [('2', 'gone'), (ID, 'x')]}
    asks = []

    def call(_operation, _project_id, *, retired, **_query):
        asks.append(retired)
        return types.SimpleNamespace(coflows=[types.SimpleNamespace(
            id=one, name=called, group_name='g', state='')
            for one, called in lists[retired]])

    client = types.SimpleNamespace(call=call)
    assert base.find_coflow(client, name) == {
        'live': '1', 'gone': '2', ID: ID}[name]
    assert asks == asked


class Pages:
    """A controller that answers with so many coflows at most."""

    def __init__(self, n_coflows):
        self.ids = [str(number) for number in range(n_coflows)]
        self.asked = []

    def call(self, operation, project_id=None, *, limit, marker=None,
             state=None):
        self.asked.append((project_id, limit, marker, state))
        end = len(self.ids) if marker is None else self.ids.index(marker)
        assert 1 <= limit <= wire.MOST_LISTED
        first = max(0, end - limit)
        return types.SimpleNamespace(coflows=[
            types.SimpleNamespace(id=one) for one in self.ids[first:end]])


@pytest.mark.parametrize('n_coflows, limit, asks', [
    (3, None, [500]), (3, 2, [2]), (1250, None, [500] * 3),
    (1000, None, [500] * 3), (1250, 700, [500, 200]),
    (9000, None, [500] * 10)])
def test_coflows_are_listed_answer_by_answer(n_coflows, limit, asks):
    client = Pages(n_coflows)
    found = base.coflows_of(client, 'p', limit=limit, state='done')
    least = max(0, n_coflows - (limit or base.MOST_COFLOWS))
    assert [one.id for one in found] == client.ids[least:]
    assert [(project_id, limit, state)
            for project_id, limit, _, state in client.asked] == [
                ('p', one, 'done') for one in asks]


def test_an_id_may_be_of_a_coflow_that_the_list_does_not_have():
    one = controller.Controller(**{
        'GET /v1/coflows': {'coflows': [_coflow('1')]},
        f'GET /v1/coflows/{ID}': _coflow(ID),
        'GET /v1/events': {'events': []}})
    found, _ = controller.rows(coflow_commands.ShowCoflow, one, ID)
    assert found['id'] == ID
    with pytest.raises(exception.NotFound):
        controller.rows(coflow_commands.ShowCoflow, one, ID[::-1])


@pytest.mark.parametrize(('coflows', 'why'), [
    ([_coflow('1', 'b')], "There is no coflow 'a'."),
    ([_coflow('1'), _coflow('2')],
     "2 coflows are called 'a'; give an id of 1, 2"),
    ([_coflow('1', state='done'), _coflow('2', state='retired')],
     "2 coflows are called 'a'; give an id of 1, 2")])
def test_what_no_coflow_or_several_are_called(coflows, why):
    client = controller.Controller(
        **{'GET /v1/coflows': {'coflows': coflows}}).client
    with pytest.raises(osc_exceptions.CommandError) as error:
        base.find_coflow(client, 'a')
    assert str(error.value) == why


class _Keystone(requests.adapters.BaseAdapter):
    """Answers by path; a path that it does not know is forbidden."""

    def __init__(self, **answers):
        super().__init__()
        self.answers = answers

    def send(self, request, **_options):
        response = requests.Response()
        response.url, response.request = request.url, request
        body = self.answers.get(request.path_url, (403, {}))
        response.status_code, body = (
            body if isinstance(body, tuple) else (200, body))
        response.raw = io.BytesIO(json.dumps(body).encode())
        return response


def _login(**answers):
    http = requests.Session()
    http.mount('http://', _Keystone(**answers))
    return ks_session.Session(
        auth=noauth.NoAuth(endpoint='http://keystone.test'), session=http)


def _named(*ids):
    return {'projects': [{'id': found} for found in ids]}


@pytest.mark.parametrize(('answers', 'project_id'), [
    ({'/projects?name=lab': _named('p1')}, 'p1'),
    ({'/projects?name=lab': _named(),
      '/projects/lab': {'project': {'id': 'lab'}}}, 'lab'),
    # Another project may be called as the id of this one.
    ({'/projects?name=lab': _named('p1'),
      '/projects/lab': {'project': {'id': 'lab'}}}, 'lab'),
    ({'/projects?name=lab': _named('p1'), '/projects/lab': (404, {})}, 'p1'),
    ({'/projects?name=lab': _named()}, 'lab'),
    ({'/projects?name=lab': (404, {})}, 'lab'),
    ({}, 'lab')])
def test_a_project_is_found_by_its_name(answers, project_id):
    one = controller.Controller(**{'GET /v1/events': {'events': []}})
    controller.rows(coflow_commands.ListEvents, one, '--project', 'lab',
                    session=_login(**answers))
    assert one.asked == [('GET', f'/v1/events?project_id={project_id}', None)]


@pytest.mark.parametrize(('answers', 'why'), [
    ({'/projects?name=lab': _named('p1', 'p2')},
     '--project: expected an id of the projects of this name: p1, p2, got '
     'lab'),
    ({'/projects?name=lab': _named(), '/projects/lab': (404, {})},
     'Project lab was not found')])
def test_a_name_of_several_projects_or_of_none(answers, why):
    with pytest.raises(exception.VirtcoException) as error:
        projects.find(_login(**answers), 'lab')
    assert why in str(error.value)


def test_programs_get_every_column_by_the_name_of_the_interface():
    found, _ = controller.rows(matrices.ListRates,
                               controller.Controller(**RATES))
    assert found == [{'src': 'h1', 'dst': 'h2', 'rate_bps': 2e9, 'age_s': 0.0,
                      'confidence': 0.0, 'rtt_s': 5e-4, 'rtt_median_s': None,
                      'rtt_p99_s': None, 'lower_bound': True, 'loss': None,
                      'method': 'train'}]


@pytest.mark.parametrize(('argv', 'has_more'), [
    ([], False), (['--long'], True)])
def test_people_get_what_fits_unless_they_ask_for_all(argv, has_more):
    _, out, _ = controller.run(matrices.ListRates,
                               controller.Controller(**RATES), *argv)
    assert ' From ' in out and '2 Gbit/s' in out
    assert ('train' in out) == has_more


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path):
    """Editors and spreadsheets of Windows write one."""
    path = tmp_path / 'plan.json'
    path.write_text('{"groups": []}', encoding='utf-8-sig')
    piped = io.TextIOWrapper(io.BytesIO(path.read_bytes()))
    command = coflow_commands.CreatePlan(
        types.SimpleNamespace(stdin=piped), None)
    for given in str(path), '-':
        assert command.read_json('file', given) == {'groups': []}


def test_standard_input_is_utf_8_in_any_locale():
    stdin = io.TextIOWrapper(io.BytesIO('größe'.encode()), encoding='latin-1')
    command = operator.ShowSettings(types.SimpleNamespace(stdin=stdin), None)
    assert command.read('tm', '-') == 'größe'


@pytest.mark.parametrize(('command', 'has_more'), [
    (matrices.ListRates, True), (coflow_commands.ListProjects, False)])
def test_more_columns_are_offered_only_where_there_are_more(command,
                                                            has_more):
    """Elsewhere --long would be an option that changes nothing."""
    parser = command(None, None).get_parser('x')
    assert ('--long' in parser.format_help()) == has_more


@pytest.mark.parametrize('name', ['From', 'from', 'src'])
def test_a_column_is_chosen_by_its_title_or_by_its_name(name):
    for form, wanted in ('value', 'h1\n'), ('csv', '"src"\n"h1"\n'):
        _, out, _ = controller.run(matrices.ListRates,
                                   controller.Controller(**RATES),
                                   '-f', form, '-c', name)
        assert out == wanted


@pytest.mark.parametrize('name', ['RTT', 'rtt', 'rtt_s'])
@pytest.mark.parametrize('formatter', ['table', 'json'])
def test_rows_are_sorted_by_a_column_that_is_not_known_of_all(name, formatter):
    """Those of which it is not known come last."""
    rates = {'GET /v1/rates': {'pairs': [
        {'src': f'h{rtt_s}', 'dst': 'h', 'rate_bps': 1e9, 'rtt_s': rtt_s}
        for rtt_s in (0.2, None, 0.1)]}}
    _, out, err = controller.run(
        matrices.ListRates, controller.Controller(**rates), '-f', formatter,
        '--sort-column', name)
    assert [out.index(f'h{rtt_s}') for rtt_s in (0.1, 0.2, None)] == sorted(
        out.index(f'h{rtt_s}') for rtt_s in (0.1, 0.2, None))
    assert err == ''


def test_naming_a_column_shows_one_that_is_not_shown_else():
    _, out, _ = controller.run(matrices.ListRates,
                               controller.Controller(**RATES), '-c', 'Method')
    assert 'train' in out and 'h1' not in out


@pytest.mark.parametrize('command', [matrices.ListRates,
                                     operator.ShowSettings])
def test_tables_fit_the_terminal(command):
    parser = command(None, None).get_parser('x')
    assert parser.parse_args([]).fit_width is True


def test_texts_beside_an_answer_are_as_narrow_as_the_terminal(monkeypatch):
    monkeypatch.setenv('COLUMNS', '20')
    app = types.SimpleNamespace(stderr=io.StringIO())
    operator.ListHosts(app, None).tell('one\nmany words that are too long\n')
    assert app.stderr.getvalue() == 'one\nmany words that are\n  too long\n'
