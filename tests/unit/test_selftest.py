# SPDX-License-Identifier: Apache-2.0

"""Tests that a controller makes of itself while it runs."""

import types

from keystoneauth1 import exceptions as ks_exceptions
import pytest
import sqlalchemy as sa

from tests.unit.api import service
from virtco import selftest
from virtco.api import health_report
from virtco.cmd import controller
from virtco.db import migration
from virtco.db import session as db_session
from virtco.wire import health


@pytest.fixture(scope='module')
def rooms():
    found = service.Service().rooms
    yield found
    found.database.dispose()


@pytest.mark.parametrize('words, code', [
    ('(sqlite3.OperationalError) database or disk is full', 'VC-022'),
    ('[Errno 28] No space left on device', 'VC-022'),
    ("The table 'events' is full", 'VC-022'),
    ('attempt to write a readonly database', 'VC-021'),
    ('running with the --read-only option', 'VC-021'),
    ('cannot execute DELETE in a read-only transaction', 'VC-021'),
    ('connection refused', 'VC-020')])
def test_the_words_of_a_database_tell_why(words, code):
    assert selftest._code_of(words) == code


def test_a_database_that_may_only_be_read(tmp_path):
    path = tmp_path / 'x'
    path.touch()
    database = db_session.Database(f'sqlite:///file:{path}?mode=ro&uri=true')
    found, = selftest.writes(database)
    database.dispose()
    assert found.code == 'VC-021'


def test_a_database_that_begins_and_takes_no_write(tmp_path):
    database = db_session.Database(f'sqlite:///{tmp_path}/x')
    migration.upgrade(database)
    database.dispose()
    sa.event.listen(database.engine, 'connect', lambda connection, _: (
        connection.execute('PRAGMA query_only = 1')))
    found, = selftest.writes(database)
    database.dispose()
    assert found.code == 'VC-021'


def test_a_file_that_takes_a_write_now_and_not_before_long(
        tmp_path, monkeypatch, rooms):
    assert not list(selftest.writes(rooms.database))
    monkeypatch.setattr(selftest, '_has_room', lambda path: iter([path]))
    database = db_session.Database(f'sqlite:///{tmp_path}/x')
    migration.upgrade(database)
    assert list(selftest.writes(database)) == [f'{tmp_path}/x']
    database.dispose()


@pytest.mark.parametrize('blocks, codes', [
    (4096, []), (4095, ['VC-022']), (0, ['VC-022'])])
def test_a_disk_with_less_than_16_mib_is_full(monkeypatch, tmp_path, blocks,
                                              codes):
    monkeypatch.setattr(selftest.os, 'statvfs', lambda path:
                        types.SimpleNamespace(f_bavail=blocks, f_frsize=4096))
    found = list(selftest._has_room(str(tmp_path / 'none' / 'db')))
    assert [one.code for one in found] == codes
    assert all(f'{tmp_path}: {4096 * blocks} bytes' in one.finding
               for one in found)


def test_a_directory_that_is_not_writable(monkeypatch, tmp_path):
    monkeypatch.setattr(selftest.os, 'access', lambda path, mode: False)
    found, = selftest._has_room(str(tmp_path / 'db'))
    assert found == health.Problem('VC-021', f'{tmp_path} is not writable')


def test_what_is_found_is_logged_once(rooms, monkeypatch, caplog):
    found = [health.Problem('VC-031', '[nova]: 401'),
             health.Problem('VC-003', '[api] prot')]
    monkeypatch.setattr(selftest, 'repeated', lambda *_args: iter(found))
    for _ in range(2):
        rooms._test_itself()
    assert rooms.problems == tuple(found)
    assert [(one.levelname, one.message) for one in caplog.records] == [
        ('ERROR', 'VC-031: [nova]: 401'), ('WARNING', 'VC-003: [api] prot')]
    del found[:]
    rooms._test_itself()
    assert rooms.problems == ()


@pytest.mark.parametrize('codes, works, status', [
    ([], True, 'ok'), (['VC-003'], True, 'ok'), (['VC-031'], True, 'degraded'),
    (['VC-003', 'VC-031'], True, 'degraded'), (['VC-031'], False, 'failing')])
def test_health_is_degraded_by_errors_alone(codes, works, status):
    part = types.SimpleNamespace(
        is_alive=lambda: works, is_answered=lambda: True)
    serves, found = health_report.Document(types.SimpleNamespace(
        metrics=None, starting=types.SimpleNamespace(what=None), plans=True,
        place=part, decide=part, distribute=part, elector=part,
        keeps=lambda: True, n_hosts=lambda: 0, leadership=lambda: {
            'epoch': 1, 'here': True, 'reached': True},
        objects=types.SimpleNamespace(
            settings=types.SimpleNamespace(is_shadow=False)),
        problems=[health.Problem(code, 'x') for code in codes])).health()
    assert (serves, found.status) == (works, status)
    assert [one.code for one in found.problems] == codes


@pytest.mark.parametrize('is_directory', [False, True])
@pytest.mark.parametrize('login, codes', [
    ('auth_type = none', []), ('insecure = true', ['VC-032']),
    ('auth_type = none\ncafile = /none.pem', ['VC-033'])])
def test_the_account_that_checks_tokens_is_read_from_the_files(
        tmp_path, login, codes, is_directory):
    text = ('[api]\nauth_strategy = keystone\n'
            f'[keystone_authtoken]\n{login}\n')
    (tmp_path / 'virtco.conf').write_text(text)
    conf = controller.make_conf(
        ['--config-dir', str(tmp_path)] if is_directory else
        ['--config-file', str(tmp_path / 'virtco.conf')])
    assert [one.code for one in selftest.tokens(conf)] == codes
    # The middleware registers options of its own there.
    assert 'keystone_authtoken' not in conf


def configured(directory, text):
    path = directory / 'virtco.conf'
    path.write_text(text)
    return controller.make_conf(['--config-file', str(path)])


@pytest.mark.parametrize('status, code', [
    (401, 'VC-031'), (403, 'VC-031'), (404, 'VC-030'), (500, 'VC-030')])
def test_what_keystone_answers(tmp_path, monkeypatch, status, code):
    def get_token(_session):
        raise ks_exceptions.http.from_response(types.SimpleNamespace(
            status_code=status, headers={}, text='x' * 300, json=dict),
            'POST', 'u')

    monkeypatch.setattr(selftest.loading.session.Session, 'load_from_options',
                        lambda *_args, **given: types.SimpleNamespace(
                            get_token=lambda: get_token(given)))
    conf = configured(tmp_path, '[nova]\nauth_type = none\n')
    found, = selftest.tokens(conf)
    assert found.code == code and found.finding.startswith('[nova]: ')


@pytest.mark.parametrize('text, found', [
    ('[api]\nport = 1\n[oslo_policy]\npolicy_file = x\n', []),
    ('[api]\nprot = 1\n', [('VC-003', '[api] prot, port is meant perhaps')]),
    ('[api]\nqqq = 1\n', [('VC-003', '[api] qqq')]),
    ('[DEFAULT]\ndebug = true\nlog-file = x\n', []),
    ('[scheduleer]\nx = 1\n', [
        ('VC-004', '[scheduleer], scheduler is meant perhaps')]),
    ('[qqq]\nx = 1\n', [('VC-004', '[qqq]')]),
    ('[oslo_policy]\npolicy_file = x\n[qqq]\nx = 1\n', [
        ('VC-004', '[qqq]')]),
    ('[oslo_messaging_rabbit]\nssl = true\nsls = true\n', [
        ('VC-003', '[oslo_messaging_rabbit] sls, ssl is meant perhaps')]),
    ('[nova]\nauth_type = password\nuser-name = u\npasword = p\n', [
        ('VC-003', '[nova] pasword, password is meant perhaps')]),
    ('[keystone_authtoken]\nauth_type = password\npasword = p\n', [
        ('VC-003', '[keystone_authtoken] pasword, password is meant')]),
    ('[nova]\nauth_type = qqq\npasword = p\n', []),
    ('[nova]\nauth_url = u\n', [('VC-003', '[nova] auth_url')])])
def test_options_that_nothing_reads(tmp_path, text, found):
    told = list(selftest.unknown(configured(tmp_path, text)))
    assert [(one.code, one.finding[:len(words)]) for one, (_, words)
            in zip(told, found, strict=True)] == found


@pytest.mark.parametrize('text, n_chosen', [
    ('[oslo_messaging_rabbit]\nsls = true\n', 1), ('[nova]\nqqq = 1\n', 0)])
def test_threads_are_chosen_before_the_message_bus_is_loaded(
        tmp_path, monkeypatch, text, n_chosen):
    chosen = []
    monkeypatch.setattr(selftest.listener, 'choose_threads',
                        lambda: chosen.append(True))
    assert len(list(selftest.unknown(configured(tmp_path, text)))) == 1
    assert len(chosen) == n_chosen


def test_a_database_before_the_start(tmp_path, monkeypatch):
    conf = configured(tmp_path, f'[controller]\nstate_dir = {tmp_path}/s\n')
    assert not list(selftest._of_database(conf))
    assert not (tmp_path / 's').exists()
    disposed = []
    for revision, is_sqlite, codes in (
            (migration.head(), False, ['written']),
            ('older', True, []), ('older', False, ['VC-023']),
            ('newer', True, ['VC-023']), (None, False, ['VC-023'])):
        monkeypatch.setattr(selftest.migration, 'is_known',
                            lambda found: found != 'newer')
        monkeypatch.setattr(selftest.migration, 'current',
                            lambda _: revision)
        monkeypatch.setattr(selftest, 'writes', lambda _: iter(
            [health.Problem('written', '')]))
        monkeypatch.setattr(
            selftest.db_session.Database, 'from_conf',
            lambda _: types.SimpleNamespace(
                is_sqlite=is_sqlite, dispose=lambda: disposed.append(1)))
        monkeypatch.setattr(selftest.db_session, 'file_of', lambda _: '')
        assert [one.code for one in selftest._of_database(conf)] == codes
    assert len(disposed) == 5


def test_the_certificate_of_edge_modules_is_tested(tmp_path):
    found = list(selftest.certificates(types.SimpleNamespace(
        cert_file='/none/a', key_file='/none/b', client_ca_file='/none/c',
        ca_file='/none/d')))
    assert [(one.code, one.finding[:23]) for one in found] == [
        ('VC-040', f'[distributor] /none/{name}: '[:23]) for name in 'abcd']
