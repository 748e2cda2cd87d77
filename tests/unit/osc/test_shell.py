# SPDX-License-Identifier: Apache-2.0

import configparser
import io
import logging
import pathlib
import re
import shlex
import sys

from keystoneauth1 import session as ks_session
import pytest

from virtco import exception
from virtco.osc import shell

ROOT = pathlib.Path(__file__).parents[3]
#: Verbs of which "coflow" is the noun in both shells.
OF_COFLOWS = {'create', 'list', 'show', 'set', 'delete'}


@pytest.mark.parametrize('login', [
    [],
    ['--os-auth-type', 'password', '--os-auth-url', 'https://192.0.2.1/v3',
     '--os-username', 'u', '--os-password', 'p']])
def test_the_authority_counts_with_and_without_a_login(login, monkeypatch):
    made = []
    monkeypatch.setattr(shell.v1, 'Client',
                        lambda url, session, timeout_s: made.append(session))
    # keystoneauth looks there for the options of the way to log in.
    monkeypatch.setattr(sys, 'argv', ['virtco', *login])
    options = shell.Shell().build_option_parser('', '').parse_args(
        [*login, '--os-cacert', '/etc/ca.pem'])
    assert shell.ClientManager(options).at('https://192.0.2.5') is None
    session, = made
    assert isinstance(session, ks_session.Session)
    assert session.verify == '/etc/ca.pem'


def _options(argv, monkeypatch):
    monkeypatch.setattr(sys, 'argv', ['virtco', *argv])
    return shell.Shell().build_option_parser('', '').parse_args(argv)


def test_the_client_is_made_once(monkeypatch):
    manager = shell.ClientManager(_options(
        ['--controller-url', 'http://192.0.2.7/', '--http-timeout', '3.5'],
        monkeypatch))
    assert manager.coflow is manager.coflow
    assert manager.coflow.url == 'http://192.0.2.7'
    assert manager.session is None


OPENRC = {'OS_AUTH_URL': 'https://192.0.2.1/v3', 'OS_USERNAME': 'u',
          'OS_PASSWORD': 'p', 'OS_REGION_NAME': 'R1'}


@pytest.mark.parametrize('environment, url', [
    ({}, 'http://127.0.0.1:8791'), (OPENRC, 'https://192.0.2.6'),
    (OPENRC | {'OS_INTERFACE': 'internal'}, 'https://192.0.2.6'),
    (OPENRC | {'VIRTCO_URL': 'http://192.0.2.7'}, 'http://192.0.2.7'),
    (OPENRC | {'OS_AUTH_TYPE': '', 'VIRTCO_URL': ''}, 'https://192.0.2.6'),
    (OPENRC | {'OS_AUTH_TYPE': 'none'}, 'http://127.0.0.1:8791')])
def test_an_openrc_is_enough(environment, url, monkeypatch):
    for name in [*OPENRC, 'OS_INTERFACE', 'OS_AUTH_TYPE', 'VIRTCO_URL']:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    asked = []
    monkeypatch.setattr(ks_session.Session, 'get_endpoint',
                        lambda _self, **values: (
                            asked.append(values), 'https://192.0.2.6')[1])
    manager = shell.ClientManager(_options([], monkeypatch))
    assert manager.coflow.url == url
    assert asked == ([{
        'service_type': 'coflow', 'region_name': 'R1',
        'interface': environment.get('OS_INTERFACE', 'public')}]
        if '192.0.2.6' in url else [])
    assert (manager.session is None) == (url == 'http://127.0.0.1:8791')


def test_a_catalogue_without_the_controller_is_an_error(monkeypatch):
    for name, value in OPENRC.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv('VIRTCO_URL', raising=False)
    monkeypatch.setattr(ks_session.Session, 'get_endpoint',
                        lambda _self, **_: None)
    manager = shell.ClientManager(_options([], monkeypatch))
    with pytest.raises(exception.NotFound, match='coflow'):
        manager.coflow


def test_options_are_not_cut_short(monkeypatch):
    with pytest.raises(SystemExit):
        _options(['--controller', 'http://192.0.2.7'], monkeypatch)


@pytest.mark.parametrize('argv, shown', [([], ''), (['-v'], 'step\n')])
def test_steps_of_libraries_are_shown_on_request(argv, shown, monkeypatch):
    """Alembic, for one, tells each of its plug-ins."""
    app = shell.Shell()
    app.options = _options(argv, monkeypatch)
    root = logging.Logger('alembic')
    monkeypatch.setattr(logging, 'getLogger', lambda *_: root)
    app.stderr = io.StringIO()
    app.configure_logging()
    root.info('step')
    assert app.stderr.getvalue() == shown


def test_an_error_of_the_controller_ends_in_one_line(monkeypatch, caplog):
    app = shell.Shell()
    app.options = _options(['--controller-url', 'http://127.0.0.1:1'],
                           monkeypatch)
    app.initialize_app([])
    app.interactive_mode = False
    assert app.run_subcommand(['settings', 'show']) == 1
    told, = (record.getMessage() for record in caplog.records
             if record.levelname == 'ERROR')
    assert 'http://127.0.0.1:1' in told and '\n' not in told


def _declared(group):
    config = configparser.ConfigParser(delimiters=['='])
    config.optionxform = str
    config.read(ROOT / 'setup.cfg')
    return dict(line.split(' = ') for line in config[
        'entry_points'][group].strip().split('\n'))


def test_each_command_is_declared_once_and_is_in_both_shells():
    shared, own = _declared(shell.SHARED), _declared('virtco.cli')
    assert not set(shared.values()) & set(own.values())
    # Two names of one command.
    assert shared['coflow_check'] == shared['coflow_doctor']
    assert len({*shared.values(), *own.values()}) == (
        len(shared) + len(own) - 1)
    named = {shell.own_name(name.replace('_', ' ')): target
             for name, target in shared.items()}
    assert len(named) == len(shared)
    assert {name.removeprefix('coflow ') for name in named
            if name.startswith('coflow ')} == OF_COFLOWS
    commands = shell.Shell().command_manager.commands
    assert {name: commands[name].value for name in named} == named
    assert all(name.replace('_', ' ') in commands for name in own)


#: A command in a literal or behind a prompt.
NAMED = re.compile(r'(?:``|^ +[$#] (?:tools/cloud )?)'
                   r'(virtco|openstack\s+coflow)((?:\s+[a-z][a-z-]*){1,3})',
                   re.MULTILINE)
PAGES = [path for path in (ROOT / 'doc/source').rglob('*.rst')
         if path.name != 'nightly.rst']


def named(text):
    """Yield the words of each command of this program that a text names."""
    for program, words in NAMED.findall(text):
        found = words.split()
        yield ' '.join(found if program == 'virtco' or len(found) > 1
                       and found[0] not in OF_COFLOWS
                       or found in (['check'], ['doctor'])
                       else ['coflow', *found])


def test_commands_on_a_page_are_found():
    assert list(named("""Ask ``virtco rate
list --hosts`` or::

   $ openstack coflow show sort
   # tools/cloud virtco host list
   $ openstack coflow check
""")) == ['rate list', 'coflow show sort', 'host list', 'check']


@pytest.mark.parametrize('path', PAGES, ids=lambda path: path.stem)
def test_commands_on_pages_exist(path):
    commands = shell.Shell().command_manager.commands
    unknown = {words for words in named(path.read_text()) if not any(
        f'{words} '.startswith(f'{name} ') or name.startswith(f'{words} ')
        for name in commands)}
    assert not unknown


def test_help_leaves_out_what_cannot_be_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, 'virtco.osc.doctor', None)
    found = dict(shell.Commands('virtco.cli'))
    assert 'doctor' not in found and 'hint check' in found


def test_a_command_that_wants_more_says_what_to_install(monkeypatch, capsys):
    def wants(*_args):
        raise ModuleNotFoundError(name='matplotlib')

    monkeypatch.setattr(shell.app.App, 'run_subcommand', wants)
    assert shell.main(['topology', 'show']) == 1
    told = capsys.readouterr().err
    assert told.startswith('virtco topology show: ') and 'osc' in told


def test_help_behind_a_command_is_that_of_the_command(capsys):
    assert shell.main(['settings', 'show', '--help']) == 0
    assert ' settings show [-h]' in capsys.readouterr().out


def _parsers(monkeypatch):
    """All commands that are declared, with their parsers."""
    monkeypatch.setenv('COLUMNS', '80')
    for name, found in shell.Commands('virtco.cli'):
        if found.value.startswith('virtco'):
            command = found.load()
            yield command, command(None, None).get_parser(f'virtco {name}')


def test_each_help_has_an_example_that_is_accepted(monkeypatch):
    for command, parser in _parsers(monkeypatch):
        words = shlex.split(command.example.partition(' > ')[0])
        assert parser.parse_args(words)
        assert (f'\n\nExample:\n  {parser.prog} {command.example}\n'
                in parser.format_help())


def test_each_help_is_narrow_and_tells_of_each_argument(monkeypatch):
    for _command, parser in _parsers(monkeypatch):
        assert max(map(len, parser.format_help().splitlines())) <= 80
        assert all(action.help for action in parser._actions), parser.prog


def test_without_arguments_those_of_the_process_are_meant(monkeypatch):
    monkeypatch.setattr(sys, 'argv', ['virtco', 'top', '--once'])
    monkeypatch.setattr(shell.Shell, 'run', lambda _app, argv: argv)
    assert shell.main() == ['top', '--once']
    assert shell.main(['doctor']) == ['doctor']
