# SPDX-License-Identifier: Apache-2.0

"""Orders of measurements over a real database, without the measuring."""

import types

from hypothesis import given
from hypothesis import strategies as st
import msgspec
import pytest

from tests.unit import plain
from tests.unit import stored
from virtco import exception
from virtco import metrics
from virtco import periodic
from virtco.db import migration
from virtco.db import session as db_session
from virtco.decide import asked
from virtco.decide import checks
from virtco.decide import measurement_orders as orders
from virtco.wire import probe as wire

PROBE = wire.ProbeRequest(pairs=[('a', 'b')])


def schedule(n_hosts):
    return wire.Schedule(
        enabled=True, n_hosts=n_hosts, n_fresh=0, n_held=0, all_pairs=True,
        freshness_s=1800.0, under_way=[], max_link_share=0.1,
        max_bytes_per_hour=1e9, last_hour_bytes=0.0)


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class Live:
    @staticmethod
    def is_known(_host):
        return True

    @staticmethod
    def hosts_of_group(group):
        return [f'{group}-0', f'{group}-1']


class Checks(checks.Checks):
    """Takes them, and runs none."""

    def __init__(self):
        self.taken = []
        self._live = Live

    def take(self, check):
        self.taken.append(check)


class Prober:
    def __init__(self):
        self.asked, self.n_looks = [], 0

    def ask(self, request):
        self.asked.append(asked.Asked(request, 0.0))
        return self.asked[-1]

    def look(self):
        self.n_looks += 1

    @staticmethod
    def state():
        return schedule(3)


class Process:
    def __init__(self, database, conf, clock):
        self.checks, self.prober = Checks(), Prober()
        self.orders = plain.Plain(orders.Orders(
            conf, stored.state(database, Live), self.checks, self.prober,
            periodic.Turns(metrics.Metrics()), clock))
        self.deposed, database.fence = False, self.fence

    def fence(self, _session):
        if self.deposed:
            raise exception.Deposed(epoch=1)


@pytest.fixture
def conf():
    class Probe:
        enabled = True
        freshness_s = 1800

    class Conf:
        probe = Probe
    return Conf


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def start(tmp_path, conf, clock):
    def process():
        opened.append(db_session.Database(f'sqlite:///{tmp_path}/db'))
        return Process(opened[-1], conf, clock)

    opened = [db_session.Database(f'sqlite:///{tmp_path}/db')]
    migration.upgrade(opened[0])
    yield process
    for database in opened:
        database.dispose()


def test_progress_is_seen_by_all_and_another_leader_begins_anew(start):
    api, leader = start(), start()
    assert api.orders.schedule() is None
    made = api.orders.check(['a', 'b'])
    leader.orders.lead()
    leader.orders.turn()
    (check,) = leader.checks.taken
    assert api.orders.schedule() == msgspec.to_builtins(
        schedule(3))
    check.note(state='running', n_rounds_done=7)
    leader.orders.turn()
    assert api.orders.find_check(made['check_id'])['n_rounds_done'] == 7
    leader.deposed = True
    check.note(n_rounds_done=8)
    with pytest.raises(exception.Deposed):
        leader.orders.turn()
    successor = start()
    successor.orders.lead()
    successor.orders.turn()
    (again,) = successor.checks.taken
    assert (again.now.hosts, again.now.state) == (['a', 'b'], 'waiting')
    assert api.orders.find_check(made['check_id'])['n_rounds_done'] == 0
    again.note(state='done')
    successor.orders.turn()
    assert [one['state'] for one in api.orders.checks()] == ['done']
    successor.orders.turn()
    assert len(successor.checks.taken) == 1


def test_who_leads_next_begins_with_old_orders_that_were_under_way(
        start, clock):
    leader, successor = start(), start()
    leader.orders.lead()
    check = leader.orders.check(['a', 'b'])['check_id']
    leader.orders.probe(PROBE)
    leader.checks.taken[0].note(state='running')
    leader.orders.turn()
    clock.now += orders.CHECK_EXPIRES_S
    successor.orders.lead()
    successor.orders.turn()
    assert len(successor.checks.taken) == len(successor.prober.asked) == 1
    assert successor.orders.find_check(check)['state'] == 'waiting'


def test_an_answer_is_written_as_it_comes(start):
    leader = start()
    leader.orders.lead()
    name = leader.orders.probe(PROBE)
    assert leader.orders.find_probe(name) == {'done': False, 'results': []}
    leader.orders.turn()
    assert leader.prober.n_looks == 2
    (one,) = leader.prober.asked
    one.results['a', 'b'] = None
    leader.orders.turn()
    assert not leader.orders._taken
    assert leader.orders.find_probe(name) == {'done': True, 'results': [
        {'src': 'a', 'dst': 'b'}]}


def test_what_nobody_takes_up_expires(start, clock):
    api, leader = start(), start()
    name = api.orders.probe(PROBE)
    check = api.orders.check(['a', 'b'])['check_id']
    clock.now += orders.CHECK_EXPIRES_S
    assert api.orders.find_probe(name) == {
        'done': True, 'results': [{'src': 'a', 'dst': 'b'}],
        'why': orders.NOBODY}
    assert api.orders.find_check(check)['state'] == 'failed'
    leader.orders.lead()
    leader.orders.turn()
    assert not leader.checks.taken and not leader.prober.asked
    assert api.orders.find_check(check)['why'] == orders.NOBODY
    # It is written down, too: nobody looks at them again.
    clock.now = 1000.0
    leader.orders.turn()
    assert api.orders.find_check(check)['state'] == 'failed'
    assert not leader.checks.taken and not leader.prober.asked


def test_what_waits_for_others_does_not_expire(start, clock):
    api, leader = start(), start()
    check = api.orders.check(['a', 'b'])['check_id']
    leader.orders.lead()
    leader.orders.turn()
    clock.now += orders.CHECK_EXPIRES_S
    for one in (api, leader):
        assert one.orders.find_check(check)['state'] == 'waiting'
    leader.checks.taken[0].note(state='running')
    leader.orders.turn()
    assert api.orders.find_check(check)['state'] == 'running'


def test_orders_are_bounded(start, conf, clock):
    api = start()
    for _ in range(asked.MOST):
        api.orders.probe(PROBE)
    with pytest.raises(exception.Invalid, match='16 under way'):
        api.orders.probe(PROBE)
    clock.now += orders.PROBE_EXPIRES_S
    api.orders.probe(PROBE)
    with pytest.raises(exception.Invalid, match='two different hosts'):
        api.orders.probe(wire.ProbeRequest(pairs=[('a', 'a')]))
    conf.probe.enabled = False
    with pytest.raises(exception.Invalid, match='enabled: expected true'):
        api.orders.probe(PROBE)
    # Those that are over are kept in a bounded number.
    leader = start()
    leader.orders.lead()
    for number in range(orders.db_orders.MOST_KEPT + 5):
        clock.now += 1
        leader.orders.check([f'a{number}', 'b'])
        leader.checks.taken[-1].note(state='done')
        leader.orders.turn()
    kept = api.orders.checks()
    assert len(kept) == orders.db_orders.MOST_KEPT + 1
    assert kept[-1]['hosts'][0] == f'a{number}'


def test_the_hosts_of_new_groups_are_checked_once(start, clock):
    api = start()
    api.orders.planned(['g', 'h'])
    api.orders.turn()
    assert api.orders.checks() == []
    clock.now += orders.SETTLE_S
    api.orders.turn()
    api.orders.planned(['g'])
    clock.now += orders.SETTLE_S
    api.orders.turn()
    # Both are of the same moment.
    assert sorted((one['hosts'], one['trigger'])
                  for one in api.orders.checks()) == [
        (['g-0', 'g-1'], 'launch'), (['h-0', 'h-1'], 'launch')]


@pytest.mark.parametrize('late_s, hosts', [
    (59.0, [['g-0', 'g-1']]), (61.0, [])])
def test_a_group_that_the_model_knows_late_is_checked(start, clock,
                                                      monkeypatch, late_s,
                                                      hosts):
    api = start()
    api.orders.planned(['g'])
    began_s, known = clock.now, Live.hosts_of_group
    with monkeypatch.context() as patch:
        patch.setattr(Live, 'hosts_of_group', lambda *_: [])
        while clock.now < began_s + late_s:
            clock.now += orders.SETTLE_S
            api.orders.turn()
    assert known('g') and api.orders.checks() == []
    clock.now += orders.SETTLE_S
    for _ in range(2):
        api.orders.turn()
    assert [one['hosts'] for one in api.orders.checks()] == hosts


@pytest.mark.parametrize('error', [
    exception.DatabaseUnavailable(why='a test'),
    exception.Conflict(what='record', id='in the database')])
def test_new_groups_are_checked_once_the_database_is_back(start, clock,
                                                          monkeypatch, error):
    api = start()
    api.orders.planned(['g', 'h'])
    clock.now += orders.SETTLE_S
    add = orders.db_orders.add
    with monkeypatch.context() as patch:
        patch.setattr(orders.db_orders, 'add', lambda session, order, most: (
            add(session, order, most) if 'g-0' in order.document
            else _fail(error)))
        with pytest.raises(type(error)):
            api.orders.turn()
    clock.now += orders.SETTLE_S
    api.orders.turn()
    api.orders.turn()
    assert [one['hosts'] for one in api.orders.checks()] == [
        ['g-0', 'g-1'], ['h-0', 'h-1']]


def _fail(error):
    raise error


def test_a_group_on_one_host_has_nothing_to_check(start, clock, monkeypatch,
                                                  caplog):
    api = start()
    monkeypatch.setattr(Live, 'hosts_of_group', {'g': ['a'], 'h': []}.get)
    api.orders.planned(['g', 'h'])
    clock.now += orders.SETTLE_S
    api.orders.turn()
    assert api.orders.checks() == [] and caplog.messages == []


def test_a_host_is_checked_again_only_as_the_peer_of_one_that_was_not(
        start, clock, monkeypatch):
    api = start()
    for group, hosts in (('g', ['a', 'b']), ('h', ['a', 'b', 'c']),
                         ('i', ['c', 'd', 'e']), ('j', ['a', 'e'])):
        monkeypatch.setattr(Live, 'hosts_of_group', {group: hosts}.get)
        api.orders.planned([group])
        clock.now += orders.SETTLE_S
        api.orders.turn()
    assert [one['hosts'] for one in api.orders.checks()] == [
        ['a', 'b'], ['c', 'a'], ['d', 'e']]


@given(st.lists(st.sampled_from('abcdef'), unique=True),
       st.sets(st.sampled_from('abcdef')))
def test_whom_a_launch_has_checked(hosts, lately):
    """Those that were not, and one more where that is a lone one."""
    due = orders.to_check(hosts, lately)
    new = [host for host in hosts if host not in lately]
    assert due[:len(new)] == new
    assert len(due) == (min(2, len(hosts)) if len(new) == 1 else len(new))
    assert len(set(due)) == len(due) and set(due) <= set(hosts)


def test_a_check_that_failed_is_none_and_an_old_one_is_forgotten(
        start, clock, conf):
    leader = start()
    leader.orders.lead()
    leader.orders.check(['a', 'b'])
    leader.orders.check(['c', 'd'])
    leader.checks._prober = types.SimpleNamespace(
        afford=lambda *_limits: None)
    leader.orders.check('efgh', 'discover')
    assert set(leader.orders._checked_lately()) == set('abcd')
    leader.checks.taken[0].note(state='failed')
    leader.checks.taken[1].note(state='done')
    leader.orders.turn()
    assert set(leader.orders._checked_lately()) == set('cd')
    clock.now += conf.probe.freshness_s
    assert set(leader.orders._checked_lately()) == set('cd')
    clock.now += 1
    assert not leader.orders._checked_lately()


def test_what_probing_does_is_written_down_now_and_then(start, clock):
    leader, api = start(), start()
    # The first turn writes at any time.
    clock.now = orders.SCHEDULE_S + 1
    leader.orders.lead()
    leader.orders.turn()
    assert api.orders.schedule() == msgspec.to_builtins(
        schedule(3))
    leader.prober.state = lambda: schedule(4)
    for seconds, n_hosts in ((0.0, 3), (4.9, 3), (0.1, 4)):
        clock.now += seconds
        leader.orders.turn()
        assert api.orders.schedule()['n_hosts'] == n_hosts
    # Whose clock was set back writes at once.
    leader.prober.state = lambda: schedule(5)
    clock.now -= 100
    leader.orders.turn()
    assert api.orders.schedule()['n_hosts'] == 5
    assert leader.orders.schedule()['n_hosts'] == 5


def test_a_schedule_that_could_not_be_written_is_written_later(
        start, clock, monkeypatch):
    leader, api = start(), start()
    clock.now = orders.SCHEDULE_S + 1
    leader.orders.lead()

    def away(work):
        raise exception.DatabaseUnavailable(why='a test')

    with monkeypatch.context() as patch:
        patch.setattr(leader.orders._database, 'as_leader', away)
        with pytest.raises(exception.DatabaseUnavailable):
            leader.orders.turn()
    assert api.orders.schedule() is None
    leader.orders.turn()
    assert api.orders.schedule() == msgspec.to_builtins(schedule(3))


def test_a_check_of_a_process_that_leads_begins_at_once(start):
    leader = start()
    leader.orders.lead()
    made = leader.orders.check(['a', 'b'], trigger='launch')
    (check,) = leader.checks.taken
    assert (check.now.check_id, check.now.trigger, check.now.hosts) == (
        made['check_id'], 'launch', ['a', 'b'])
    with pytest.raises(exception.NotFound):
        leader.orders.find_probe(made['check_id'])
    with pytest.raises(exception.NotFound):
        leader.orders.find_check('another')


def test_an_order_that_cannot_be_taken_up_fails(start):
    leader = start()
    leader.orders.lead()

    def refuse(_check):
        raise exception.Invalid(field='hosts', value='a', limit='others')

    leader.checks.take = refuse
    made = leader.orders.check(['a', 'b'])
    leader.orders.turn()
    found = leader.orders.find_check(made['check_id'])
    assert found['state'] == 'failed' and 'others' in found['why']


def test_who_leads_no_more_begins_nothing_anew(start):
    leader = start()
    leader.deposed = True
    with pytest.raises(exception.Deposed):
        leader.orders.lead()
    assert not leader.orders._leads


def test_constants():
    assert (orders.TURN_S, orders.SCHEDULE_S, orders.CHECK_EXPIRES_S,
            orders.PROBE_EXPIRES_S, orders.SETTLE_S) == (
        0.5, 5.0, 1800.0, 120.0, 1.0)
