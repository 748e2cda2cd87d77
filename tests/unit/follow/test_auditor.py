# SPDX-License-Identifier: Apache-2.0

"""The comparison with Nova: confirmed, never older than a notification."""

import collections
import logging

import prometheus_client
import pytest

from tests import patience
from virtco import exception
from virtco import metrics
from virtco.db import groups
from virtco.db import migration
from virtco.db import models
from virtco.db import session as db_session
from virtco.follow import auditor
from virtco.follow import notifications
from virtco.follow import nova


class FakeNova:
    """Lists ``pages[project]``, shows ``servers``; counts what it is asked.
    """

    def __init__(self):
        self.pages = {}
        self.known = {}
        self.asked = collections.Counter()
        self.on_list = lambda: None

    def servers(self, project_id):
        self.asked[project_id] += 1
        self.on_list()
        yield from self.pages.get(project_id, ())

    def server(self, uuid):
        self.asked[uuid] += 1
        return self.known.get(uuid)


class FakeNeutron:
    """Answers ``found`` for every project; does not answer while None."""

    found = None

    def __init__(self):
        self.asked = []

    def policies_bps(self):
        self.asked.append('policies')
        if self.found is None:
            raise exception.NovaUnavailable(why='no QoS')
        return {'policy': (5e6, None)}

    def limits_bps(self, policies_bps, project_id, only=()):
        assert policies_bps
        self.asked.append((project_id, only))
        return {vm: limits for vm, limits in self.found.items()
                if not only or vm in only}


@pytest.fixture
def neutron():
    return FakeNeutron()


@pytest.fixture
def database(tmp_path):
    found = db_session.Database(f'sqlite:///{tmp_path}/db')
    migration.upgrade(found)
    yield found
    found.dispose()


@pytest.fixture
def bench(database, neutron):
    nova, applied = FakeNova(), []
    counts = metrics.Metrics()

    def apply(change):
        applied.append(change)
        return True

    return nova, applied, auditor.Auditor(database, nova, neutron, apply,
                                          counts, 0.01), counts


def add_group(database, project_id, hosts):
    """VMs <project>-0, -1, …; a row without a VM at the end."""
    with database.writer() as session:
        session.add(models.Group(id=project_id, project_id=project_id,
                                 name='g', n_vms=len(hosts) + 1,
                                 created_at=1.0))
        session.flush()
        for row, host in enumerate([*hosts, None]):
            session.add(models.Member(
                group_id=project_id, row_index=row, host=host,
                instance_uuid=host and f'{project_id}-{row}',
                state='running' if host else 'vacant'))


def server(uuid, host):
    return nova.Server(uuid, 'ACTIVE', host)


def test_only_projects_of_groups_are_listed_and_only_what_differs(
        bench, database):
    nova, applied, audit, counts = bench
    add_group(database, 'p', ['h1', 'h2', 'h3'])
    add_group(database, 'q', ['h1'])
    nova.pages = {'p': [server('stranger', 'h9'), server('p-0', 'h1'),
                        server('p-1', 'h7')],
                  'q': [server('q-0', 'h1')]}
    assert audit.compare() == 2
    assert applied == [notifications.Built('p-1', 'h7'),
                       notifications.Gone('p-2')]
    # Only the one that the list lacks was asked for.
    assert nova.asked == {'p': 1, 'q': 1, 'p-2': 1}
    text = prometheus_client.generate_latest(counts.registry).decode()
    assert 'virtco_nova_repairs_total{change="Gone"} 1.0' in text


def test_a_project_for_which_nova_fails_keeps_no_other_waiting(
        bench, database):
    nova, applied, audit, _counts = bench
    fails = {'p', 'q'}
    for project_id in ('p', 'q', 'r'):
        add_group(database, project_id, ['h1'])
        nova.pages[project_id] = [server(f'{project_id}-0', 'h7')]
    listed = nova.servers

    def servers(project_id):
        if project_id in fails:
            raise exception.NovaUnavailable(why='it has one of no image')
        return listed(project_id)

    nova.servers = servers
    for _ in fails:
        with pytest.raises(exception.NovaUnavailable):
            audit.compare()
    with pytest.raises(exception.NovaUnavailable):
        audit.compare()
    assert applied == [notifications.Built('r-0', 'h7')]
    fails.clear()
    audit.compare()
    assert [change.instance_uuid for change in applied[1:]] == [
        'r-0', 'p-0', 'q-0']
    audit.compare()
    assert [change.instance_uuid for change in applied[4:]] == [
        'p-0', 'q-0', 'r-0']


def test_a_notification_during_the_repairs_is_newer_than_the_list(
        bench, database):
    nova, applied, audit, _counts = bench
    add_group(database, 'p', ['h1', 'h1', 'h1'])
    nova.pages = {'p': [server(f'p-{row}', 'h2') for row in range(3)]}
    apply = audit._apply

    def moved_by_a_notification(change):
        with database.writer() as session:
            session.get(models.Member, ('p', 1)).host = 'h3'
        return apply(change)

    audit._apply = moved_by_a_notification
    assert audit.compare() == 2
    assert applied == [notifications.Built('p-0', 'h2'),
                       notifications.Built('p-2', 'h2')]


def test_a_neutron_that_is_away_is_asked_once_a_look(bench, database,
                                                     neutron):
    _nova, _applied, audit, _counts = bench
    for project_id in 'pqr':
        add_group(database, project_id, ['h1'])
    for _ in range(2):
        neutron.asked.clear()
        audit.compare()
        assert neutron.asked == ['policies']
    neutron.found = {}
    neutron.asked.clear()
    audit.compare()
    assert neutron.asked == ['policies', *((one, ()) for one in 'pqr')]


def test_limits_of_ports_are_told_once(bench, database, neutron):
    nova, applied, audit, _counts = bench
    add_group(database, 'p', ['h1', 'h2'])
    nova.pages = {'p': [server('p-0', 'h1'), server('p-1', 'h2')]}
    neutron.found = {'p-1': (5e6, None), 'stranger': (1e6, 1e6)}
    assert audit.compare() == 1
    assert applied == [notifications.Built('p-1', 'h2',
                                           limits_bps=(5e6, None))]
    with database.writer() as session:
        session.get(models.Member, ('p', 1)).egress_limit_bps = 5e6
    assert audit.compare() == 0
    # Without Neutron they stay; without a rule they end.
    neutron.found = None
    assert audit.compare() == 0
    neutron.found = {}
    assert audit.compare() == 1
    assert applied[1:] == [notifications.Built('p-1', 'h2',
                                               limits_bps=(None, None))]


def test_limits_of_new_vms_are_told_before_the_next_comparison(
        bench, database, neutron):
    nova, applied, audit, _counts = bench
    add_group(database, 'p', ['h1', 'h2'])
    add_group(database, 'q', ['h1'])
    nova.pages = {'p': [server('p-0', 'h1'), server('p-1', 'h2')],
                  'q': [server('q-0', 'h1')]}
    audit.compare()
    asked = nova.asked.copy()
    neutron.asked.clear()
    neutron.found = {'p-0': (5e6, None)}
    # Nothing was built: nobody is asked, whatever changed in Neutron.
    assert audit.compare_limits() == 0
    assert not neutron.asked
    with database.writer() as session:
        groups.advance(session.connection())
        for row, host in ((0, 'h3'), (1, None)):
            session.get(models.Member, ('p', row)).host = host
        session.get(models.Member, ('q', 0)).state = 'reserved'
    # Those that run where they did not are asked for, Nova is not.
    assert audit.compare_limits() == 1
    assert neutron.asked == ['policies', ('p', ['p-0', 'p-1'])]
    assert applied == [notifications.Built('p-0', 'h3',
                                           limits_bps=(5e6, None))]
    # Once, whatever Neutron said.
    neutron.found = None
    with database.writer() as session:
        groups.advance(session.connection())
        session.get(models.Member, ('q', 0)).state = 'running'
    assert audit.compare_limits() == audit.compare_limits() == 0
    assert neutron.asked[2:] == ['policies']
    assert nova.asked == asked


def test_a_rule_that_changes_is_followed_between_two_comparisons(
        bench, database, neutron):
    """Nothing was built: each so many looks all running VMs are asked for."""
    nova, applied, audit, _counts = bench
    add_group(database, 'p', ['h1', 'h2'])
    with database.writer() as session:
        session.get(models.Member, ('p', 1)).state = 'reserved'
    nova.pages = {'p': [server('p-0', 'h1'), server('p-1', 'h2')]}
    neutron.found = {}
    audit.compare()
    neutron.asked.clear()
    applied.clear()
    neutron.found = {'p-0': (5e6, None), 'p-1': (5e6, None)}
    looks = range(2 * auditor.LIMITS_LOOKS)
    assert [audit.compare_limits() for _ in looks] == [
        int((look + 1) % auditor.LIMITS_LOOKS == 0) for look in looks]
    assert auditor.LIMITS_LOOKS * auditor.NEWCOMERS_S == 30
    # A VM that only has its host reserved has no port yet.
    assert applied == 2 * [notifications.Built('p-0', 'h1',
                                               limits_bps=(5e6, None))]
    assert neutron.asked == 2 * ['policies', ('p', ['p-0'])]
    assert set(nova.asked.values()) == {1}


def test_limits_of_a_vm_that_moved_meanwhile_are_left_to_the_next_look(
        bench, database, neutron):
    _nova, applied, audit, _counts = bench
    add_group(database, 'p', ['h1'])
    neutron.found = {'p-0': (5e6, None)}
    ask = neutron.limits_bps

    def migrate(*args):
        with database.writer() as session:
            groups.advance(session.connection())
            session.get(models.Member, ('p', 0)).host = 'h2'
        return ask(*args)

    neutron.limits_bps = migrate
    assert audit.compare_limits() == 0
    neutron.limits_bps = ask
    assert audit.compare_limits() == 1
    assert applied == [notifications.Built('p-0', 'h2',
                                           limits_bps=(5e6, None))]


class Turns:
    """Ends a thread's loop after so many pauses, and keeps these."""

    def __init__(self, n):
        self.n = n
        self.pauses_s = []

    def is_set(self):
        return len(self.pauses_s) >= self.n

    def wait(self, pause_s):
        self.pauses_s.append(pause_s)


@pytest.mark.parametrize('fails_at, pauses_s', [
    (None, [5.0, 5.0, 2.0, 5.0]),
    # A failure is left to the next whole comparison.
    (1, [12.0, 5.0, 5.0, 2.0]),
    (2, [5.0, 7.0, 5.0, 5.0])])
def test_it_looks_for_new_vms_between_two_comparisons(
        database, neutron, fails_at, pauses_s):
    looks, counts = [], metrics.Metrics()
    audit = auditor.Auditor(database, FakeNova(), neutron, lambda _: True,
                            counts, 12.0)

    def look(kind):
        looks.append(kind)
        if len(looks) == fails_at:
            raise exception.NovaUnavailable(why='HTTP 503')
        return 0

    audit.compare = lambda: look('whole')
    audit.compare_limits = lambda: look('new')
    audit._is_ending = Turns(4)
    audit.run()
    assert audit._is_ending.pauses_s == pauses_s
    began = {0} | {i + 1 for i in range(3) if sum(pauses_s[:i + 1]) == 12.0}
    assert looks == ['whole' if i in began else 'new' for i in range(4)]
    # Of looks for new VMs those that failed are counted.
    assert count(counts, 'failed') == (fails_at is not None)
    assert count(counts, 'done') == len(began - {(fails_at or 9) - 1})


def test_a_server_that_the_pages_missed_is_not_gone(bench, database):
    nova, applied, audit, _counts = bench
    add_group(database, 'p', ['h1'])
    nova.known = {'p-0': server('p-0', 'h1')}
    assert audit.compare() == 0
    assert applied == []


def test_a_notification_meanwhile_wins(bench, database):
    """It migrates while Nova lists it where it was."""
    nova, applied, audit, _counts = bench
    add_group(database, 'p', ['h1'])

    def migrate():
        with database.writer() as session:
            session.get(models.Member, ('p', 0)).host = 'h2'

    nova.on_list = migrate
    nova.pages = {'p': [server('p-0', 'h3')]}
    assert audit.compare() == 0
    assert applied == []
    # Where it stays so, the next comparison says the same again.
    nova.on_list = lambda: None
    assert audit.compare() == 1
    assert applied == [notifications.Built('p-0', 'h3')]


def test_nothing_is_asked_for_without_groups(bench):
    nova, _applied, audit, _counts = bench
    assert audit.compare() == 0
    assert not nova.asked


def count(counts, outcome):
    return counts.registry.get_sample_value(
        'virtco_nova_comparisons_total', {'outcome': outcome}) or 0


def wait_for(check):
    patience.wait_for(check, poll_s=0.005)


def test_it_compares_once_in_an_interval(database):
    counts = metrics.Metrics()
    audit = auditor.Auditor(database, FakeNova(), FakeNeutron(),
                            lambda change: True, counts, 1000.0)
    audit.start()
    try:
        wait_for(lambda: count(counts, 'done'))
    finally:
        audit.stop()
    assert count(counts, 'done') == 1


def test_one_warning_per_outage_and_what_was_compared_counts(
        bench, database, caplog):
    nova, applied, audit, counts = bench
    add_group(database, 'p', ['h1'])
    add_group(database, 'q', ['h1'])
    nova.pages = {'p': [server('p-0', 'h2')], 'q': [server('q-0', 'h1')]}

    def fail():
        if nova.asked['q']:
            raise exception.NovaUnavailable(why='HTTP 503')

    nova.on_list = fail
    caplog.set_level(logging.INFO)
    audit.start()
    assert audit.daemon
    try:
        wait_for(lambda: count(counts, 'failed') >= 3)
        assert applied == [notifications.Built('p-0', 'h2')]
        nova.on_list = lambda: None
        wait_for(lambda: count(counts, 'done') >= 2)
    finally:
        audit.stop()
    assert not audit.is_alive()
    assert [r.getMessage() for r in caplog.records
            if r.levelno == logging.WARNING] == [
        'Nothing is compared with Nova: Nova did not answer: HTTP 503.']
    assert caplog.text.count('Nova answers again.') == 1
