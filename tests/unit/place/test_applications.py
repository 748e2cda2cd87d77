# SPDX-License-Identifier: Apache-2.0

"""The matrix of a group whose hint names an application alone."""

import pytest

from tests.unit import stored
from tests.unit.place import asking
from virtco import exception
from virtco import hints
from virtco.db import models
from virtco.db import profile_rows as db_profiles
from virtco.place import applications


@pytest.fixture
def ask():
    return asking.Asking()


def matrices(ask, n_vms=3, refuses=False, index=None, **limits):
    app = hints.App('sort', refuses)
    with ask.database.reader() as session:
        return applications.matrices(
            session, 'p', hints.Hint('a', index=index, app=app), app, n_vms,
            hints.Limits(**limits))


def learned(ask, pairs):
    stored.add(ask.database, stored.group('old', app='sort', live_key='x'))
    with ask.database.writer() as session:
        db_profiles.add(session, 5, {'p-old': pairs}, 9)
    assert stored.count(ask.database, models.ProfileHour) == 1


def test_an_unknown_application_may_send_from_any_vm_to_any(ask):
    ((matrix,), ((kind, said),)) = matrices(ask)
    assert sorted((flow.src, flow.dst, flow.size_bytes)
                  for flow in matrix.flows) == [
        (src, dst, 1e6) for src in range(3) for dst in range(3)
        if src != dst]
    # It is estimated while it sends, for as long as there are VMs.
    assert (matrix.is_estimated, matrix.iterations, matrix.name) == (
        True, 0, 'a')
    assert (kind, said) == ('app_unknown', 'nothing is learned yet: sizes '
                                           'are estimated while it sends')


@pytest.mark.parametrize(('n_vms', 'index', 'is_valid'), [
    (1, None, False), (2, None, True), (2, 1, True), (2, 2, False),
    (3, 2, True), (3, 0, True)])
def test_how_many_servers_are_needed(ask, n_vms, index, is_valid):
    if is_valid:
        assert matrices(ask, n_vms, index=index)[0][0].n_vms == n_vms
        return
    with pytest.raises(exception.HintInvalid, match='at least 2 servers'):
        matrices(ask, n_vms, index=index)


@pytest.mark.parametrize(('n_vms', 'limits', 'most'), [
    (64, {}, None), (65, {}, 64), (4, {'max_vms': 4}, None),
    (5, {'max_vms': 4}, 4),
    # Each pair both ways.
    (5, {'max_flows': 20}, None), (5, {'max_flows': 19}, 64)])
def test_every_pair_needs_a_class_so_there_are_few(ask, n_vms, limits, most):
    if most is None:
        ((matrix,), _notes) = matrices(ask, n_vms, **limits)
        assert len(matrix.flows) == n_vms * (n_vms - 1)
        return
    with pytest.raises(exception.HintInvalid,
                       match=f'at most {most} servers where nothing is le'):
        matrices(ask, n_vms, **limits)


def test_what_was_learned_is_taken_unless_it_is_refused(ask):
    learned(ask, {(0, 1): 5e9, (2, 0): 7e9})
    ((matrix,), ((kind, said),)) = matrices(ask)
    assert {(flow.src, flow.dst): flow.size_bytes
            for flow in matrix.flows} == {
        (0, 1): pytest.approx(5e9), (2, 0): pytest.approx(7e9)}
    assert kind == 'app_learned' and not matrix.is_estimated
    assert said.startswith('application sort: ')
    assert said.endswith('; 12000000000 bytes')
    ((matrix,), ((kind, said),)) = matrices(ask, refuses=True)
    assert kind == 'app_unknown' and said.startswith('what was learned is re')
    assert matrix.is_estimated


def test_what_was_learned_may_be_longer_than_a_hint(ask):
    learned(ask, {(0, 1): 5e9, (2, 0): 7e9})
    (_matrix, ((kind, _said),)) = matrices(ask, max_text_bytes=5)
    assert kind == 'app_learned'


def test_what_was_learned_and_is_beyond_a_bound_is_left(ask):
    learned(ask, {(0, 1): 5e9, (2, 0): 7e9})
    ((matrix,), ((kind, _said),)) = matrices(ask, max_bytes=10 ** 10)
    assert kind == 'app_unknown' and matrix.is_estimated
