# SPDX-License-Identifier: Apache-2.0

"""Nova's notifications over a real message bus."""

import contextlib
import json
import subprocess
import sys

import pytest

from tests.functional.controller import harness
from tests.functional.controller import test_faults as faults
from virtco_lab import services


@pytest.fixture(scope='module')
def buses():
    """One per cell."""
    if services.RabbitMQ.is_missing():
        pytest.skip('RabbitMQ (Debian package rabbitmq-server) is missing')
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(services.RabbitMQ())
               for _cell in range(2)]


@pytest.fixture
def notify_of(buses):
    """Makes what sends to a bus as nova-compute does, from a process of its
    own: it needs oslo.messaging, which must not be loaded before Nova's test
    modules.
    """
    with contextlib.ExitStack() as stack:
        yield lambda cell: stack.enter_context(sending(buses[cell].url))


@contextlib.contextmanager
def sending(url, n_retries=3):
    sender = subprocess.Popen(
        [sys.executable, '-m', 'tests.functional.controller.sender', url,
         str(n_retries)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(event_type, uuid, priority='info', **data):
        sender.stdin.write(json.dumps([priority, event_type, {
            'nova_object.name': 'InstanceActionPayload',
            'nova_object.namespace': 'nova', 'nova_object.version': '1.9',
            'nova_object.data': {'uuid': uuid} | data}]) + '\n')
        sender.stdin.flush()
        assert sender.stdout.readline() == 'sent\n'

    yield send
    sender.stdin.close()
    sender.wait(30)


@pytest.fixture
def notify(notify_of):
    return notify_of(0)


@pytest.fixture(scope='module')
def controller(buses, tmp_path_factory):
    with harness.running(tmp_path_factory.mktemp('listener'), {
            'notifications': {
                'transport_url': '\ntransport_url = '.join(
                    bus.url for bus in buses)},
            'placement': {'deadline_s': 50},
            'controller': {'db_timeout_s': 2}}) as found:
        yield found


def test_a_vm_is_followed_from_build_to_deletion(controller, notify):
    tenant = controller.tenant()
    host = tenant.place(0, num_instances=4)['host']
    uuid = tenant.instance(0)
    notify('instance.create.start', uuid, host=None)
    notify('instance.create.end', uuid, host=tenant.host(host))
    harness.wait_for(lambda: tenant.stored(0)['state'] == 'running')
    notify('instance.live_migration_post_dest.end', uuid,
           host=tenant.host('h3'))
    harness.wait_for(lambda: tenant.stored(0)['host_now'] == 'h3')
    notify('instance.delete.end', uuid, host=None)
    harness.wait_for(lambda: tenant.coflow()['state'] == 'retired')


def test_a_failed_build_comes_as_an_error(controller, notify):
    tenant = controller.tenant()
    tenant.place(0)
    notify('compute_task.build_instances.error', None, 'error',
           instance_uuid=tenant.instance(0), reason={'nova_object.data': {
               'exception': 'NoValidHost', 'exception_message': 'full'}})
    harness.wait_for(lambda: tenant.coflow()['state'] == 'retired')
    assert tenant.events()[0]['detail'] == 'full'


def test_what_was_sent_while_it_was_down_arrives(controller, notify):
    """The queue is there from the first start on."""
    tenant = controller.tenant()
    host = tenant.place(0)['host']
    controller.stop(9)
    notify('instance.create.end', tenant.instance(0), host=tenant.host(host))
    controller.start()
    harness.wait_for(lambda: tenant.stored(0)['state'] == 'running')


def test_it_comes_again_when_the_database_is_locked(controller, notify):
    tenant = controller.tenant()
    host = tenant.place(0)['host']
    with faults.locked(controller.database):
        notify('instance.create.end', tenant.instance(0),
               host=tenant.host(host))
        harness.wait_for(lambda: 'is put back' in controller.log_text())
    harness.wait_for(lambda: tenant.stored(0)['state'] == 'running')


def test_each_cell_has_a_bus_of_its_own(controller, notify_of):
    """Also of one VM that moves from one cell to the other."""
    tenant = controller.tenant()
    cells = [notify_of(0), notify_of(1)]
    for number in range(2):
        tenant.place(number, num_instances=2)
        cells[number]('instance.create.end', tenant.instance(number),
                      host=tenant.host(f'h{number}'))
    for number in range(2):
        harness.wait_for(
            lambda: tenant.stored(number)['host_now'] == f'h{number}')
    cells[1]('instance.resize_finish.end', tenant.instance(0),
             host=tenant.host('h3'))
    harness.wait_for(lambda: tenant.stored(0)['host_now'] == 'h3')
    cells[1]('instance.delete.end', tenant.instance(0), host=None)
    cells[1]('instance.delete.end', tenant.instance(1), host=None)
    harness.wait_for(lambda: tenant.coflow()['state'] == 'retired')


def test_ceilometers_format_is_not_listened_to(controller, buses):
    """With notification_format = both Nova sends each event twice: the
    unversioned one goes to another topic, for Ceilometer.
    """
    tenant = controller.tenant()
    tenant.place(0)
    with sending(buses[0].url) as send:
        send('compute.instance.create.end', tenant.instance(0),
             host=tenant.host('h1'))
        send('instance.create.end', tenant.instance(0),
             host=tenant.host('h2'))
    harness.wait_for(lambda: tenant.stored(0)['host_now'] == 'h2')
    assert 'cannot be used' not in controller.log_text()
