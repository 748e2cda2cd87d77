# SPDX-License-Identifier: Apache-2.0

"""``virtco-manage`` and ``virtco-status``, as an operator calls them."""

import contextlib
import importlib
import sqlite3

import pytest

from virtco.db import migration


@pytest.fixture
def run(tmp_path, capsys):
    """(exit code, out, err) of a command with a configuration of its own."""
    def call(command, *argv, options=''):
        config = tmp_path / 'virtco.conf'
        config.write_text(f'[controller]\nstate_dir = {tmp_path}/state\n'
                          + options)
        main = importlib.import_module(f'virtco.cmd.{command}').main
        code = main(['--config-file', str(config), *argv])
        return code, *capsys.readouterr()
    return call


def test_the_schema_is_brought_up_to_date(run):
    head = migration.head()
    assert run('manage', 'db', 'version')[:2] == (
        0, f'database empty, code {head}\n')
    code, out, _err = run('status', 'upgrade', 'check')
    assert code == 2
    assert 'The schema is at nothing' in ' '.join(out.replace('|', '').split())
    assert run('manage', 'db', 'sync')[:2] == (0, f'{head}\n')
    assert run('manage', 'db', 'sync')[:2] == (0, f'{head}\n')
    code, out, _err = run('manage', 'db', 'purge', '--days', '0')
    assert (code, 'coflows: 0 deleted' in out) == (0, True)


def test_a_schema_of_another_version_is_one_line(run, tmp_path):
    run('manage', 'db', 'sync')
    with contextlib.closing(sqlite3.connect(
            tmp_path / 'state' / 'virtco.sqlite')) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '019'")
        connection.commit()
    why = 'schema of the database: expected one that this version knows ('
    code, out, err = run('manage', 'db', 'sync')
    (line,) = err.splitlines()
    assert (code, out) == (1, '')
    assert line.startswith(f'virtco-manage: {why}')
    assert 'virtco-manage rebuild' in line
    code, out, _err = run('status', 'upgrade', 'check')
    assert code == 2
    assert why in ' '.join(out.replace('|', '').split())


def test_what_an_upgrade_would_meet(run):
    run('manage', 'db', 'sync')
    credentials = '[nova]\nauth_type = password\n'
    assert run('status', 'upgrade', 'check', options=credentials)[0] == 0
    # 1: warnings only.
    for options, text in (
            ('', 'keeps its bandwidth'),
            (credentials + '[api]\nhost = 0.0.0.0\n', 'is an operator'),
            (credentials + '[api]\nauth_strategy = keystone\n',
             'a user called as its [edge] host'),
            (credentials + '[placement]\nbudget_s = 5\n',
             'plans come too late')):
        code, out, _err = run('status', 'upgrade', 'check', options=options)
        assert code == 1
        assert text in ' '.join(out.replace('|', '').split()), out


@pytest.mark.parametrize('command', [
    ('manage', 'db', 'sync'), ('status', 'upgrade', 'check')])
def test_no_database_is_no_stack(run, command):
    code, out, err = run(*command, options=(
        '[database]\nconnection = sqlite:////proc/none/virtco.sqlite\n'))
    assert code != 0
    assert '/proc/none' in out + err
    assert 'Traceback' not in out + err
