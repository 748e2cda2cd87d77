# SPDX-License-Identifier: Apache-2.0

"""What Nova's notifications mean."""

from hypothesis import given
from hypothesis import strategies as st
import pytest

from virtco.follow import notifications

UUID = '178b0921-8f85-4257-88b6-2e743b5a975c'


def instance(**data):
    return {'nova_object.name': 'InstanceActionPayload',
            'nova_object.namespace': 'nova', 'nova_object.version': '1.9',
            'nova_object.data': {'uuid': UUID, 'host': 'h1'} | data}


@pytest.mark.parametrize('event_type', sorted(notifications.HOST_EVENTS))
def test_these_events_name_the_host(event_type):
    assert notifications.change_of(
        event_type, instance()) == notifications.Built(UUID, 'h1')


@pytest.mark.parametrize('event_type', [
    'instance.create.error', 'instance.update',
    'instance.live_migration_post_dest.start', 'instance.resize_prep.end',
    'instance.resize.end', 'instance.power_off.end', 'service.update',
    'scheduler.select_destinations.end', ''])
def test_these_events_mean_nothing(event_type):
    assert notifications.change_of(event_type, instance()) is None


FLAVOR = {'nova_object.data': {'vcpus': 2, 'memory_mb': 2048,
                               'root_gb': 10, 'ephemeral_gb': 5}}


def test_the_flavor_comes_along():
    change = notifications.change_of('instance.create.end',
                                     instance(flavor=FLAVOR))
    assert dict(change.flavor) == {'vcpus': 2, 'memory_mb': 2048,
                                   'disk_gb': 15}


@pytest.mark.parametrize(('image', 'disk_gb'), [
    ({'image_uuid': UUID}, 17), ({'image_uuid': ''}, 7),
    ({'image_uuid': None}, 7), ({}, 17)])
def test_disk_is_what_nova_claims(image, disk_gb):
    flavor = {'nova_object.data': FLAVOR['nova_object.data']
              | {'swap': 2 * 1024 - 1}}
    change = notifications.change_of('instance.create.end',
                                     instance(flavor=flavor, **image))
    assert dict(change.flavor)['disk_gb'] == disk_gb


@pytest.mark.parametrize(('rows', 'addresses'), [
    ([{'address': 'FD00::2'}, {'nova_object.data': {'address': '10.0.0.9'}},
      {'address': '10.0.0.9'}], ('10.0.0.9', 'fd00::2')),
    ([{'address': 'none'}, {}, 7, {'address': 7}], ()),
    ([], ()), (None, ()), ({'address': '10.0.0.9'}, ())])
def test_addresses_come_along(rows, addresses):
    change = notifications.change_of('instance.create.end',
                                     instance(ip_addresses=rows))
    assert change.addresses == addresses


@pytest.mark.parametrize(('timestamp', 'updated_at', 'at_s'), [
    ('1970-01-01 00:00:07.250000', '1970-01-01T00:00:05Z', 7.25),
    (None, '1970-01-01T00:00:05Z', 5.0),
    ('1970-01-01T02:00:07+02:00', None, 7.0),
    ('yesterday', None, None), (7, [], None), (None, None, None)])
@pytest.mark.parametrize('event_type', [
    'instance.create.end', 'instance.shelve_offload.end'])
def test_when_it_was_sent(event_type, timestamp, updated_at, at_s):
    change = notifications.change_of(
        event_type, instance(updated_at=updated_at), timestamp)
    assert change.at_s == at_s


@pytest.mark.parametrize(('event_type', 'publisher', 'host'), [
    ('instance.rebuild.end', 'nova-compute:h7', 'h7'),
    ('instance.rebuild.end', 'nova-compute:', 'h1'),
    ('instance.rebuild.end', None, 'h1'),
    ('instance.create.end', 'nova-compute:h7', 'h1')])
def test_an_evacuation_is_told_by_its_new_host(event_type, publisher, host):
    assert notifications.change_of(event_type, instance(), None,
                                   publisher).host == host


@pytest.mark.parametrize(('publisher', 'flavor', 'is_told'), [
    ('nova-compute:h7', FLAVOR, True), ('nova-compute:h7', None, False),
    ('nova-compute:', FLAVOR, False), ('h7', FLAVOR, False),
    (None, FLAVOR, False)])
def test_a_build_begins_on_the_host_that_says_so(publisher, flavor, is_told):
    """The instance has no host yet."""
    assert notifications.change_of(
        'instance.create.start', instance(host=None, flavor=flavor), None,
        publisher) == (notifications.Begun(UUID, 'h7', (
            ('vcpus', 2.0), ('memory_mb', 2048.0), ('disk_gb', 15.0)))
            if is_told else None)


def test_deletion_and_failed_builds_release():
    for event_type in notifications.GONE_EVENTS:
        assert notifications.change_of(
            event_type, instance(host=None)) == notifications.Gone(UUID)
    failed = {'nova_object.data': {
        'instance_uuid': UUID, 'reason': {'nova_object.data': {
            'exception': 'NoValidHost',
            'exception_message': 'There are not enough hosts.'}}}}
    assert notifications.change_of(
        notifications.BUILD_ERROR, failed) == notifications.Gone(
            UUID, 'There are not enough hosts.')


def test_a_shelved_instance_is_on_no_host():
    assert notifications.change_of(
        'instance.shelve_offload.end',
        instance(host=None)) == notifications.OffHost(UUID)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(['nova_object.data', 'uuid', 'host', 'flavor',
                         'vcpus', 'reason', 'instance_uuid']) | st.text(
                             max_size=5), inner, max_size=4),
    max_leaves=12)


# Sorted: processes that share the tests must number them alike.
EVENTS = sorted({*notifications.HOST_EVENTS, *notifications.GONE_EVENTS,
                 *notifications.OFF_HOST_EVENTS, notifications.BUILD_ERROR})


@given(st.sampled_from(EVENTS),
       st.dictionaries(st.sampled_from(['nova_object.data', 'uuid', 'host']),
                       json_values))
def test_no_payload_is_an_error(event_type, payload):
    """What Nova never sends means nothing, unless it holds an id."""
    change = notifications.change_of(event_type, payload)
    data = payload.get('nova_object.data', payload)
    uuid = isinstance(data, dict) and data.get(
        'instance_uuid' if event_type == notifications.BUILD_ERROR else 'uuid')
    if isinstance(uuid, str) and 0 < len(uuid) <= 36 and (
            uuid.isprintable()):
        assert change is None or change.instance_uuid == uuid
    else:
        assert change is None


@given(st.sampled_from(EVENTS), json_values, json_values, json_values)
def test_an_id_is_enough(event_type, host, flavor, reason):
    """Whatever else the payload holds, it is about this instance."""
    change = notifications.change_of(event_type, instance(
        host=host, flavor=flavor, instance_uuid=UUID, reason=reason))
    if event_type in notifications.HOST_EVENTS:
        if not (isinstance(host, str) and host and host.isprintable()):
            assert change is None
            return
        assert change == notifications.Built(UUID, host, change.flavor)
        assert [name for name, _ in change.flavor] in (
            [], ['vcpus', 'memory_mb', 'disk_gb'])
    elif event_type in notifications.OFF_HOST_EVENTS:
        assert change == notifications.OffHost(UUID)
    else:
        assert change == notifications.Gone(UUID, change.why)
        assert bool(change.why) == (event_type == notifications.BUILD_ERROR)


@pytest.mark.parametrize('vcpus', [
    'nan', float('nan'), -1, 1e16, 10 ** 400, '2', None])
def test_a_flavor_that_no_table_takes_is_left_out(vcpus):
    flavor = FLAVOR['nova_object.data'] | {'vcpus': vcpus}
    assert notifications.change_of('instance.create.end', instance(
        host='h', flavor=flavor)) == notifications.Built(UUID, 'h')


@pytest.mark.parametrize('host', ['h' * 256, 'h\0', 'h\n'])
def test_a_host_that_no_table_takes_is_none(host):
    for event_type, publisher in (('instance.create.end', None), (
            notifications.BUILD_START, f'nova-compute:{host}')):
        assert notifications.change_of(event_type, instance(
            host=host, flavor=FLAVOR), publisher=publisher) is None


@pytest.mark.parametrize('uuid', [None, '', 7, UUID + '0', [UUID], {}])
@pytest.mark.parametrize('event_type', EVENTS)
def test_without_an_id_it_means_nothing(event_type, uuid):
    assert notifications.change_of(event_type, instance(
        uuid=uuid, instance_uuid=uuid)) is None
