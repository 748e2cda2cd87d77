# SPDX-License-Identifier: Apache-2.0

"""What ``virtco-status upgrade check`` says of Nova."""

import importlib.metadata

from oslo_upgradecheck import upgradecheck
import pytest

from virtco.cmd import status


@pytest.mark.parametrize('found, is_safe', [
    ('31.3.0', False), ('31.3.1', True), ('32.2.0', False),
    ('32.2.1', True), ('32.3.0', True), ('33.0.1', False),
    ('33.0.2.dev3', True), ('34.0.0', True), ('30.0.0', True), (None, True)])
def test_releases_with_the_flaw_of_hints_are_told(monkeypatch, found, is_safe):
    def version(name):
        assert name == 'nova'
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, 'version', version)
    result = status.Checks(None)._nova()
    assert result.code == (upgradecheck.Code.SUCCESS if is_safe
                           else upgradecheck.Code.WARNING)
    assert is_safe or found in result.details


def test_the_program_logs_as_it_is_told(monkeypatch):
    names = []
    monkeypatch.setattr(status.configuration, 'set_up_log',
                        lambda conf, name: names.append(name))
    monkeypatch.setattr(status.upgradecheck, 'run', lambda conf: 3)
    assert status.main(['upgrade', 'check']) == 3
    assert names == ['virtco']
