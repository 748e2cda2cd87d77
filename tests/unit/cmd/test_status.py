# SPDX-License-Identifier: Apache-2.0

"""What ``virtco-status upgrade check`` says of Nova."""

import importlib.metadata

from oslo_upgradecheck import upgradecheck
import pytest

from virtco.cmd import status


@pytest.mark.parametrize('found, is_safe', [
    ('31.3.0', False), ('31.3.1', True), ('32.2.0', False),
    ('32.2.1', True), ('32.3.0', True), ('33.0.1', False),
    ('33.0.2.dev3', True), ('34.0.0', True), ('30.0.0', True)])
def test_releases_with_the_flaw_of_hints_are_told(monkeypatch, found, is_safe):
    def version(name):
        assert name == 'nova'
        return found

    monkeypatch.setattr(importlib.metadata, 'version', version)
    result = status.Checks(None)._nova()
    assert result.code == (upgradecheck.Code.SUCCESS if is_safe
                           else upgradecheck.Code.WARNING)
    assert is_safe or found in result.details


def test_where_nova_is_elsewhere_the_check_says_where_to_look(
        monkeypatch, tmp_path, capsys):
    version_of = importlib.metadata.version

    def version(name):
        return version_of('no-such-nova' if name == 'nova' else name)

    monkeypatch.setattr(importlib.metadata, 'version', version)
    monkeypatch.setattr(status.Checks, '_upgrade_checks',
                        status.Checks._upgrade_checks[-1:])
    conf = tmp_path / 'virtco.conf'
    conf.write_text('')
    assert status.main(['--config-file', str(conf), 'upgrade', 'check']) == 0
    said = ' '.join(capsys.readouterr().out.replace('|', ' ').split())
    assert ('Details: Nova is not in this environment: run pip show nova '
            'where nova-scheduler runs, expected 31.3.1, 32.2.1, 33.0.2 or '
            'later of its series.') in said


def test_a_check_makes_no_database(tmp_path, capsys):
    conf = tmp_path / 'virtco.conf'
    conf.write_text(f'[controller]\nstate_dir = {tmp_path}/state\n')
    assert status.main(['--config-file', str(conf), 'upgrade', 'check']) == 2
    assert 'There is no /' in capsys.readouterr().out
    assert not (tmp_path / 'state').exists()


def test_the_program_logs_as_it_is_told(monkeypatch):
    names = []
    monkeypatch.setattr(status.configuration, 'set_up_log',
                        lambda conf, name: names.append(name))
    monkeypatch.setattr(status.upgradecheck, 'run', lambda conf: 3)
    assert status.main(['upgrade', 'check']) == 3
    assert names == ['virtco']
