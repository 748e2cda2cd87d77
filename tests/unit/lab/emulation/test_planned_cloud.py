# SPDX-License-Identifier: Apache-2.0

"""What the controller is asked in Nova's place."""

import types

import pytest
import tenacity

from virtco import exception
from virtco.wire import placement as placement_wire
from virtco_lab.emulation import planned_cloud


class Controller:
    """Ranks the hosts that it is offered, the last one first."""

    def __init__(self):
        self.asked, self.told = [], []
        self.status = 'planned'
        self.infeasible = ()
        self.failures = []

    def call(self, operation, *args, **given):
        return (self._place if operation == placement_wire.PLACE
                else self._notify)(*args, **given)

    def _place(self, uuid, **given):
        self.asked.append((uuid, given))
        return types.SimpleNamespace(
            status=self.status, why='too full', hosts=[
                types.SimpleNamespace(
                    host=one['host'],
                    feasible=one['host'] not in self.infeasible)
                for one in reversed(given['hosts'])])

    def _notify(self, event_type, payload):
        if self.failures:
            raise self.failures.pop()
        self.told.append((event_type, payload))


@pytest.fixture(name='controller')
def _controller():
    return Controller()


@pytest.fixture(name='cloud')
def _cloud(controller):
    return planned_cloud.PlannedCloud(controller, ('h0', 'h1'), 3,
                                      {'slot1': 1, 'slot2': 2})


def test_servers_are_placed_one_after_another(cloud, controller):
    servers = cloud.create_group('g', 3, {'a': 'b'}, flavor='slot1')
    assert [server.host for server in servers] == 3 * ['h1']
    assert [(one.name, one.status, one.row) for one in servers] == [
        (f'g-{row}', 'ACTIVE', row) for row in range(3)]
    assert len({one.uuid for one in servers}) == 3


def _free(given):
    return {one['host']: one['free'] for one in given['hosts']}


def test_the_controller_is_asked_as_novas_scheduler_does(cloud, controller):
    server, = cloud.create_group('g', 1, {'a': 'b'}, flavor='slot2')
    (uuid, given), = controller.asked
    assert uuid == server.uuid
    assert {name: given[name] for name in (
        'display_name', 'launch_index', 'num_instances', 'hints', 'metadata',
        'flavor')} == {
            'display_name': 'g-0', 'launch_index': 0, 'num_instances': 1,
            'hints': {'a': 'b'}, 'metadata': {},
            'flavor': {'vcpus': 2, 'memory_mb': 1024, 'disk_gb': 1.0}}
    assert given['project_id'] == given['user_id']
    assert _free(given) == {host: {
        'vcpus': 3, 'memory_mb': 1536, 'disk_gb': 1000.0}
        for host in ('h0', 'h1')}
    assert controller.told == [('instance.create.end', {
        'uuid': server.uuid, 'host': 'h1'})]


def test_a_group_shares_a_reservation_and_takes_slots(cloud, controller):
    cloud.create_group('g', 2, {}, flavor='slot1', project='p')
    first, second = (given for _, given in controller.asked)
    assert first['reservation_id'] == second['reservation_id']
    assert (first['project_id'], second['launch_index'],
            second['num_instances']) == ('p', 1, 2)
    assert _free(second)['h1']['vcpus'] == 2
    cloud.create_group('h', 1, {}, flavor='slot1')
    assert controller.asked[-1][1]['reservation_id'] != (
        first['reservation_id'])


def test_a_host_without_room_is_not_offered(cloud, controller):
    cloud.boot('g', ['h1'], 'slot2')
    assert not controller.asked
    cloud.create_group('g', 1, {}, flavor='slot1')
    assert set(_free(controller.asked[-1][1])) == {'h0', 'h1'}
    cloud.create_group('g', 1, {}, flavor='slot2')
    assert set(_free(controller.asked[-1][1])) == {'h0'}


def test_the_first_host_that_is_allowed_is_taken_or_none(cloud, controller):
    controller.infeasible = ('h1',)
    server, = cloud.create_group('g', 1, {}, flavor='slot1')
    assert server.host == 'h0'
    # Without a plan any will do.
    controller.status, controller.infeasible = 'unplanned', ()
    server, = cloud.create_group('g', 1, {}, flavor='slot1')
    assert server.host == 'h1'
    controller.infeasible = ('h0', 'h1')
    with pytest.raises(exception.PlacementInfeasible, match='g-0.*too full'):
        cloud.create_group('g', 1, {}, flavor='slot1')


def test_servers_that_run_are_asked_for_where_they_are(cloud, controller):
    servers = cloud.boot('g', ['h1', 'h0'], 'slot2')
    assert [(one.name, one.host, one.row, one.status)
            for one in servers] == [('g-0', 'h1', 0, 'ACTIVE'),
                                    ('g-1', 'h0', 1, 'ACTIVE')]
    assert not controller.asked and not controller.told
    cloud.tell(servers, 'n', {'a': 'b'}, 'p')
    assert [_free(given) for _, given in controller.asked] == [
        {host: {'vcpus': 3, 'memory_mb': 1536, 'disk_gb': 1000.0}}
        for host in ('h1', 'h0')]
    assert [(given['display_name'], given['launch_index'],
             given['num_instances'], given['flavor']['vcpus'])
            for _, given in controller.asked] == [
                ('n-0', 0, 2, 2), ('n-1', 1, 2, 2)]
    assert [payload['uuid'] for _, payload in controller.told] == [
        one.uuid for one in servers]
    # Their slots were taken when they were started.
    cloud.create_group('g', 1, {}, flavor='slot1')
    assert {host: free['vcpus'] for host, free in _free(
        controller.asked[-1][1]).items()} == {'h0': 1, 'h1': 1}
    controller.status = 'unplanned'
    with pytest.raises(exception.PlacementInfeasible):
        cloud.tell(servers, 'n', {}, 'p')


def test_slots_of_what_is_deleted_are_free_again(cloud, controller):
    servers = cloud.create_group('g', 2, {}, flavor='slot2')
    assert cloud.wait_active(iter(servers)) == servers
    counts = []
    cloud.delete(iter(servers), counts.append)
    assert counts == [2, 1]
    assert controller.told[-2:] == [
        ('instance.delete.end', {'uuid': one.uuid}) for one in servers]
    cloud.create_group('g', 1, {}, flavor='slot2')
    assert {free['vcpus'] for free in _free(
        controller.asked[-1][1]).values()} == {3}
    cloud.delete(servers[:0])


def test_a_notification_is_told_until_it_is_taken(cloud, controller,
                                                  monkeypatch):
    waits_s = []
    monkeypatch.setattr(tenacity.nap.time, 'sleep', waits_s.append)
    controller.failures = [
        exception.DatabaseUnavailable(why='x'),
        exception.ControllerUnavailable(url='x', why='y')]
    cloud.create_group('g', 1, {}, flavor='slot1')
    assert waits_s == [1, 1] and len(controller.told) == 1
    controller.failures = [ValueError()]
    with pytest.raises(ValueError):
        cloud.create_group('g', 1, {}, flavor='slot1')
    controller.failures = [
        exception.ControllerUnavailable(url='x', why='y')] * 301
    with pytest.raises(exception.ControllerUnavailable):
        cloud.create_group('g', 1, {}, flavor='slot1')
    assert len(controller.failures) == 1
