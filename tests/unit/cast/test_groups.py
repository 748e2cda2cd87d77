# SPDX-License-Identifier: Apache-2.0

"""What a cast asks a controller and tells it, with a client in memory."""

import threading

import pytest

from tests import patience
from tests.unit.osc import controller
from virtco import exception
from virtco.wire import coflow_bodies as coflow_wire
from virtco.wire import group as wire
from virtco_tenant import session
from virtco_tenant.cast import groups


def member(number, cluster, **values):
    return {'addresses': [f'10.0.0.{number}'], 'display_name': f'v{number}',
            'instance_uuid': f'uuid-{number}', 'cluster': cluster} | values


class Client:
    """A controller that knows one group."""

    def __init__(self, session=None):
        self.session = session
        self.told = []

    def call(self, operation, *args, **values):
        self.told.append((*args, values) if values else args)
        if operation == coflow_wire.ANNOUNCE:
            return coflow_wire.Coflows([
                controller.made(coflow_wire.Coflow, id=coflow_id)
                for coflow_id in ('7', '8')])
        return controller.made(wire.Clusters, group_id='g', members=[
            member(0, 'r0'), member(1, 'r1'),
            # One that is not built yet has neither name nor id.
            member(2, None, display_name='', instance_uuid=None)])


@pytest.fixture
def group(monkeypatch):
    monkeypatch.setattr(groups.v1, 'Client', Client)
    monkeypatch.setenv('OS_AUTH_TYPE', 'none')
    return groups.Group('name')


def names(*found):
    return frozenset(found)


def test_clusters_by_each_name_of_a_member(group):
    assert group._client.told == [('name',)]
    assert group._client.session is None
    assert group.clusters() == {
        name: f'r{number}' for number in (0, 1)
        for name in (f'10.0.0.{number}', f'v{number}', f'uuid-{number}')}


def test_what_is_left_is_announced_by_rows(group):
    found = group.announce('cast-v0', {
        (names('v0', 'x'), names('y', '10.0.0.1')): 5.0,
        (names('v1'), names('10.0.0.2')): 6.0,
        # Neither who is not of the group, nor what one sends to itself.
        (names('v0'), names('stranger')): 7.0,
        (names('stranger'), names('v0')): 8.0,
        (names('v0'), names('10.0.0.0')): 9.0})
    assert found == ['7', '8']
    assert group._client.told[1:] == [
        ('g', 'cast-v0', {'n': 3, 'flows': [[0, 1, 5.0], [1, 2, 6.0]]},
         180.0)]


@pytest.mark.parametrize('left', [
    None, {}, {(names('x'), names('v0')): 1.0}])
def test_nothing_that_concerns_the_group_is_no_coflow(group, left):
    assert group.announce('cast', left) == []
    assert group._client.told[1:] == []


def test_a_coflow_ends(group):
    group.end('7')
    assert group._client.told[1:] == [('7', {'state': 'done'})]


class Group:
    """Notes what it is told; fails as often as the test says."""

    def __init__(self, n_failures=0):
        self.n_failures = n_failures
        self.told = []

    def announce(self, name, left):
        self.told.append((name, left))
        if len(self.told) <= self.n_failures:
            raise exception.ControllerUnavailable(
                url='u', why=f'away {len(self.told)}')
        return [str(len(self.told))]

    def end(self, coflow_id):
        self.told.append(coflow_id)


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(groups, '_LOOK_S', 0.001)
    monkeypatch.setattr(groups, 'RENEW_S', 0.001)


def test_the_cast_is_announced_anew_until_it_ends(soon):
    group, said, left = Group(), [], iter([None, {}, {'x': 3}])
    with groups.announced(group, 'cast', lambda: next(left, {'x': 2}),
                          said.append):
        patience.wait_for(lambda: len(group.told) > 2, 'announcements')
    *announced, last = group.told
    assert announced[0] == ('cast', {'x': 3})
    assert set(map(str, announced[1:])) == {str(('cast', {'x': 2}))}
    # The newest one is ended.
    assert last == str(len(announced)) and said == []


def test_a_controller_that_is_away_is_told_once(soon):
    group, said = Group(n_failures=2), []
    with groups.announced(group, 'cast', lambda: {'x': 1}, said.append):
        patience.wait_for(lambda: len(group.told) > 2, 'announcements')
    (text,) = said
    assert 'does not schedule this cast' in text and 'away 1' in text
    assert isinstance(group.told[-1], str)


def test_what_was_announced_before_is_ended_though_the_controller_went(soon):
    class Going(Group):
        def announce(self, name, left):
            self.told.append((name, left))
            if len(self.told) > 1:
                raise OSError('gone')
            return ['first']

    group, said = Going(), []
    with groups.announced(group, 'cast', lambda: {'x': 1}, said.append):
        patience.wait_for(lambda: said, 'the trouble')
    assert group.told[-1] == 'first'


def test_a_coflow_is_ended_though_its_announcement_was_under_way(soon):
    """No thread outlives the cast: neither its end nor its process."""
    begun, goes_on = threading.Event(), threading.Event()

    class Slow(Group):
        def announce(self, name, left):
            self.is_daemon = threading.current_thread().daemon
            begun.set()
            goes_on.wait(patience.LIMIT_S)
            return ['late']

    group = Slow()
    with groups.announced(group, 'cast', lambda: {'x': 1}, pytest.fail):
        assert begun.wait(patience.LIMIT_S)
        threading.Timer(0.02, goes_on.set).start()
    assert group.told == ['late'] and group.is_daemon


def test_who_asks(monkeypatch):
    for name in ('OS_AUTH_TYPE', 'OS_AUTH_URL', 'OS_CACERT'):
        monkeypatch.delenv(name, raising=False)
    assert session.of_environment() is None
    monkeypatch.setenv('OS_AUTH_URL', 'http://keystone')
    monkeypatch.setenv('OS_USERNAME', 'me')
    auth = session.of_environment().auth
    assert auth.auth_url == 'http://keystone'
    for path, verify in (('', True), ('/ca.pem', '/ca.pem')):
        monkeypatch.setenv('OS_CACERT', path)
        assert session.of_environment().verify == verify
    monkeypatch.setenv('OS_AUTH_TYPE', 'no-such')
    with pytest.raises(exception.Invalid,
                       match='OS_AUTH_TYPE: .*, got no-such'):
        session.of_environment()
    monkeypatch.setenv('OS_AUTH_TYPE', 'none')
    assert session.of_environment() is None


def test_how_often_it_is_announced():
    assert (groups.RENEW_S, groups.EXPIRES_S) == (60, 180)
