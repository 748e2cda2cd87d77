# SPDX-License-Identifier: Apache-2.0

"""The comparison with Nova: confirmed, never older than a notification."""

import collections
import logging

import prometheus_client
import pytest

from tests import patience
from virtco import exception
from virtco import metrics
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

    def limits_bps(self, project_id):
        if self.found is None:
            raise exception.NovaUnavailable(why='no QoS')
        return self.found


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
