# SPDX-License-Identifier: Apache-2.0

"""Who makes the privileged calls."""

import pytest

from edge_module import netns_lock
from edge_module.privileged import choice
from edge_module.privileged import guarded
from virtco import exception


@pytest.mark.parametrize('effective, may', [
    ([12], True), ([0, 12, 40], True), ([11, 13], False), ([], False)])
def test_who_may_administer(monkeypatch, effective, may):
    monkeypatch.setattr(choice.capabilities, 'get_caps',
                        lambda: (effective, [12], [12]))
    assert choice.may_administer() == may


def test_whoever_may_do_nothing_is_told(monkeypatch):
    monkeypatch.setattr(choice, 'may_administer', lambda: False)
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
