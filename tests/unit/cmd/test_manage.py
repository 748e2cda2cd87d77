# SPDX-License-Identifier: Apache-2.0

"""``virtco-manage`` on a database in a file, with servers of a made cloud."""

import logging

import pytest

from tests.unit.follow import test_rebuild as cloud
from virtco.cmd import manage
from virtco.db import leader
from virtco.db import models
from virtco.db import session as db_session


@pytest.fixture
def config(tmp_path):
    """A configuration file; what a program logs to ends with the test."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    path = tmp_path / 'virtco.conf'
    path.write_text(f'[controller]\nstate_dir = {tmp_path}\n'
                    f'[DEFAULT]\nlog_file = {tmp_path}/log\n'
                    '[nova]\nauth_type = none\n')
    yield path
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def run(config, capsys):
    def call(*argv):
        code = manage.main(['--config-file', str(config), *argv])
        return code, capsys.readouterr().out

    assert call('db', 'sync')[0] == 0
    return call


@pytest.fixture
def database(config):
    found = db_session.Database(f'sqlite:///{config.parent}/virtco.sqlite')
    yield found
    found.dispose()


def test_who_leads_is_shown(run, database):
    with database.writer() as session:
        leader.take_over(session, leader.current(session), 'ctl1', 'a:1')
    assert run('epoch', 'show') == (0, 'epoch 1, ctl1 leads\n')
    assert run('epoch', 'raise', '9')[0] == 0
    assert run('epoch', 'show') == (0, 'epoch 9, nobody leads\n')


@pytest.mark.parametrize('days', ['-1', 'nan', 'inf', 'x'])
def test_a_purge_keeps_a_number_of_days(run, capsys, days):
    with pytest.raises(SystemExit):
        run('db', 'purge', f'--days={days}')
    assert f"at least 0, got '{days}'" in capsys.readouterr().err


class Nova:
    """A cloud with one good group and many servers with a broken hint."""

    n_broken = 20

    def __init__(self, conf):
        assert conf.nova.auth_type == 'none'

    def all_servers(self):
        yield from (cloud.body(row) for row in range(2))
        for number in range(self.n_broken):
            yield cloud.body(number, id=f'bad-{number}', tenant_id='q',
                             scheduler_hints={'virtco:tm': '[[0]]'})


@pytest.mark.parametrize('n_broken, n_more', [(20, 0), (22, 2)])
def test_groups_are_rebuilt_from_nova(run, database, monkeypatch, n_broken,
                                      n_more):
    monkeypatch.setattr(manage.nova, 'Nova', Nova)
    monkeypatch.setattr(Nova, 'n_broken', n_broken)

    def n_groups():
        with database.reader() as session:
            return session.query(models.Group).count()

    n_servers = n_broken + 2
    for argv, would, left in ((('--dry-run',), 'would be ', 0), ((), '', 1)):
        code, told = run('rebuild', *argv)
        lines = told.splitlines()
        assert code == 0 and n_groups() == left
        skipped = [line for line in lines if line.startswith(
            'skipped bad-') and ' of project q: ' in line]
        assert len(skipped) == 20
        assert lines[20:] == [f'and {n_more} more'] * bool(n_more) + [
            f'1 groups with 2 VMs {would}rebuilt of {n_servers} servers, '
            f'{n_broken} skipped']


@pytest.mark.parametrize('argv', [('db',), ('epoch',), ()])
def test_a_command_without_its_action_is_told_how_it_is_used(config, argv,
                                                            capsys):
    with pytest.raises(SystemExit) as ended:
        manage.main(['--config-file', str(config), *argv])
    assert ended.value.code == 2
    assert 'usage: virtco-manage' in capsys.readouterr().err


def test_what_goes_wrong_is_logged_where_the_file_says(run, config):
    assert (config.parent / 'log').exists()
