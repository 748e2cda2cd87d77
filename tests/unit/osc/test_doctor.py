# SPDX-License-Identifier: Apache-2.0

"""``virtco doctor``: what it asks, and its exit code."""

import json
import time

import pytest

from tests.unit.osc import controller
from tests.unit.osc import test_doctor_findings as findings
from virtco import problems
from virtco.cmd import examine
from virtco.osc import doctor
from virtco.wire import health as health_wire


def _controller(**answers):
    now_s = time.time()
    host = findings.host(last_report=now_s, classes=[findings.row()])
    coflow = findings.coflow(hosts=['h1', None], arrival=now_s)
    return controller.Controller(**{
        'GET /health': {'status': 'ok', 'parts': {'database': True}},
        'GET /v1/coflows': {'coflows': [coflow]},
        'GET /v1/coflows/id-a': coflow,
        'GET /v1/events': {'events': []},
        'GET /v1/hosts': {'hosts': [host]}, 'GET /v1/hosts/h1': host,
        **answers})


def _found(one, *argv):
    code, out, _ = controller.run(doctor.Doctor, one, '-f', 'json', *argv)
    return code, {row['link']: row['state'] for row in json.loads(out)}


def test_a_healthy_chain_and_a_coflow_in_it():
    code, found = _found(_controller(), 'a')
    assert code == 0 and set(found.values()) == {'ok'}
    assert len(found) == 8 and 'coflow a' in found


def test_a_host_of_a_coflow_without_an_edge_module_is_told():
    coflow = findings.coflow(hosts=['h1', 'h2'], arrival=time.time())
    one = _controller(**{
        'GET /v1/coflows/id-a': coflow, 'GET /v1/hosts/h2': (404, {
            'error': {'code': 'virtco.not_found', 'detail': 'no'}})})
    code, out, _ = controller.run(doctor.Doctor, one, '-f', 'json', 'a')
    assert code == 1 and 'h2 never reported' in out


@pytest.mark.parametrize(('answers', 'link', 'state', 'code'), [
    ({'GET /health': (503, {'status': 'starting', 'what': 'x'})},
     'controller', 'warning', 0),
    ({'GET /health': {'status': 'ok', 'parts': {'database': False}}},
     'controller', 'error', 1),
    ({'GET /v1/hosts': (403, {'error': {'code': 'virtco.forbidden',
                                        'detail': 'no'}})},
     'hypervisors', 'warning', 0),
    ({'GET /v1/hosts': {'hosts': []}}, 'hypervisors', 'error', 1)])
def test_a_broken_link_ends_with_1(answers, link, state, code):
    found_code, found = _found(_controller(**answers))
    assert (found_code, found[link]) == (code, state)


def test_the_page_of_each_code_is_named_once():
    silent = {'GET /v1/hosts': {'hosts': [
        findings.host(host=name, last_report=0.0) for name in 'ab']}}
    _, out, told = controller.run(doctor.Doctor, _controller(**silent),
                                  '-f', 'json')
    assert told.splitlines() == sorted({
        'https://docs.openstack.org/virtco/latest/admin/'
        f'troubleshooting.html#term-{row["code"]}'
        for row in json.loads(out) if row['code']})
    assert 'VC-066' in told
    _, _, told = controller.run(doctor.Doctor, _controller())
    assert told == ''


@pytest.mark.parametrize('health', [
    {'status': 'starting', 'what': 'x'},
    {'status': 'failing', 'parts': {'database': False}}])
def test_a_controller_that_does_not_serve_is_asked_no_more(health):
    """Its other answers would be consequences, or errors."""
    one = _controller(**{'GET /health': (503, health)})
    _, found = _found(one, 'a')
    assert [path for _, path, _ in one.asked] == ['/health']
    assert list(found) == ['controller']


@pytest.mark.parametrize(('told', 'rows', 'code'), [
    ([], [('configuration', 'ok', 'every test passed')], 0),
    ([health_wire.Problem(code='VC-020', finding='no such host')],
     [(problems.KINDS['VC-020'].link, 'error', 'no such host')], 1)])
def test_a_file_is_tested_without_a_controller(told, rows, code,
                                               monkeypatch):
    asked = []
    monkeypatch.setattr(examine, 'examine',
                        lambda path: asked.append(path) or told)
    one = controller.Controller()
    found_code, out, _ = controller.run(
        doctor.Doctor, one, '-f', 'json', '--config-file', 'virtco.conf')
    assert [(row['link'], row['state'], row['finding'])
            for row in json.loads(out)] == rows
    assert (found_code, asked, one.asked) == (code, ['virtco.conf'], [])
