# SPDX-License-Identifier: Apache-2.0

"""Events of an instance, in whatever order they come."""

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from virtco import exception
from virtco.db import bookings
from virtco.db import groups
from virtco.db import migration
from virtco.db import models
from virtco.db import session as db_session
from virtco.follow import notifications
from virtco.follow import transitions
from virtco.model import states

UUID = '178b0921-8f85-4257-88b6-2e743b5a975c'


@pytest.fixture(scope='module')
def database(tmp_path_factory):
    found = db_session.Database(
        f'sqlite:///{tmp_path_factory.mktemp("db")}/virtco.sqlite')
    migration.upgrade(found)
    yield found
    found.dispose()


@pytest.fixture(scope='module')
def follow(database):
    return transitions.Transitions(database, lambda: 1000.0)


def begin(database):
    """One VM that was given a host, and a sibling that keeps the group."""
    with database.writer() as session:
        for table in (models.Event, models.Member, models.Group):
            session.query(table).delete()
        session.add(models.Group(
            id='g', project_id='p', name='a', live_key='', n_vms=2,
            created_at=1.0, method='', why=''))
        session.flush()
        session.add_all([
            models.Member(group_id='g', row_index=0, instance_uuid=UUID,
                          state=states.MemberState.RESERVED, host='h0',
                          planned_host='h0', expires_at=2000.0),
            models.Member(group_id='g', row_index=1, instance_uuid='other',
                          state=states.MemberState.RUNNING, host='h9')])


def row(database):
    with database.reader() as session:
        found = groups.members(session, 'g')[0]
        return found.instance_uuid, found.state, found.host


def notification(kind, host, at_s):
    """As Nova sends it, with the time of the message."""
    return kind, {'nova_object.data': {
        'uuid': UUID, 'host': host}}, f'2026-11-22 10:00:{at_s:02d}.5'


def deliver(follow, messages):
    for message in messages:
        change = notifications.change_of(*message)
        if change is not None:
            follow.apply(change)


def expected(messages):
    """What Nova says after the last of them."""
    if any(kind == 'instance.delete.end' for kind, *_ in messages):
        return None, 'vacant', None
    kind, payload, _ = messages[-1]
    if kind == 'instance.shelve_offload.end':
        return UUID, 'vacant', None
    return UUID, 'running', payload['nova_object.data']['host']


LIFE = st.lists(
    st.tuples(st.sampled_from(sorted(notifications.HOST_EVENTS
                                     | notifications.OFF_HOST_EVENTS)),
              st.sampled_from(['h0', 'h1', 'h2'])),
    min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.data(), LIFE, st.booleans())
def test_the_later_event_wins_in_any_order(database, follow, data, life,
                                           is_deleted):
    messages = [notification(kind, host, at_s)
                for at_s, (kind, host) in enumerate(life)]
    if is_deleted:
        messages.append(notification('instance.delete.end', None,
                                     len(messages)))
    repeated = data.draw(st.lists(st.sampled_from(messages), max_size=4))
    arrived = data.draw(st.permutations(messages + repeated))
    begin(database)
    deliver(follow, arrived)
    assert row(database) == expected(messages)


def test_a_duplicate_changes_nothing(database, follow):
    begin(database)
    change = notifications.change_of(*notification(
        'instance.create.end', 'h1', 3))
    assert follow.apply(change) == 'g'
    with database.reader() as session:
        before = groups.generation(session)
    assert follow.apply(change) is None
    with database.reader() as session:
        assert groups.generation(session) == before


def test_of_the_same_host_the_time_still_counts(database, follow):
    """There and back: the way there comes last."""
    begin(database)
    deliver(follow, [
        notification('instance.create.end', 'h1', 1),
        notification('instance.live_migration_post_dest.end', 'h1', 9),
        notification('instance.live_migration_post_dest.end', 'h2', 5)])
    assert row(database) == (UUID, 'running', 'h1')


def test_without_a_time_the_last_word_counts(database, follow):
    begin(database)
    deliver(follow, [notification('instance.create.end', 'h1', 9)])
    follow.apply(notifications.Built(UUID, 'h2'))
    assert row(database) == (UUID, 'running', 'h2')
    deliver(follow, [notification('instance.rebuild.end', 'h1', 8)])
    assert row(database) == (UUID, 'running', 'h2')


@pytest.mark.parametrize('before, seen, after', [
    ([], ('h0', True), ('running', 'h0')),
    ([], ('h0', False), ('reserved', 'h0')),
    ([], ('h1', True), ('reserved', 'h0')),
    ([('instance.create.end', 'h1')], ('h0', True), ('running', 'h1')),
    ([('instance.shelve_offload.end', None)], ('h0', True), ('vacant', None)),
    ([('instance.shelve_offload.end', None)], ('h0', False),
     ('running', 'h0'))])
def test_a_port_moves_only_the_row_that_its_reader_knew(
        database, follow, before, seen, after):
    """Nova's word may come between a report and what follows from it."""
    begin(database)
    deliver(follow, [notification(*one, 5) for one in before])
    is_changed = row(database)[1:] != after
    assert (follow.apply(notifications.Seen(UUID, *seen)) == 'g') is is_changed
    assert row(database) == (UUID, *after)


def test_a_port_of_a_stranger_moves_nothing(database, follow):
    begin(database)
    assert follow.apply(notifications.Seen('stranger', 'h0', False)) is None


def test_a_new_vm_in_the_row_begins_anew(database, follow):
    begin(database)
    deliver(follow, [notification('instance.create.end', 'h1', 50),
                     notification('instance.delete.end', None, 51)])
    with database.writer() as session:
        found = groups.members(session, 'g')[0]
        found.instance_uuid = UUID
    deliver(follow, [notification('instance.create.end', 'h2', 1)])
    assert row(database) == (UUID, 'running', 'h2')


def test_what_only_the_leader_repairs_is_fenced(follow, database,
                                                monkeypatch):
    def fence(session):
        raise exception.Deposed(epoch=1)

    begin(database)
    before = row(database)
    monkeypatch.setattr(database, 'fence', fence)
    for change in (notifications.Gone(UUID), notifications.Built(UUID, 'h1')):
        with pytest.raises(exception.Deposed):
            follow.apply(change, as_leader=True)
    assert row(database) == before
    # A notification holds, whoever hears it.
    assert follow.apply(notifications.Gone(UUID)) == 'g'


FLAVOR = {'vcpus': 2.0, 'memory_mb': 4.0, 'disk_gb': 8.0}
TOLD = tuple(FLAVOR.items())


def rooms(database):
    with database.reader() as session:
        return [found.room_vcpus for found in groups.members(session, 'g')]


def claims(database):
    with database.reader() as session:
        return [(found.instance_uuid, found.host, found.is_member,
                 found.vcpus, found.expires_at)
                for found in session.query(models.Claim)]


def remember_rooms(database):
    with database.writer() as session:
        session.query(models.Claim).delete()
        for found in groups.members(session, 'g'):
            found.room_vcpus = found.room_memory_mb = found.room_disk_gb = 99.0


def generation(database):
    with database.reader() as session:
        return groups.generation(session)


def test_servers_without_a_group_take_room_too(follow, database):
    begin(database)
    remember_rooms(database)
    came = notifications.Built('stranger', 'h0', TOLD)
    for _ in range(2):
        assert follow.apply(came) is None
        assert claims(database) == [('stranger', 'h0', False, 2.0, 1010.0)]
    # It moves.
    assert follow.apply(notifications.Built('stranger', 'h9', TOLD)) is None
    assert claims(database) == [('stranger', 'h9', False, 2.0, 1010.0)]
    # A flavor that is not told tells nothing.
    assert follow.apply(notifications.Built('another', 'h0')) is None
    assert len(claims(database)) == 1
    for kind in notifications.Gone, notifications.OffHost:
        assert follow.apply(kind('stranger')) is None
        assert claims(database) == []
    assert follow.apply(notifications.Seen('stranger', 'h0', True)) is None
    assert claims(database) == []
    assert rooms(database) == [99.0, 99.0]


def test_a_server_without_a_group_becomes_novas_own(database):
    """Its build may fail, so no room is lost before."""
    now_s = 1000.0
    follow = transitions.Transitions(database, lambda: now_s)
    begin(database)
    remember_rooms(database)
    for host in ('h0', 'h9'):  # it failed at h0
        assert follow.apply(
            notifications.Begun('stranger', host, TOLD)) is None
        assert claims(database) == [('stranger', host, False, 2.0, 1010.0)]
    now_s = 1010.0
    before = generation(database)
    for kind in notifications.Begun, notifications.Built:
        assert follow.apply(kind('stranger', 'h9', TOLD)) is None
    assert follow.expire() == []
    assert generation(database) == before
    assert rooms(database) == [99.0, 99.0]
    now_s = 1010.5
    for _ in range(2):
        assert follow.expire() == []
        assert claims(database) == [('stranger', 'h9', False, 0.0, 1610.5)]
        assert rooms(database) == [99.0, 97.0]
        assert generation(database) == before + 1
        # Its build ends late.
        follow.apply(notifications.Built('stranger', 'h9', TOLD))
    now_s = 1611.0
    assert follow.expire() == []
    assert claims(database) == []
    assert rooms(database) == [99.0, 97.0]


def test_a_build_elsewhere_is_booked_beside_the_reservation(
        database, follow):
    begin(database)
    remember_rooms(database)
    before = generation(database)
    # The reservation has its room, and who runs was built.
    assert follow.apply(notifications.Begun(UUID, 'h0', TOLD)) is None
    assert follow.apply(notifications.Begun('other', 'h1', TOLD)) is None
    assert claims(database) == []
    assert generation(database) == before
    for _ in range(2):
        assert follow.apply(notifications.Begun(UUID, 'h1', TOLD)) is None
        assert claims(database) == [(UUID, 'h1', True, 2.0, 1600.0)]
        assert row(database) == (UUID, 'reserved', 'h0')
        assert generation(database) == before + 1
    assert follow.apply(notifications.Built(UUID, 'h1', TOLD)) == 'g'
    assert claims(database) == []
    assert row(database) == (UUID, 'running', 'h1')


def test_a_claim_of_a_member_ends_without_a_trace(database, follow):
    begin(database)
    remember_rooms(database)
    with database.writer() as session:
        bookings.claim(session, UUID, 'h9', FLAVOR, True, 999.0)
    assert follow.expire() == []
    assert (claims(database), rooms(database)) == ([], [99.0, 99.0])


def test_a_resize_forgets_the_room_of_long_ago(follow, database):
    begin(database)
    remember_rooms(database)
    with database.writer() as session:
        session.add(models.Claim(
            instance_uuid='other', host='h9', is_member=True,
            expires_at=1500.0, **FLAVOR))
    assert follow.apply(notifications.Built('other', 'h9', TOLD)) == 'g'
    assert rooms(database) == [99.0, None]
    assert claims(database) == []
    # Who was built as it was reserved remembers.
    assert follow.apply(notifications.Built(UUID, 'h0', TOLD)) == 'g'
    assert rooms(database) == [99.0, None]


@pytest.mark.parametrize('leaves', [notifications.Gone, notifications.OffHost])
def test_a_vm_that_leaves_claims_nothing(follow, database, leaves):
    begin(database)
    with database.writer() as session:
        session.query(models.Claim).delete()
        bookings.claim(session, UUID, 'h1', FLAVOR, True, 1500.0)
        bookings.claim(session, 'other', 'h1', FLAVOR, True, 1500.0)
    assert follow.apply(leaves(UUID)) == 'g'
    assert [name for name, *_ in claims(database)] == ['other']


@pytest.mark.parametrize('leaves', [notifications.Gone, notifications.OffHost])
@pytest.mark.parametrize(('at_s', 'placed_s', 'room'), [
    (1000.0, 990.0, 97.0), (1000.0, 989.9, 99.0), (990.0, 980.0, 97.0),
    (1000.0, None, 97.0), (None, 1.0, 97.0)])
def test_a_vm_that_leaves_lessens_the_room_that_others_remember(
        follow, database, leaves, at_s, placed_s, room):
    """Who was placed by numbers of before knows the room."""
    begin(database)
    remember_rooms(database)
    with database.writer() as session:
        one, other = groups.members(session, 'g')
        one.state, one.host, one.vcpus = states.MemberState.RUNNING, 'h9', 2.0
        other.placed_at = placed_s
    assert follow.apply(leaves(UUID, at_s=at_s)) == 'g'
    assert rooms(database) == [None, room]


def test_addresses_stay_until_others_are_told_or_the_vm_is_gone(
        database, follow):
    def addresses():
        with database.reader() as session:
            return groups.members(session, 'g')[0].addresses

    begin(database)
    for told, known, changed in (
            (('10.0.0.1',), '10.0.0.1', 'g'), ((), '10.0.0.1', None),
            (('10.0.0.1', 'fd00::1'), '10.0.0.1 fd00::1', 'g'),
            (('10.0.0.1', 'fd00::1'), '10.0.0.1 fd00::1', None)):
        assert follow.apply(notifications.Built(
            UUID, 'h0', addresses=told)) == changed
        assert addresses() == known
    follow.apply(notifications.Gone(UUID))
    assert addresses() == ''


def test_limits_stay_until_others_are_told_or_the_vm_is_gone(
        database, follow):
    def limits_bps():
        with database.reader() as session:
            member = groups.members(session, 'g')[0]
            return member.egress_limit_bps, member.ingress_limit_bps

    begin(database)
    assert limits_bps() == (None, None)
    for told, known, changed in (
            ((5e6, None), (5e6, None), 'g'), ((), (5e6, None), None),
            ((5e6, 7e6), (5e6, 7e6), 'g'), ((5e6, 7e6), (5e6, 7e6), None),
            ((None, None), (None, None), 'g'), ((2e6, 3e6), (2e6, 3e6), 'g')):
        assert follow.apply(notifications.Built(
            UUID, 'h0', limits_bps=told)) == changed
        assert limits_bps() == known
    follow.apply(notifications.Gone(UUID))
    assert limits_bps() == (None, None)
