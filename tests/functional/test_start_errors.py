# SPDX-License-Identifier: Apache-2.0

"""What stops a command from starting is one line on stderr."""

import configparser
import importlib
import pathlib
import subprocess
import sys

import pytest

from tests import forks

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
import sys
# What is known of the packages below must be found missing anew.
for name in [name for name in sys.modules if sys.argv[1]
             and name.partition('.')[0] in ('virtco', 'edge_module')]:
    del sys.modules[name]
from virtco.cmd import entry
sys.modules.update(dict.fromkeys(sys.argv[1].split()))
program = getattr(entry, sys.argv[2], None)
if program is None:
    from virtco_lab.cmd import sim
    program = sim.main
del sys.argv[1:3]
sys.exit(program())
"""
# What these import that no controller does.
WARM = {'edge': ['edge_module.cmd'], 'sim': ['virtco_lab.cmd.sim']}
WITH_EMPTY_STATE = '[api]\nport = 0\n[controller]\nstate_dir = {tmp}\n'


@pytest.fixture
def refused(tmp_path):
    """The one line of a command that does not start."""
    def call(command, *argv, config=None, without='', is_exec=False):
        if config is not None:
            path = tmp_path / 'virtco.conf'
            path.write_text(config.replace('{tmp}', str(tmp_path)))
            argv = ('--config-file', str(path), *argv)
        words = [sys.executable, '-c', PROGRAM, without, command,
                 *(arg.replace('{tmp}', str(tmp_path)) for arg in argv)]
        done = (subprocess.run(words, capture_output=True, text=True,
                               check=False) if is_exec
                else forks.run(words, warm=WARM.get(command, ())))
        assert done.returncode not in (0, -11), done.stdout
        line, = done.stderr.splitlines()
        assert 'Traceback' not in done.stdout
        # Nowhere a second time.
        assert line.partition(': ')[2] not in done.stdout
        return line
    return call


@pytest.mark.parametrize('command, argv', [
    ('controller', ()), ('edge', ()), ('manage', ('db', 'version')),
    ('status', ('upgrade', 'check'))])
@pytest.mark.parametrize('path, why', [
    ('{tmp}/missing.conf', 'Failed to find some config files'),
    ('{tmp}', 'Is a directory'),
    ('/bin/true', 'not in UTF-8')])
def test_a_configuration_that_cannot_be_read(refused, command, argv, path,
                                             why):
    line = refused(command, '--config-file', path, *argv)
    assert line.startswith(f'virtco-{command} cannot start: ')
    assert why in line


@pytest.mark.parametrize('command, config, why', [
    ('controller', '[api]\nauth_strategy = basic\n',
     "[api] auth_strategy: Valid values are [noauth, keystone], but found "
     "'basic', in {tmp}/virtco.conf"),
    ('controller', '[scheduler]\norder = best\n', '[scheduler] order: Valid'),
    ('controller', '[api]\nport = 70000\n', '[api] port: Should be less'),
    ('controller', 'port\n', "No ':' or '=' found"),
    ('controller', '[DEFAULT]\nlog_file = {tmp}/none/log\n',
     'the log: [Errno 2]'),
    ('controller', '[database]\nconnection = sqlite\n',
     "known to SQLAlchemy, got 'sqlite'."),
    ('edge', '[edge]\nports_backend = magic\n', '[edge] ports_backend: Valid'),
    ('edge', '[edge]\nuplink_dev =\n',
     '[edge] uplink_dev: expected the name of a network device, got nothing'),
    ('edge', '[edge]\nuplink_dev = lo\nuser = nobody at all\n',
     '[edge] user: expected a user of this machine, got nobody at all'),
    ('edge', '[edge]\nuplink_dev = lo\nuser = nobody\n'
     'helper_user = nobody at all\n',
     '[edge] helper_user: expected a user of this machine')])
def test_a_value_that_cannot_be(refused, tmp_path, command, config, why):
    assert why.replace('{tmp}', str(tmp_path)) in refused(
        command, config=config)


@pytest.mark.parametrize('config, why', [
    ('[database]\nconnection = mysql+pymysql://u:secret@127.0.0.1/x\n',
     'pip install PyMySQL'),
    ('[oslo_policy]\npolicy_file = none.yaml\n',
     '[oslo_policy] policy_file: expected a readable file, got none.yaml'),
    ('[nova]\nauth_type = none such\n', '[nova] auth_type: expected a way to'),
    ('[notifications]\ntransport_url = tin+can://x\n',
     '[notifications] transport_url: expected the URL of a transport')])
def test_what_is_found_out_behind_the_port(refused, config, why):
    line = refused('controller', config=WITH_EMPTY_STATE + config,
                   without='pymysql')
    assert why in line
    assert 'secret' not in line


def test_a_log_elsewhere_has_the_line_too(refused, tmp_path):
    line = refused('controller', config=(
        '[DEFAULT]\nlog_file = {tmp}/log\n[api]\nport = 0\n'
        '[controller]\nstate_dir = /proc/none\n'))
    text = (tmp_path / 'log').read_text()
    assert text.count(line) == 1
    assert text.count('/proc/none') == 1


def test_managing_a_database_that_cannot_be(refused):
    mysql = '[database]\nconnection = mysql+pymysql://u@127.0.0.1/x\n'
    assert 'pip install PyMySQL' in refused(
        'manage', 'db', 'sync', config=mysql, without='pymysql')


@pytest.mark.parametrize('command, argv, package, extra', [
    ('controller', (), 'waitress', 'controller'),
    ('edge', ('--check',), 'pyroute2', 'edge'),
    ('manage', ('db', 'version'), 'alembic', 'controller'),
    ('shell', ('coflow', 'list'), 'cliff', 'osc'),
    ('status', ('upgrade', 'check'), 'oslo_upgradecheck', 'controller')])
def test_a_package_that_is_not_installed(refused, command, argv, package,
                                         extra):
    config = ('[edge]\nuplink_dev = lo\nports_backend = static\n'
              if command == 'edge' else None)
    line = refused(command, *argv, config=config, without=package)
    assert f'the Python package {package} is not installed' in line
    assert f"pip install 'SOURCE[{extra}]'" in line


def test_a_package_that_is_missed_behind_the_port(refused):
    # As a whole: its interpreter ends while others of its threads run.
    line = refused('controller', config=WITH_EMPTY_STATE, without='falcon',
                   is_exec=True)
    assert "falcon is not installed; the extra controller of virtco" in line


@pytest.mark.parametrize('argv, why', [
    (('run', '--table2', 'medium', '--seed', 'x'), ", got 'x'"),
    (('run', '--table2', 'medium', '--seed', '-1'), ", got '-1'"),
    (('run', '--table2', 'medium', '--seed', '4294967296'), 'and 4294967295'),
    (('run', '--trace', 'x', '--rate', '5GB'), 'such as 5Gbit'),
    (('run', '--trace', '{tmp}/none'), '{tmp}/none'),
    (('reproduce', 'all', '--output', '/proc/none'),
     'argument --output: cannot write to /proc/none'),
    (('generate', 'table2', '{tmp}'), 'cannot write to {tmp}: Is a dir'),
    (('generate', 'facebook-like', '{tmp}/none/x'),
     'cannot write to {tmp}/none/x: No such file'),
    (('reproduce', 'fig99'), "invalid choice: 'fig99'")])
def test_arguments_of_the_simulator(refused, tmp_path, argv, why):
    line = refused('sim', *argv)
    assert line.startswith('virtco-sim')
    assert why.replace('{tmp}', str(tmp_path)) in line


def test_every_program_starts_through_its_entry_point():
    setup = configparser.ConfigParser()
    setup.read(ROOT / 'setup.cfg')
    scripts = setup['entry_points']['console_scripts'].split('\n')
    for script in filter(None, scripts):
        module, _, function = script.partition(' = ')[2].partition(':')
        assert module == 'virtco.cmd.entry'
        assert callable(getattr(importlib.import_module(module), function))
