# SPDX-License-Identifier: Apache-2.0

"""Who makes the privileged calls."""

import pytest

from edge_module.privileged import choice
from virtco import exception


@pytest.mark.parametrize('mask, may', [
    ('0000000000001000', True), ('0000000000002000', False),
    ('0000000000000800', False), ('000001ffffffffff', True),
    ('0000000000000000', False)])
def test_who_may_administer(tmp_path, monkeypatch, mask, may):
    status = tmp_path / 'status'
    status.write_text(f'CapInh:\t0000000000001000\nCapEff:\t{mask}\n')
    monkeypatch.setattr(choice, '_STATUS', status)
    assert choice.may_administer() == may
    status.write_text('CapInh:\t0000000000001000\n')
    assert not choice.may_administer()
    # Whoever is not root and may do nothing is told.
    monkeypatch.setattr(choice.os, 'geteuid', lambda: 7)
    with pytest.raises(exception.Invalid, match='CAP_NET_ADMIN'):
        choice.open_kernel('nobody-knows', '')


def test_without_root_users_do_not_matter(monkeypatch):
    monkeypatch.setattr(choice.os, 'geteuid', lambda: 7)
    monkeypatch.setattr(choice, 'may_administer', lambda: True)
    assert choice.open_kernel('nobody-knows', '') is choice.kernel


@pytest.mark.parametrize('user, helper', [
    ('nobody-knows', ''), ('root', 'nobody-knows')])
def test_users_that_are_not_there_are_told(monkeypatch, user, helper):
    monkeypatch.setattr(choice.os, 'geteuid', lambda: 0)
    with pytest.raises(exception.Invalid, match='nobody-knows'):
        choice.open_kernel(user, helper)
