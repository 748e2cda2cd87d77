# SPDX-License-Identifier: Apache-2.0

"""Who makes the privileged calls."""

import pytest

from edge_module import netns_lock
from edge_module.privileged import choice
from edge_module.privileged import guarded
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
    # Whoever may do nothing is told.
    with pytest.raises(exception.Invalid, match='CAP_NET_ADMIN'), (
            netns_lock.hold()):
        pass


def test_without_root_users_do_not_matter(monkeypatch):
    monkeypatch.setattr(choice.os, 'geteuid', lambda: 7)
    assert choice.open_kernel('nobody-knows', '') is choice.kernel


@pytest.mark.parametrize('user, helper', [
    ('nobody-knows', ''), ('root', 'nobody-knows')])
def test_users_that_are_not_there_are_told(monkeypatch, user, helper):
    monkeypatch.setattr(choice.os, 'geteuid', lambda: 0)
    with pytest.raises(exception.Invalid, match='nobody-knows'):
        choice.open_kernel(user, helper)


@pytest.mark.parametrize('helper, helper_user', [
    ('', 'root'), ('nobody', 'nobody')])
def test_root_leaves_the_calls_to_a_helper(monkeypatch, helper, helper_user):
    started = []
    monkeypatch.setattr(choice.os, 'geteuid', lambda: 0)
    monkeypatch.setattr(guarded, 'start_and_drop',
                        lambda *users: started.append(users))
    assert choice.open_kernel('root', helper) is guarded
    assert started == [('root', helper_user)]
