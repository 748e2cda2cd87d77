# SPDX-License-Identifier: Apache-2.0

"""Who may call what: each operation of the API, asked by everybody."""

import importlib
import inspect
import pkgutil
import re
import typing

import pytest

from tests.unit import stored
from tests.unit.api import service
from virtco.api import handlers
from virtco.api import policies
from virtco.wire import operations

#: Roles, project and name of each who calls.
CALLERS = {
    'admin': {'role': 'admin,member,reader', 'project': 'cloud'},
    'nova': {'role': 'service', 'project': 'services', 'user': 'nova'},
    'host': {'role': 'service', 'project': 'services', 'user': 'h0'},
    'member': {'role': 'member,reader'},
    'reader': {'role': 'reader'},
    'stranger': {'role': 'member,reader', 'project': 'q'}}
OPERATORS = {'admin'}
SERVICES = {'admin', 'nova', 'host'}
HOST = {'host'}
MEMBERS = {'admin', 'member'}
READERS = MEMBERS | {'reader'}
OPEN = {'/', '/v1', '/health', '/metrics'}

ROOM = {'vcpus': 1, 'memory_mb': 1, 'disk_gb': 1}
#: Operation, what stands for the braces, body, who may.
OPERATIONS = [
    ('PUT /v1/placements/{}', 'i9', service.placement(0), SERVICES),
    ('GET /v1/placements/{}', 'asked', None, READERS),
    ('DELETE /v1/placements/{}', 'i9', None, SERVICES),
    ('GET /v1/placements/{}/explanation', 'asked', None, OPERATORS),
    ('GET /v1/advice', '', None, OPERATORS),
    ('POST /v1/advice', '', {}, OPERATORS),
    ('POST /v1/plans', '', {'groups': [
        {'name': 'a', 'tm': [[0, 1], [0, 0]], 'flavor': ROOM}]}, OPERATORS),
    ('GET /v1/coflows?project_id=p', '', None, READERS),
    ('POST /v1/coflows', '', {'project_id': 'p', 'name': 'a',
                              'tm': [[0, 1], [0, 0]]}, MEMBERS),
    ('GET /v1/coflows/{}', 'c-p-a', None, READERS),
    ('PATCH /v1/coflows/{}', 'c-p-end', {'state': 'done'}, MEMBERS),
    ('PATCH /v1/coflows/{}', 'c-p-a', {'weight': 2}, OPERATORS),
    ('PATCH /v1/coflows/{}', 'c-p-a', {'priority_class': 2}, OPERATORS),
    ('PATCH /v1/coflows/{}', 'c-p-end', {'state': 'done', 'weight': 2},
     OPERATORS),
    ('DELETE /v1/coflows/{}', 'c-p-away', None, MEMBERS),
    ('POST /v1/groups/{}/coflows?project_id=p', 'a', {
        'name': 'n', 'tm': [[0, 1, 0], [0, 0, 0], [0, 0, 0]]}, MEMBERS),
    ('GET /v1/groups/{}/tree?project_id=p', 'a', None, READERS),
    ('POST /v1/groups/{}/mapping?project_id=p', 'a', {
        'all_reduce_bytes': 8}, READERS),
    ('GET /v1/groups/{}/clusters?project_id=p', 'a', None, READERS),
    ('GET /v1/projects', '', None, OPERATORS),
    ('GET /v1/projects/{}', 'p', None, OPERATORS),
    ('PATCH /v1/projects/{}', 'p', {'weight': 1}, OPERATORS),
    ('GET /v1/events?project_id=p', '', None, READERS),
    ('GET /v1/profiles?project_id=p', '', None, READERS),
    ('GET /v1/profiles/{}?project_id=p', 'x', None, READERS),
    ('GET /v1/apps?project_id=p', '', None, READERS),
    ('GET /v1/apps/{}?project_id=p', 'x', None, READERS),
    ('DELETE /v1/apps/{}?project_id=p', 'x', None, MEMBERS),
    ('GET /v1/hosts', '', None, OPERATORS),
    ('GET /v1/hosts/{}', 'h0', None, OPERATORS),
    ('DELETE /v1/hosts/{}', 'h8', None, OPERATORS),
    ('PUT /v1/hosts/{}/drain', 'h8', {}, OPERATORS),
    ('DELETE /v1/hosts/{}/drain', 'h8', None, OPERATORS),
    ('GET /v1/hosts/{}/policy', 'h0', None, HOST),
    ('GET /v1/distributor', '', None, SERVICES),
    ('GET /v1/rates', '', None, OPERATORS),
    ('GET /v1/checks', '', None, OPERATORS),
    ('POST /v1/checks', '', {'hosts': ['h0', 'h1']}, OPERATORS),
    ('GET /v1/checks/{}', 'x', None, OPERATORS),
    ('GET /v1/matrices/{}', 'rate', None, OPERATORS),
    ('GET /v1/performers', '', None, OPERATORS),
    ('GET /v1/probes', '', None, OPERATORS),
    ('POST /v1/probes', '', {'pairs': [['h0', 'h1']]}, OPERATORS),
    ('GET /v1/probes/{}', 'x', None, OPERATORS),
    ('GET /v1/settings', '', None, OPERATORS),
    ('PATCH /v1/settings', '', {'order': 'sebf'}, OPERATORS),
    ('GET /v1/settings/history', '', None, OPERATORS),
    ('GET /v1/topology', '', None, OPERATORS),
    ('PUT /v1/topology', '', {'planes': []}, OPERATORS),
    ('DELETE /v1/topology/{}', 'x', None, OPERATORS),
    ('POST /v1/capacity', '', {'flavor': ROOM, 'level': 'leaf',
                               'hosts': []}, OPERATORS),
    ('POST /v1/notifications', '', {'event_type': 'x', 'payload': {}},
     SERVICES)]


@pytest.fixture(scope='module')
def api():
    found = service.Service()
    found.add(stored.coflow('p-a', id='c-p-end', name='end', position=1),
              stored.coflow('p-a', id='c-p-away', name='away', position=2))
    asked = found.send('PUT', '/v1/placements/asked',
                       service.placement(0, name='other'), **CALLERS['nova'])
    assert asked.json['status'] == 'planned', asked.text
    yield found
    found.rooms.database.dispose()


@pytest.mark.parametrize('operation, what, body, who', OPERATIONS)
def test_only_they_may(api, operation, what, body, who):
    method, path = operation.split()
    # Those who may come last: some of them take away what is asked for.
    for name in sorted(CALLERS, key=lambda name: name in who):
        found = api.send(method, path.format(what), body, **CALLERS[name])
        assert found.status_code != 500, found.text
        assert (found.status_code == 403) == (name not in who), (
            name, found.text)


def test_every_operation_tells_the_roles_that_may_ask_it():
    """A member is a reader as well, a host a service."""
    asked = {}
    for operation, _, _, who in OPERATIONS:
        roles = {'service' if name in ('nova', 'host') else name
                 for name in who}
        asked.setdefault(operation.partition('?')[0], set()).update(
            roles - ({'member'} if 'reader' in roles else set()))
    assert asked == {
        f'{one.method} {re.sub("{.*?}", "{}", one.path)}': {
            role for _, roles in policies.rules_of(one) for role in roles}
        for one in operations.OPERATIONS if one.path not in OPEN}


def test_each_handler_answers_the_operation_of_its_name():
    """The table of routes is made by names; types are compared here."""
    by_name = {re.sub('([A-Z])', r'_\1', one.name).lower(): one
               for one in operations.OPERATIONS if one.path not in OPEN}
    found = {}
    for module in pkgutil.iter_modules(handlers.__path__,
                                       f'{handlers.__name__}.'):
        for name, one in vars(importlib.import_module(module.name)).items():
            if (inspect.isfunction(one) and one.__module__ == module.name
                    and list(inspect.signature(one).parameters)[:1] == [
                        'call'] and not name.startswith('_')):
                assert name not in found
                found[name] = one
    assert found.keys() == by_name.keys()
    for name, one in by_name.items():
        hints = typing.get_type_hints(found[name])
        assert hints.pop('return') is one.answer, name
        assert hints.get('body') is one.body, name
        assert hints.get('query') in (
            None, *(one.query or object).__mro__), name
