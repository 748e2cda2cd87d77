# SPDX-License-Identifier: Apache-2.0

"""Tests that a controller makes of itself while it runs."""

import types

import pytest

from tests.unit.api import service
from virtco import problems
from virtco import selftest
from virtco.api import health_report
from virtco.cmd import controller
from virtco.db import session as db_session


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
    assert found == problems.Problem('VC-021', f'{tmp_path} is not writable')


def test_what_is_found_is_logged_once(rooms, monkeypatch, caplog):
    found = [problems.Problem('VC-031', '[nova]: 401'),
             problems.Problem('VC-003', '[api] prot')]
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
    serves, found = health_report.document(types.SimpleNamespace(
        starting=types.SimpleNamespace(what=None), place=part, plans=True,
        decide=part, distribute=part, elector=part, keeps=lambda: True,
        n_hosts=lambda: 0, leadership=lambda: {
            'epoch': 1, 'here': True, 'reached': True},
        objects=types.SimpleNamespace(
            settings=types.SimpleNamespace(is_shadow=False)),
        problems=[problems.Problem(code, 'x') for code in codes]))
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
