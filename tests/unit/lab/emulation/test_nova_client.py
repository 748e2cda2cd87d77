# SPDX-License-Identifier: Apache-2.0

"""What Nova's REST API is asked, and what is made of its answers."""

import types

import pytest
import requests

from virtco_lab.emulation import nova_client


class Nova:
    """Answers one after the other; notes what it is asked."""

    def __init__(self, monkeypatch):
        self.asked, self.answers, self.pauses_s = [], [], []
        self.now_s, self.idle_s = 100.0, 0.0
        self.notes = []
        monkeypatch.setattr(requests.Session, 'request', self._request)
        monkeypatch.setattr(nova_client, 'time', types.SimpleNamespace(
            monotonic=self._monotonic, sleep=self.pauses_s.append))
        monkeypatch.setattr(nova_client.patience, 'IdleClock', lambda: (
            types.SimpleNamespace(note=self.notes.append,
                                  read_s=lambda: self.idle_s)))

    def _monotonic(self):
        return self.now_s

    def _request(self, method, url, timeout, **given):
        self.asked.append((method, url, timeout, given))
        status, body = self.answers.pop(0)
        if isinstance(status, Exception):
            raise status
        return types.SimpleNamespace(
            status_code=status, ok=status < 400, text=str(body),
            content=body, json=lambda: body)


@pytest.fixture(name='nova')
def _nova(monkeypatch):
    return Nova(monkeypatch)


@pytest.fixture(name='client')
def _client(nova):
    return nova_client.NovaClient('http://nova/v2.1/', timeout_s=7.0)


def _body(name, status='ACTIVE', row=0, **more):
    return {'id': f'{name}-id', 'name': name, 'status': status,
            'OS-EXT-SRV-ATTR:launch_index': row, **more}


def _listed(*bodies):
    return 200, {'servers': list(bodies)}


def _server(name, reservation=None, status='BUILD'):
    return nova_client.Server(f'{name}-id', name, status, 0, None, None,
                              reservation)


def test_a_client_is_of_a_project_and_of_no_proxy():
    headers = nova_client.NovaClient('u', 'p')._session.headers
    assert headers['OpenStack-API-Version'] == 'compute 2.90'
    assert headers['X-Auth-Project-Id'] == 'p'
    session = nova_client.NovaClient('u')._session
    assert 'X-Auth-Project-Id' not in session.headers
    assert session.trust_env is False


def test_a_group_is_one_request_and_in_the_order_of_rows(client, nova):
    nova.answers = [(202, {'reservation_id': 'r'}), _listed(
        _body('g-2', row=1), _body('g-1', row=None, fault={'message': 'f'}),
        _body('a', row=1, **{'OS-EXT-SRV-ATTR:host': 'h1',
                             'OS-EXT-SRV-ATTR:reservation_id': 'r'}))]
    found = client.create_group('g', 3, {'virtco:tm': 'x'})
    (method, url, timeout, given), listed = nova.asked
    assert (method, url, timeout) == ('POST', 'http://nova/v2.1/servers', 7.0)
    assert given['json'] == {
        'server': {'name': 'g', 'imageRef': nova_client.IMAGE,
                   'flavorRef': 'slot1', 'networks': 'none',
                   'min_count': 3, 'max_count': 3,
                   'return_reservation_id': True},
        'os:scheduler_hints': {'virtco:tm': 'x'}}
    assert listed[:2] == ('GET', 'http://nova/v2.1/servers/detail')
    assert listed[3] == {'params': {'reservation_id': 'r'}}
    assert found == [
        nova_client.Server('g-1-id', 'g-1', 'ACTIVE', 0, None, 'f'),
        nova_client.Server('a-id', 'a', 'ACTIVE', 1, 'h1', None, 'r'),
        nova_client.Server('g-2-id', 'g-2', 'ACTIVE', 1, None)]


def test_a_group_may_have_further_fields(client, nova):
    nova.answers = [(202, {'reservation_id': 'r'}), _listed()]
    client.create_group('g', 1, {}, flavor='slot2', metadata={'m': 'n'})
    server = nova.asked[0][3]['json']['server']
    assert (server['flavorRef'], server['metadata']) == ('slot2', {'m': 'n'})


def test_servers_are_waited_for_until_all_are_active(client, nova):
    nova.answers = [_listed(_body('a', 'BUILD'), _body('other')),
                    _listed(_body('a', 'ACTIVE'), _body('b', 'BUILD')),
                    _listed(_body('b'), _body('a'))]
    counts = []
    found = client.wait_active([_server('a', 'r'), _server('b', 'r')],
                               counts.append)
    assert [one.name for one in found] == ['a', 'b']
    assert counts == [0, 1, 2] and nova.notes == [2, 1]
    # Of one request: Nova lists no others.
    assert [given for *_, given in nova.asked] == 3 * [
        {'params': {'reservation_id': 'r'}}]
    # Before each question, for those that are left.
    assert nova.pauses_s == [0.3, 0.3, 0.3]


def test_active_servers_are_asked_for_at_once_where_they_are(client, nova):
    nova.answers = [_listed(_body('a'), _body('b'))]
    client.wait_active([_server('a', 'r', 'ACTIVE'),
                        _server('b', 's', 'ACTIVE')])
    assert nova.pauses_s == []
    assert nova.asked[0][3] == {'params': {}}
    nova.answers = [_listed(_body('a'))]
    client.wait_active([_server('a', None, 'ACTIVE')])
    assert nova.asked[1][3] == {'params': {}}


def test_a_server_that_fails_says_why(client, nova):
    nova.answers = [_listed(_body('a', 'ERROR')), (200, {'server': _body(
        'a', 'ERROR', fault={'message': 'No valid host'})})]
    with pytest.raises(nova_client.NovaError,
                       match='did not build a: No valid host'):
        client.wait_active([_server('a')])
    assert nova.asked[-1][:2] == ('GET', 'http://nova/v2.1/servers/a-id')


@pytest.mark.parametrize(('idle_s', 'is_over'), [(5.0, False), (5.1, True)])
def test_servers_of_which_nothing_advances_are_given_up(client, nova, idle_s,
                                                        is_over):
    nova.idle_s = idle_s
    nova.answers = [_listed(_body('a', 'BUILD')), _listed(_body('a'))]
    if is_over:
        with pytest.raises(nova_client.NovaError, match=(
                'did not build 1 servers: 0 are ACTIVE, and nothing advanced '
                'for 5 s')):
            client.wait_active([_server('a')], stall_s=5.0)
        nova.answers = [(204, None), _listed(_body('a'))]
        with pytest.raises(nova_client.NovaError, match=(
                'did not delete 1 servers: 1 are left, and nothing')):
            client.delete([_server('a')], stall_s=5.0)
    else:
        client.wait_active([_server('a')], stall_s=5.0)


def test_deleted_servers_are_waited_for_until_they_are_gone(client, nova):
    nova.answers = [(204, None), (404, 'gone'),
                    _listed(_body('a'), _body('b'), _body('other')),
                    _listed(_body('b')), _listed(_body('other'))]
    counts = []
    client.delete(iter([_server('a'), _server('b')]), counts.append)
    assert [one[:2] for one in nova.asked[:2]] == [
        ('DELETE', f'http://nova/v2.1/servers/{name}-id') for name in 'ab']
    assert counts == nova.notes == [2, 1]
    assert len(nova.pauses_s) == 2


@pytest.mark.parametrize(('n_left', 'since_s', 'pause_s'), [
    (1, 0.0, 0.3), (3, 0.0, 0.3), (10, 0.0, 1.0), (100, 0.0, 2.0),
    (1, 0.5, 1.0), (100, 3.0, 6.0)])
def test_many_servers_and_slow_answers_are_asked_for_less_often(
        nova, n_left, since_s, pause_s):
    nova_client._pause(nova.now_s - since_s, n_left)
    assert nova.pauses_s == [pytest.approx(pause_s)]


def test_what_nova_refuses_is_told(client, nova):
    nova.answers = [(409, 'x' * 400)]
    with pytest.raises(nova_client.NovaError) as caught:
        client.list_servers()
    assert str(caught.value) == f'Nova did not list: HTTP 409 {"x" * 300}.'
    nova.answers = [(404, 'none')]
    with pytest.raises(nova_client.NovaError, match='HTTP 404 none'):
        client.get_server('u')
    nova.answers = [(500, 'oops')]
    with pytest.raises(nova_client.NovaError, match='HTTP 500'):
        client.delete([_server('a')])
    nova.answers = [(requests.ConnectionError('refused'), None)]
    with pytest.raises(nova_client.NovaError, match='list: refused'):
        client.list_servers()
