# SPDX-License-Identifier: Apache-2.0

"""Which moves of running VMs pay, by value."""

import pytest

from tests.unit import plain
from tests.unit import stored
from tests.unit.place import asking
from virtco.db import models
from virtco.model import states
from virtco.place import adviser
from virtco.wire import plan

State = states.MemberState
HOSTS = {'h0': (0.0, 0.0, 0.0), 'h1': (0.0, 0.0, 0.0),
         'h2': (2.0, 8.0, 9.0)}
#: Egress and ingress.
RATES = {'h0': (4e9, 8e9), 'h1': (8e9, 4e9), 'h2': (1e9, 2e9),
         'h3': (8e9, 8e9)}
TM = '[[0,1,1e11]]'


class Moves(asking.Asking):
    """Two VMs of a group on h0 and h1; h2 has room for both."""

    def __init__(self, free=HOSTS, **conf):
        super().__init__(reevaluation=conf)
        self.free = dict(free)
        self.state.payload_rates = lambda hosts, *_args: {
            host: RATES[host] for host in hosts}
        self.adviser = plain.Plain(adviser.Adviser(
            self.conf, stored.state(self.database, self.state),
            self.settings, lambda: self.free, self.clock))

    def group(self, name='a', hosts=('h0', 'h1'), tm=TM, demand=(1, 2, 3),
              state=State.RUNNING, **coflow):
        id_ = f'p-{name}'
        stored.add(self.database, stored.group(name, n_vms=len(hosts)), *(
            stored.member(id_, row, host, state=state, vcpus=demand[0],
                          memory_mb=demand[1] + row, disk_gb=demand[2])
            for row, host in enumerate(hosts)), stored.coflow(
                id_, tm=tm, n_vms=len(hosts), n_flows=1,
                **{'size_bytes': 1e11} | coflow))
        return self


def test_a_move_says_what_it_saves_and_costs():
    moves = Moves({'h1': (1.0, 9.0, 9.0)}).group()
    (move,) = moves.adviser.look()
    # 100 GB leave h0 at 4 Gbit/s, which the host of both need not send.
    assert (move['cct_s'], move['then_cct_s']) == (
        pytest.approx(200), pytest.approx(0))
    assert move['saved_s'] == pytest.approx(200)
    # 2 MiB at the slower of 4 Gbit/s out and 4 Gbit/s in.
    assert move['cost_s'] == pytest.approx(2 * 2 ** 20 * 8 / 3.9e9)
    assert {name: move[name] for name in (
        'instance_uuid', 'row', 'group', 'group_name', 'project_id', 'host',
        'to_host', 'at', 'reason', 'state')} == {
            'instance_uuid': 'p-a-0', 'row': 0, 'group': 'p-a',
            'group_name': 'a', 'project_id': 'p', 'host': 'h0',
            'to_host': 'h1', 'at': asking.NOW_S, 'reason': 'saves',
            'state': 'proposed'}


@pytest.mark.parametrize(('free', 'target', 'rate_bps'), [
    ({'h0': (1.0, 9.0, 9.0)}, 'h0', 8e9),
    ({'h3': (1.0, 9.0, 9.0), 'h0': (1.0, 9.0, 9.0)}, 'h0', 8e9)])
def test_memory_goes_out_of_one_host_and_into_the_other(free, target,
                                                        rate_bps):
    (move,) = Moves(free).group().adviser.look()
    assert (move['host'], move['to_host']) == ('h1', target)
    assert move['cost_s'] == pytest.approx(
        3 * 2 ** 20 * 8 / (rate_bps - 1e8))


def test_what_is_written_meanwhile_is_copied_as_well(monkeypatch):
    moves = Moves({'h1': (1.0, 9.0, 9.0)}).group()
    monkeypatch.setattr(adviser, 'DIRTY_BPS', 3e9)
    (move,) = moves.adviser.look()
    assert move['cost_s'] == pytest.approx(2 * 2 ** 20 * 8 / 1e9)
    monkeypatch.setattr(adviser, 'DIRTY_BPS', 4e9)
    assert moves.adviser.look() == []


@pytest.mark.parametrize(('free', 'is_moved'), [
    ((1.0, 2.0, 3.0), True), ((0.9, 2.0, 3.0), False),
    ((1.0, 1.9, 3.0), False), ((1.0, 2.0, 2.9), False)])
def test_there_must_be_room(free, is_moved):
    assert bool(Moves({'h1': free}).group().adviser.look()) is is_moved


def test_a_host_that_takes_no_vms_has_no_room_but_its_own():
    assert Moves({}).group(demand=(1, 0, 1)).adviser.look() == []


def test_what_is_left_counts_as_often_as_it_will_be_sent():
    moves = Moves({'h1': (1.0, 9.0, 9.0)}).group(iterations=5, iteration=2)
    moves.state.remaining_fraction = {'c-p-a': 0.5}.get
    (move,) = moves.adviser.look()
    assert move['cct_s'] == pytest.approx(100)
    assert move['saved_s'] == pytest.approx(300)


@pytest.mark.parametrize(('coflows', 'n'), [
    ([], 1), ([(1, 1)], 1), ([(1, 0)], 1), ([(5, 2)], 3), ([(5, 5)], 1),
    ([(1000, 1)], 100), ([(101, 1)], 100), ([(100, 1)], 99),
    # Zero is for ever.
    ([(0, 7)], 100), ([(3, 1), (9, 2)], 7)])
def test_how_often_what_is_left_is_sent(coflows, n):
    assert adviser._times([models.Coflow(iterations=all_, iteration=done)
                           for all_, done in coflows]) == n


def test_one_group_takes_the_room_and_the_next_what_is_left():
    """The larger one is looked at first."""
    moves = Moves({'h1': (1.0, 9.0, 9.0)})
    moves.group('small', tm='[[0,1,1e10]]', size_bytes=1e10)
    moves.group('large')
    (move,) = moves.adviser.look()
    assert move['group_name'] == 'large'
    # Its old place is too small for a VM of the other group,
    moves.free = {'h1': (1.0, 9.0, 9.0), 'h0': (0.0, 0.0, 0.0)}
    assert len(moves.adviser.look()) == 1
    # and nothing moves there before it is free.
    moves.free = {'h1': (1.0, 9.0, 9.0), 'h0': (0.0, 1.0, 0.0)}
    (first,) = moves.adviser.look()
    assert (first['group_name'], first['to_host']) == ('large', 'h1')
    with moves.database.writer() as session:
        session.get(models.Member, ('p-large', 0)).host = 'h1'
    moves.free = {'h1': (0.0, 7.0, 6.0), 'h0': (1.0, 3.0, 3.0)}
    (second,) = moves.adviser.look()
    assert (second['group_name'], second['host'], second['to_host']) == (
        'small', 'h1', 'h0')


def test_what_pays_most_comes_first():
    moves = Moves({'h1': (2.0, 9.0, 9.0)})
    moves.group('small', tm='[[0,1,1e10]]', size_bytes=2e11)
    moves.group('large')
    first, second = moves.adviser.look()
    assert (first['group_name'], second['group_name']) == ('large', 'small')
    assert first['saved_s'] > second['saved_s']


def test_who_leaves_a_drained_host_is_looked_at_first():
    """Though the other group is larger and saves more."""
    moves = Moves({'h1': (1.0, 9.0, 9.0)})
    moves.group('large')
    moves.group('small', hosts=('h3', 'h1'), tm='[[0,1,1e10]]',
                size_bytes=1e10)
    moves.state.drained = frozenset({'h3'})
    (move,) = moves.adviser.look()
    assert (move['group_name'], move['reason'], move['host']) == (
        'small', 'drain', 'h3')


@pytest.mark.parametrize('state', [State.PLANNED, State.RESERVED])
def test_only_vms_that_run_are_moved(state):
    assert Moves({'h1': (2.0, 9.0, 9.0)}).group(
        state=state).adviser.look() == []


def test_a_vm_that_comes_later_is_no_part_of_it():
    moves = Moves({'h1': (2.0, 9.0, 9.0)}).group(
        hosts=('h0', 'h1', 'h2'), tm='[[0,1,1e11],[2,0,9e12]]')
    with moves.database.writer() as session:
        session.get(models.Member, ('p-a', 2)).state = State.PLANNED
    (move,) = moves.adviser.look()
    assert (move['row'], move['cct_s']) == (0, pytest.approx(200))


def test_one_that_runs_alone_leaves_a_drained_host():
    moves = Moves({'h1': (1.0, 9.0, 9.0)}).group(hosts=('h0', 'h1'))
    with moves.database.writer() as session:
        session.get(models.Member, ('p-a', 1)).state = State.PLANNED
    moves.state.drained = frozenset({'h0'})
    (move,) = moves.adviser.look()
    assert (move['row'], move['to_host'], move['saved_s']) == (0, 'h1', 0)


def test_groups_that_are_gone_are_left_alone():
    moves = Moves({'h1': (2.0, 9.0, 9.0)}).group()
    with moves.database.writer() as session:
        session.get(models.Group, 'p-a').retired_at = 1.0
    assert moves.adviser.look() == []


def test_without_time_nobody_is_looked_at():
    moves = Moves({'h1': (1.0, 9.0, 9.0)}).group()
    assert moves.adviser.look(0.0) == []
    assert len(moves.adviser.look(60.0)) == 1


class Mover:
    def __init__(self):
        self.moved = []

    def live_migrate(self, uuid, host):
        self.moved.append((uuid, host))


@pytest.mark.parametrize(('later_s', 'is_under_way'), [
    (599.0, True), (600.0, False)])
def test_one_that_is_not_seen_to_end_is_under_way_for_so_long(
        later_s, is_under_way):
    moves, mover = Moves({'h1': (1.0, 9.0, 9.0)}, max_migrations=1), Mover()
    moves.group()
    moves.adviser.turn(mover)
    assert mover.moved == [('p-a-0', 'h1')]
    moves.now_s += later_s
    moves.adviser.turn(mover)
    assert len(mover.moved) == 2 - is_under_way
    (known,) = moves.adviser.known()
    assert known['at'] == asking.NOW_S + later_s * (not is_under_way)


def test_so_many_at_a_time():
    moves = Moves({'h1': (3.0, 90.0, 90.0)}, max_migrations=2)
    for number in range(3):
        moves.group(f'g{number}', size_bytes=1e11 + number)
    mover = Mover()
    moves.adviser.turn(mover)
    assert len(mover.moved) == 2
    assert sorted(one['state'] for one in moves.adviser.known()) == [
        'migrating', 'migrating', 'proposed']


def test_the_best_of_what_is_known_comes_first():
    moves = Moves()
    kept = []
    for number, (reason, cost_s, saved_s) in enumerate((
            ('saves', 1, 5), ('saves', 9, 10), ('drain', 5, 1),
            ('saves', 9, 99))):
        kept.append(plan.Move(
            instance_uuid=f'vm-{number}', row=0, group='g', group_name='g',
            project_id='p', host='h0', to_host='h1', saved_s=saved_s,
            cost_s=cost_s, cct_s=None, then_cct_s=None, at=1.0,
            reason=reason))
    moves.adviser._save(kept)
    assert [one['instance_uuid'] for one in moves.adviser.known()] == [
        'vm-2', 'vm-3', 'vm-0', 'vm-1']
