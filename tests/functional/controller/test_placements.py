# SPDX-License-Identifier: Apache-2.0

"""Placements over HTTP against a real process and a real database."""

import concurrent.futures
import itertools

import pytest

from tests import patience
from tests.functional.controller import harness

RING = '{"pattern": "ring", "n": %d, "flow_size": "10MB"}'


def test_a_batch_gets_the_plan_of_its_first(tenant):
    answers = [tenant.place(n, num_instances=4) for n in range(4)]
    coflow = tenant.coflow()
    assert [a['host'] for a in answers] == coflow['hosts']
    assert [a['row'] for a in answers] == [0, 1, 2, 3]
    # Two slots per host: the best plan pairs a sender with a receiver.
    assert len(set(coflow['hosts'])) == 2
    assert coflow['state'] == 'planned'
    assert coflow['cct_s'] == pytest.approx(answers[0]['cct_s'])
    for answer in answers:
        assert [h['rank'] for h in answer['hosts']] == list(range(4))
        assert answer['hosts'][0]['host'] == answer['host']


def test_groups_are_told_apart_by_each_byte_of_their_names(tenant):
    """No database takes one for another, or has no room for one."""
    names = ('sort', 'SORT', 's\xf6rt', 'so\u0308rt', '\U0001f600')
    room = {f'h{i}': 20 for i in range(4)}
    for n, name in enumerate(names):
        answers = [tenant.place(4 * n + i, name, num_instances=4, hosts=room)
                   for i in range(4)]
        assert [a['row'] for a in answers] == [0, 1, 2, 3]
    assert [coflow['name'] for coflow in tenant.coflows()] == list(names)


def test_the_same_question_gets_the_same_answer(tenant):
    first = tenant.place(0, num_instances=4)
    assert tenant.place(0, num_instances=4) == first
    # The pass for the alternates: the last instance again, less room.
    used = {f'h{i}': 1 for i in range(4)}
    again = tenant.place(0, num_instances=4, hosts=used)
    assert again['host'] == first['host']
    stored = tenant.stored(0)
    assert stored['host'] == first['host']
    assert stored['state'] == 'reserved'


def test_alternates_without_the_reserved_host_do_not_move_it(tenant):
    first = tenant.place(0, num_instances=4)
    others = {f'h{i}': 2 for i in range(4) if f'h{i}' != first['host']}
    again = tenant.place(0, num_instances=4, hosts=others)
    assert again['host'] in others
    assert tenant.coflow()['hosts'][0] == first['host']


def test_a_group_of_separate_requests(tenant):
    hosts = []
    for n in range(4):
        answer = tenant.place(n, launch_index=0, reservation_id=f'r{n}')
        assert answer['row'] == n
        hosts.append(answer['host'])
        tenant.notify('instance.create.end', n, host=answer['host'])
    assert tenant.coflow()['hosts'] == hosts
    harness.wait_for(lambda: tenant.coflow()['state'] == 'active', 'its begin')


def test_explicit_rows_and_a_taken_one(tenant):
    last = tenant.place(0, hints={'virtco:index': '3'})
    assert last['row'] == 3
    other = tenant.place(1, hints={'virtco:index': '3'})
    assert other['row'] == 0
    assert 'row 3' in other['why']
    shown = tenant.call('GET', f'/v1/coflows/{tenant.coflow()["id"]}')
    assert [e['kind'] for e in shown['events']] == ['index_taken']
    assert tenant.coflow()['warnings'] == 1


def test_planned_rows_move_when_their_host_is_not_offered(tenant):
    tenant.place(0, num_instances=4)
    hosts = tenant.coflow()['hosts']
    rest = {f'h{i}': 2 for i in range(4) if f'h{i}' != hosts[1]}
    rest.setdefault(hosts[0], 1)
    answer = tenant.place(1, num_instances=4, hosts=rest)
    assert answer['host'] in rest
    after = tenant.coflow()['hosts']
    assert after[0] == hosts[0]
    assert after[1] == answer['host'] != hosts[1]


def test_nova_has_the_last_word(tenant):
    planned = tenant.place(0, num_instances=4)['host']
    other = next(f'h{i}' for i in range(4) if f'h{i}' != planned)
    assert tenant.notify('instance.create.end', 0, host=other)
    assert not tenant.notify('instance.create.end', 0, host=other)
    assert tenant.coflow()['hosts'][0] == other
    stored = tenant.stored(0)
    assert (stored['host'], stored['host_now']) == (planned, other)


def test_moves_and_deletes_follow_nova(tenant):
    hosts = tenant.launch(4)
    tenant.notify('instance.live_migration_post_dest.end', 0, host='h3')
    tenant.notify('instance.resize_finish.end', 1, host='h2')
    assert tenant.coflow()['hosts'] == ['h3', 'h2', *hosts[2:]]
    tenant.notify('instance.shelve_offload.end', 1, host=None)
    assert tenant.coflow()['hosts'][1] is None
    tenant.notify('instance.unshelve.end', 1, host='h1')
    for n in range(4):
        assert tenant.coflow()['state'] != 'retired'
        tenant.notify('instance.delete.end', n)
    assert tenant.coflow()['state'] == 'retired'
    # The name is free again.
    assert tenant.place(7)['status'] == 'planned'


def test_a_running_vm_that_moves_is_ranked_among_its_siblings(tenant):
    hosts = tenant.launch(4)
    target = {f'h{i}': 1 for i in range(4) if f'h{i}' != hosts[0]}
    answer = tenant.place(0, num_instances=1, hosts=target)
    assert answer['host'] in target
    assert tenant.coflow()['hosts'] == hosts


def test_a_failed_build_releases(tenant):
    tenant.place(0)
    assert tenant.call('POST', '/v1/notifications', {
        'event_type': 'compute_task.build_instances.error',
        'payload': {'nova_object.data': {
            'instance_uuid': tenant.instance(0), 'reason': {
                'nova_object.data': {'exception_message': 'No host'}}}}},
        202) == {'changed': True}
    assert tenant.coflow()['state'] == 'retired'
    assert [(e['kind'], e['detail']) for e in tenant.events()] == [
        ('build_failed', 'No host')]


def test_a_group_leaves_room_for_what_others_reserved(tenant):
    """Five slots: four are reserved though Nova still counts them free."""
    room = {'h0': 2, 'h1': 2, 'h2': 1}
    tenant.place(0, num_instances=4, hosts=room)
    held = set(tenant.coflow()['hosts'])
    answer = tenant.place(10, 'b', '[[0]]', hosts=room)
    taken = [h for h in tenant.coflow()['hosts']]
    free = {host: slots - taken.count(host) for host, slots in room.items()}
    assert free[answer['host']] >= 1, (held, answer)
    # Nothing left: Nova may know better, but nothing is booked twice.
    last = tenant.place(11, 'c', '[[0]]', status='neutral', hosts={'h0': 1})
    assert 'no valid placement' in last['why']


def test_server_groups_are_kept(tenant):
    apart = {'policy': 'anti-affinity', 'members': [0, 1, 2, 3], 'hosts': [],
             'max_per_host': 1}
    hosts = [tenant.place(n, num_instances=4,
                          server_group=dict(apart))['host']
             for n in range(4)]
    assert len(set(hosts)) == 4
    together = {'policy': 'affinity', 'hosts': ['h2'],
                'members': [20, 21]}
    for n in (20, 21):
        # One slot of three is reserved.
        answer = tenant.place(n, 'b', RING % 2, launch_index=n - 20, slots=3,
                              num_instances=2, server_group=dict(together))
        assert answer['host'] == 'h2'


def test_more_vms_than_room_still_places_those_that_fit(tenant):
    room = {'h0': 1, 'h1': 1}
    answer = tenant.place(0, num_instances=4, hosts=room)
    assert answer['host'] in room
    assert tenant.place(1, status='neutral', num_instances=4,
                        hosts={answer['host']: 0})


def test_a_registered_matrix_by_reference(tenant):
    found = tenant.call('POST', '/v1/coflows', {
        'project_id': tenant.project, 'name': 'kept', 'tm': [
            {'name': 'C1', 'dst_port': 5001, 'tm': [[0, 5], [0, 0]]},
            {'name': 'C2', 'dst_port': 5002, 'tm': [[0, 0], [7, 0]]}]}, 201)
    assert found['state'] == 'registered'
    answer = tenant.place(0, 'g', None,
                          hints={'virtco:tm_ref': found['id']})
    names = {c['name']: c for c in tenant.coflows(state='planned')}
    assert {n: c['dst_port'] for n, c in names.items()} == {
        'C1': 5001, 'C2': 5002}
    assert names['C1']['group'] == answer['group']
    other = tenant.place(1, 'h', None, status='ignored',
                         hints={'virtco:tm_ref': found['id']},
                         project_id='other')
    assert 'registered in this project' in other['why']


@pytest.mark.parametrize(('changes', 'text'), [
    ({'matrix': 'x'}, 'virtco:tm'),
    ({'matrix': '[[0, -5], [0, 0]]'}, 'virtco:tm[0][1]'),
    ({'matrix': None}, 'the name of a living group'),
    ({'hints': {'virtco:index': '9'}}, 'between 0 and 3'),
    ({'name': None, 'hints': {'virtco:tm': '[[0]]'}}, 'virtco:coflow'),
])
def test_a_bad_hint_is_ignored_and_seen(tenant, changes, text):
    answer = tenant.place(0, status='ignored', **changes)
    assert text in answer['why']
    assert [h['feasible'] for h in answer['hosts']] == [True] * 4
    assert tenant.place(0, status='ignored', **changes) == answer
    events = tenant.events()
    assert [e['kind'] for e in events] == ['hint_ignored']
    assert text in events[0]['detail']


def test_no_hint_is_neutral_and_leaves_nothing(tenant):
    tenant.place(0, name=None, status='neutral')
    assert tenant.coflows() == []
    tenant.stored(0, status=404)


def test_projects_are_bounded(make):
    controller = make({'limits': {'max_groups_per_project': 2}})
    tenant = controller.tenant()
    for n, name in enumerate('abc'):
        status = 'planned' if n < 2 else 'ignored'
        answer = tenant.place(n, name, status=status)
    assert 'groups of the project: expected at most 2' in answer['why']
    assert 'got 3' in answer['why']
    assert controller.metrics()['virtco_ignored_hints_total'] == 1


def test_unused_reservations_expire(make):
    tenant = make({'placement': {'reservation_ttl_s': 1,
                                 'deadline_s': 10}}).tenant()
    # Not of the rows that are shown, which may have expired by now.
    host = tenant.place(0, num_instances=4)['host']
    tenant.notify('instance.create.end', 0, host=host)
    harness.wait_for(
        lambda: tenant.coflow()['hosts'] == [host, None, None, None],
        what='the expiry')
    # The rows are open still.
    assert tenant.place(1)['row'] == 1


def test_concurrent_groups_never_share_a_slot(make):
    """Eight groups of two at once, sixteen slots: each gets its own.

    However long a busy machine takes for the plans that are made anew.
    """
    tenant = make({'placement': {'deadline_s': 50},
                   'controller': {'db_timeout_s': 50}}).tenant()
    room = {f'h{i}': 2 for i in range(8)}

    def launch(group):
        return tenant.place(100 * group, f'g{group}', RING % 2,
                            launch_index=0, num_instances=2, hosts=room)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(launch, range(8)))
    taken = list(itertools.chain.from_iterable(
        c['hosts'] for c in tenant.coflows()))
    assert len(taken) == 16
    assert all(taken.count(host) <= 2 for host in room), taken


def test_what_if_reserves_nothing(tenant):
    request = {
        'groups': [{'name': 'a', 'tm': harness.MATRIX, 'flavor': {
            'vcpus': 1, 'memory_mb': 1, 'disk_gb': 0}}] * 2,
        'hosts': [{'host': f'h{i}', 'free': {
            'vcpus': 2, 'memory_mb': 10, 'disk_gb': 10},
            'egress_bps': 1e8, 'ingress_bps': 1e8} for i in range(6)],
        'objective': 'joint'}
    plan = tenant.call('POST', '/v1/plans', request)
    assert len(plan['vms']) == 8
    assert [c['name'] for c in plan['coflows']] == ['a', 'a']
    assert plan['cct_s'] > 0
    assert tenant.coflows() == []
    request['hosts'] = request['hosts'][:3]
    error = tenant.call('POST', '/v1/plans', request, 409)['error']
    assert error['code'] == 'virtco.infeasible'


def test_a_batch_of_eighteen_is_quick(tenant):
    room = {f'h{i}': 2 for i in range(18)}
    watch = patience.Stopwatch()
    hosts = [tenant.place(n, matrix=RING % 18, num_instances=18,
                          hosts=room)['host'] for n in range(18)]
    assert hosts == tenant.coflow()['hosts']
    assert watch.seconds() < 10


def test_a_late_notification_changes_nothing(tenant):
    tenant.place(0, num_instances=4)

    def sent(event, second, **data):
        return tenant.notify(f'instance.{event}.end', 0,
                             f'2026-11-22 10:00:{second:02d}.25', **data)

    assert sent('create', 1, host='h1')
    assert sent('live_migration_post_dest', 9, host='h3')
    assert not sent('live_migration_post_dest', 5, host='h2')
    assert not sent('create', 1, host='h1')
    assert not sent('shelve_offload', 7, host=None)
    assert tenant.stored(0)['host_now'] == 'h3'
    assert sent('delete', 2, host=None)
    assert not sent('live_migration_post_dest', 12, host='h0')
    assert tenant.coflow()['state'] == 'retired'


def test_the_port_that_a_shelved_vm_left_does_not_bring_it_back(tenant):
    hosts = tenant.launch(4)
    edge = tenant.edges(hosts)[hosts[0]]
    tenant.notify('instance.shelve_offload.end', 0, host=None)
    edge.report()
    assert tenant.coflow()['hosts'][0] is None
    vms = edge.vms

    def is_back():
        # It is gone in the next report, and back after an unshelve of which
        # no notification came. The scheduler's thread may hear of the shelve
        # after the first of them.
        for edge.vms in ([], vms):
            edge.report()
        return tenant.coflow()['hosts'][0] == hosts[0]

    patience.wait_for(is_back, 'the VM')


def _together(tenant, pool, first, room):
    """Two new groups that ask at the same time; their answers."""
    both = [pool.submit(tenant.place, first + number, f'g{first + number}',
                        '[[0, "%dGB"], [0, 0]]' % size, num_instances=2,
                        hosts=room)
            for number, size in ((0, 1), (10, 9))]
    return [one.result() for one in both]


def test_new_groups_that_ask_at_once_are_planned_together(make):
    """One host holds a whole group: the larger one gets it, whoever asks
    first, and neither is told a slot of the other.
    """
    room = {'h0': 2, 'h1': 1, 'h2': 1}
    controller = make({'placement': {'window_ms': 100}})
    joint = 'virtco_window_groups_total{outcome="together"}'
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        def once():
            # A busy machine may bring the second one late.
            tenant = controller.tenant()
            before = controller.metrics().get(joint, 0)
            small, large = _together(tenant, pool, 0, room)
            coflows = {c['name']: c for c in tenant.coflows()}
            taken = [host for c in coflows.values() for host in c['hosts']]
            assert sorted(taken) == ['h0', 'h0', 'h1', 'h2']
            for answer in (small, large):
                hosts = coflows[answer['group_name']]['hosts']
                assert answer['host'] == hosts[answer['row']]
                assert answer['cct_s'] == pytest.approx(
                    coflows[answer['group_name']]['cct_s'])
                assert answer['lower_bound_s'] <= answer['cct_s'] + 1e-9
            if controller.metrics().get(joint, 0) - before < 2:
                return False
            assert set(coflows['g10']['hosts']) == {'h0'}
            assert coflows['g0']['cct_s'] == pytest.approx(8.0, rel=0.2)
            # Their second VMs go where the joint plan has them.
            for first, name in ((0, 'g0'), (10, 'g10')):
                told = tenant.place(first + 1, name, None, num_instances=2,
                                    launch_index=1, hosts=room)
                assert told['host'] == coflows[name]['hosts'][1]
            return True

        patience.wait_for(once, 'two groups in one window',
                          log=controller.log)
    assert 'Planned 2 groups together' in controller.log_text()
    held = [value for name, value in controller.metrics().items()
            if name.startswith('virtco_placement_phase_seconds_sum')
            and 'hold' in name]
    assert held[0] > 0


def test_a_window_is_within_the_deadline(make):
    """No time for both: planned at once."""
    controller = make({'placement': {
        'window_ms': 100, 'budget_s': 40, 'deadline_s': 50}})
    assert controller.tenant().place(0, num_instances=4)['host']
    metrics = controller.metrics()
    assert not any(value for name, value in metrics.items()
                   if name.startswith('virtco_window_groups'))
