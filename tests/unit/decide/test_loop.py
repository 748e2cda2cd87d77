# SPDX-License-Identifier: Apache-2.0

"""What the scheduler loop reads from the database."""

import dataclasses
import math
import types

import msgspec
import pytest

from virtco import app
from virtco import exception
from virtco.cmd import controller as controller_cmd
from virtco.db import groups as db_groups
from virtco.db import migration
from virtco.db import models
from virtco.decide import loop
from virtco.decide import policy_documents
from virtco.model import states
from virtco.state import schedule_input
from virtco.table import coflow_table
from virtco.wire import reports

REPORT = msgspec.convert({
    'epoch': 'e', 'applied_generation': 0,
    'link': {'egress_bps': 1e8, 'ingress_bps': 1e8}, 'ports': [],
    'coflows': [], 'uplink_sent_bytes': 0}, reports.Report)


@pytest.fixture
def controller(tmp_path):
    config = tmp_path / 'virtco.conf'
    config.write_text(f'[controller]\nstate_dir = {tmp_path}\n')
    found = app.App(controller_cmd.make_conf(
        ['--config-file', str(config)]))
    migration.upgrade(found.database)
    with found.database.writer() as session:
        for name in ('a', 'b'):
            session.add(models.Group(
                id=name, project_id='p', name=name, live_key='', n_vms=1,
                created_at=1.0, method='', why=''))
            session.flush()
            session.add(models.Member(
                group_id=name, row_index=0, display_name='',
                instance_uuid=f'vm-{name}', reservation_id='', vcpus=1.0,
                memory_mb=1.0, disk_gb=1.0, host='h0', expires_at=50.0,
                state=states.MemberState.RESERVED))
    yield found
    found.database.dispose()


@pytest.fixture
def reads(controller, monkeypatch):
    """Which groups' members were read, read by read."""
    found = []
    read = db_groups.living_members

    def living_members(session, only=None):
        found.append(None if only is None else set(only))
        return read(session, only)

    monkeypatch.setattr(db_groups, 'living_members', living_members)
    return found


def hosts(controller):
    return {name: rows[0].host
            for name, rows in controller.state.live._groups._members.items()}


def test_an_event_reads_its_group_only(controller, reads):
    controller.decide.loop.run_once()
    assert reads == [None]
    assert controller.follow.notified('instance.create.end', {
        'nova_object.data': {'uuid': 'vm-a', 'host': 'h7'}})
    controller.decide.loop.run_once()
    assert reads == [None, {'a'}]
    assert hosts(controller) == {'a': 'h7', 'b': 'h0'}
    controller.decide.loop.run_once()
    assert len(reads) == 2
    controller.follow.release('vm-b')
    controller.decide.loop.run_once()
    assert reads[2:] == [{'b'}]
    assert hosts(controller) == {'a': 'h7'}


def test_reservations_that_expire_read_their_groups(controller, reads):
    controller.decide.loop.run_once()
    controller.follow.reap()
    controller.decide.loop.run_once()
    assert reads == [None, {'a', 'b'}]
    assert hosts(controller) == {'a': None, 'b': None}


def test_what_could_not_be_read_is_read_later(controller, reads, monkeypatch,
                                              caplog):
    controller.decide.loop.leads = lambda: False
    controller.decide.loop.run_once()
    controller.state.invalidate(['a'])
    with monkeypatch.context() as patch:
        patch.setattr(db_groups, 'living_coflows', _away)
        for _ in range(2):
            controller.decide.loop.run_once()
    controller.decide.loop.run_once()
    assert reads == [None, {'a'}, {'a'}, {'a'}]
    # That is expected where the database is away: no stack of calls.
    assert [one.getMessage() for one in caplog.records
            if one.levelname in ('WARNING', 'ERROR')] == [
        'Schedules are shown by what was read before: The database did not '
        'answer: a test.']


def test_what_could_not_be_published_is_published_later(controller,
                                                        monkeypatch):
    found = controller.decide.loop
    found.run_once()
    controller.state.report('h0', REPORT)
    with monkeypatch.context() as patch:
        patch.setattr(controller.decide.publisher, 'publish',
                      lambda policies: policies['made-up'])
        with pytest.raises(KeyError):
            found.run_once()
    found.run_once()
    assert 'h0' in controller.decide.publisher.generations()


def test_who_leads_goes_on_without_the_database(controller, reads,
                                                monkeypatch, caplog):
    found = controller.decide.loop
    found.run_once()
    controller.state.report('h0', REPORT)
    for _ in range(2):
        caplog.clear()
        controller.state.invalidate(['a'])
        with monkeypatch.context() as patch:
            patch.setattr(db_groups, 'living_coflows', _away)
            found.run_once()
            found.run_once()
        assert controller.decide.publisher.generations().keys() == {'h0'}
        # Once is enough for the log.
        said, = (one.getMessage() for one in caplog.records
                 if one.levelname == 'WARNING')
        assert said == ('Policies follow reports alone: The database did not '
                        'answer: a test.')
        found.run_once()
    assert reads == [None, *[{'a'}] * 6]
    # All else is no trouble of the database's.
    monkeypatch.setattr(controller.state, 'refresh', lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        found.run_once()


def test_who_leads_does_not_wait_for_each_failure(controller, reads, caplog):
    found = controller.decide.loop
    controller.state.has_database = lambda: False
    found.run_once()
    controller.state.report('h0', REPORT)
    found.run_once()
    assert reads == []
    assert controller.decide.publisher.generations().keys() == {'h0'}
    assert caplog.text.count('Policies follow reports alone') == 1
    found.leads = lambda: False
    found.run_once()
    assert reads == [None]


def _away(*_args):
    raise exception.DatabaseUnavailable(why='a test')


def test_nothing_is_published_before_all_that_was_written_down_is_read(
        controller, monkeypatch):
    controller.decide.loop.leads = lambda: False  # as start() says
    controller.state.report('h0', REPORT)
    # It is elected, and still reads.
    monkeypatch.setattr(controller, 'leads', lambda: True)
    controller.decide.loop.run_once()
    assert controller._policies.generations() == {}
    controller.decide.lead(controller.leads)
    controller.decide.loop.run_once()
    assert controller._policies.generations().keys() == {'h0'}


def test_who_is_forgotten_meanwhile_has_no_policy(controller, monkeypatch):
    found, compute = controller.decide.loop, policy_documents.compute
    found.run_once()
    for host in ('h0', 'h9'):
        controller.state.report(host, REPORT)

    def forgetting(*args):
        policies = compute(*args)
        controller.state.forget_hosts({'h9'})
        return policies

    monkeypatch.setattr(policy_documents, 'compute', forgetting)
    found.run_once()
    assert found.policies.of_host.keys() == {'h0', 'h9'}
    assert controller.decide.publisher.generations().keys() == {'h0'}


def test_who_is_forgotten_and_back_at_once_has_its_policy_again(controller):
    found, generations = controller.decide.loop, (
        controller.decide.publisher.generations)
    found.run_once()
    for host in ('h0', 'h9'):
        controller.state.report(host, REPORT)
    found.run_once()
    before = generations()
    controller.state.forget_hosts({'h9'})
    controller.state.report('h9', REPORT)
    found.run_once()
    assert generations() == before | {'h9': before['h9'] + 1}
    policies = found.policies
    found.run_once()
    assert found.policies.changed == policies.changed == ()
    assert generations()['h9'] == before['h9'] + 1


def test_the_next_policies_keep_the_minors_and_limits_of_these(
        controller, monkeypatch):
    found, live = controller.decide.loop, controller.state.live
    controller.state.report('h0', REPORT)
    minors = coflow_table.Minors({'a': 16})
    policies = dataclasses.replace(policy_documents.none(),
                                   minors={'h0': minors})
    kept = []
    monkeypatch.setattr(policy_documents, 'compute', lambda *_seen: policies)
    monkeypatch.setattr(policy_documents.Policies, 'limits',
                        lambda told: kept.append(told) or {})
    found.run_once()
    assert found.policies is policies and kept == [policies]
    assert live.snapshot(found.options(), 100.0).minors == {'h0': minors}


CHOSEN = {'order': 'sebf', 'ceil': 'link'}


def test_options_are_those_of_the_operator():
    conf = types.SimpleNamespace(
        theta_s=7.0, beta='0.2', quiet_s=0.4, policy_ttl_s=8.0,
        protect_receivers=True, limit_senders=False, default_share=0.05)
    assert loop.options(conf, CHOSEN, False) == schedule_input.Options(
        'sebf', None, True, 7.0, beta=0.2, quiet_s=0.4, policy_ttl_s=8.0,
        protect_receivers=True, limit_senders=False, default_share=0.05)
    conf.theta_s = 0.0
    other = loop.options(conf, {'order': 'mrtf', 'ceil': 'rate'}, False)
    assert (other.theta_s, other.work_conserving) == (math.inf, False)
    assert not other.is_fair
    assert loop.options(conf, CHOSEN, True).is_fair


def test_how_long_it_waits():
    assert loop.wait_s(5.0, math.inf, 100.0) == 5.0
    assert loop.wait_s(5.0, 102.0, 100.0) == 2.0
    assert loop.wait_s(5.0, 99.0, 100.0) == 0.0
    assert loop.unasked_after_s(0.5, 0.1) == pytest.approx(1.9)
    assert loop.unasked_after_s(2.0, 0.1) == 2.0


def test_what_changes_wakes_it(controller):
    found = controller.decide.loop
    found.run_once()
    for urgent in (False, True):
        controller.state.changed(urgent)
        assert found._urgent is urgent


def test_pairs_are_counted_where_there_are_no_classes(controller,
                                                      monkeypatch):
    found, told = controller.decide.loop, []
    monkeypatch.setattr(controller.state.live, 'count_pairs', told.append)
    given = found.options()
    for order in ('mrtf', 'fair'):
        found.options = lambda: dataclasses.replace(given, order=order)
        found.run_once()
    assert told == [False, True]


def test_a_leader_that_cannot_read_at_first_says_so(controller, monkeypatch,
                                                    caplog):
    monkeypatch.setattr(controller.state, 'refresh', _away)
    controller.decide.loop.run_once()
    assert [one.getMessage() for one in caplog.records
            if one.levelname == 'WARNING'] == [
        'Policies follow reports alone: The database did not answer: a test.']


def test_who_woke_it_has_been_heard(controller):
    """What is not urgent waits until its time."""
    found = controller.decide.loop
    assert found._urgent
    found.run_once()
    assert not found._urgent
    found.notify(False)
    assert not found._urgent
    found.notify(True)
    found.notify(False)
    assert found._urgent and not found.is_alive()
