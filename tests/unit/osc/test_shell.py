# SPDX-License-Identifier: Apache-2.0

import sys

from keystoneauth1 import session as ks_session
import pytest

from virtco.osc import shell


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


def test_options_are_not_cut_short(monkeypatch):
    with pytest.raises(SystemExit):
        _options(['--controller', 'http://192.0.2.7'], monkeypatch)


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
