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
