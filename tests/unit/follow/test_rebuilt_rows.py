# SPDX-License-Identifier: Apache-2.0

"""Rows that a rebuild makes of servers, and what it leaves alone."""

import pytest

from tests.unit import stored
from tests.unit.follow import test_rebuild as cloud
from virtco.db import groups as db_groups
from virtco.db import models
from virtco.follow import rebuild

body = cloud.body


class Bench:
    def __init__(self):
        self.conf, self.database = stored.conf(), stored.database()

    def rebuild(self, *bodies, **kwargs):
        return rebuild.rebuild(self.conf, self.database,
                               map(rebuild.read, bodies),
                               clock=lambda: 5.0, **kwargs)

    def rows(self, model):
        with self.database.reader() as session:
            return list(session.query(model))

    def vms(self):
        return {(row.row_index): row.instance_uuid
                for row in self.rows(models.Member)}


@pytest.fixture
def bench():
    return Bench()


def test_what_is_read_of_a_server():
    found = rebuild.read(body(3, metadata={'k': 'v'}, addresses={
        'n': [{'addr': '10.0.0.3'}]}))
    assert found.addresses == ('10.0.0.3',)
    assert (found.uuid, found.project_id, found.name, found.status,
            found.host, found.launch_index, found.reservation_id) == (
                'vm-3', 'p', 'v3', 'ACTIVE', 'h3', 3, 'r')
    # MB of swap are on the host's disk, too.
    assert found.demand == (1.0, 512.0, 2.0 + 1 + 1.0)
    assert found.metadata == {'k': 'v'}
    bare = rebuild.read(body(
        3, image='', metadata=None, scheduler_hints=None,
        **{'OS-EXT-SRV-ATTR:host': '', 'OS-EXT-SRV-ATTR:launch_index': None,
           'OS-EXT-SRV-ATTR:reservation_id': None}))
    # Of a volume the root disk is elsewhere.
    assert bare.demand == (1.0, 512.0, 2.0)
    assert (bare.host, bare.launch_index, bare.reservation_id, bare.hints,
            bare.metadata) == (None, 0, '', {}, {})


def test_rows_and_the_group_are_written(bench):
    outcome = bench.rebuild(body(1), body(
        0, tm=None, name='a', addresses={
            'n': [{'addr': '10.0.0.3'}, {'addr': '10.0.0.2'}]}))
    assert (outcome.n_servers, outcome.n_groups, outcome.n_members,
            outcome.skipped) == (2, 1, 2, [])
    (group,) = bench.rows(models.Group)
    assert (group.name, group.project_id, group.n_vms, group.created_at,
            group.why, group.live_key) == ('a', 'p', 3, 5.0,
                                           'rebuilt from Nova', '')
    first, second, third = sorted(bench.rows(models.Member),
                                  key=lambda row: row.row_index)
    assert (first.instance_uuid, first.host, first.state, first.placed_at,
            first.display_name, first.reservation_id, first.vcpus,
            first.memory_mb, first.disk_gb) == (
                'vm-0', 'h0', 'running', 5.0, 'v0', 'r', 1.0, 512.0, 4.0)
    assert first.addresses == '10.0.0.2 10.0.0.3'
    assert (second.instance_uuid, second.addresses) == ('vm-1', '')
    assert (third.instance_uuid, third.host, third.state) == (
        None, None, 'vacant')
    (coflow,) = bench.rows(models.Coflow)
    assert (coflow.group_id, coflow.size_bytes) == (group.id, 3e6)
    with bench.database.reader() as session:
        assert db_groups.generation(session) == 2


def test_a_dry_run_writes_nothing(bench):
    outcome = bench.rebuild(body(0), dry_run=True)
    assert (outcome.n_groups, outcome.n_members) == (1, 1)
    assert bench.rows(models.Group) == []


@pytest.mark.parametrize(('servers', 'expected'), [
    # As launched, then those that came later take the next free row.
    ([body(0), body(1, tm=None), body(1, tm=None, id='x',
                                      created='2026-01-02T00:00:00Z')],
     {0: 'vm-0', 1: 'vm-1', 2: 'x'}),
    ([body(5)], {0: None, 1: None, 2: 'vm-5'}),
    # Who asks for a row is asked first.
    ([body(0), body(1, tm=None, hints={'virtco:index': ['0']})],
     {0: 'vm-1', 1: 'vm-0', 2: None}),
    ([body(2), body(2, tm=None, id='x')], {0: 'x', 1: None, 2: 'vm-2'})])
def test_each_server_has_a_row(bench, servers, expected):
    bench.rebuild(*servers)
    assert bench.vms() == expected


def test_a_server_of_another_group_is_not_taken_twice(bench):
    stored.add(bench.database, stored.group('old'),
               stored.member('p-old', 0, 'h9', instance_uuid='vm-1'))
    outcome = bench.rebuild(body(0), body(1, tm=None), body(2, name='b'))
    assert (outcome.n_groups, outcome.n_members) == (1, 1)
    assert outcome.skipped == [
        ('p', 'a', 'a server of it is in another group')]
    outcome = bench.rebuild(body(2, name='b'))
    assert outcome.skipped == [('p', 'b', 'there is such a group')]
    assert outcome.n_groups == 0


@pytest.mark.parametrize(('status', 'host', 'is_member'), [
    ('ERROR', None, False), ('ERROR', 'h0', True), ('DELETED', 'h0', False),
    ('SOFT_DELETED', 'h0', False), ('SHUTOFF', 'h0', True)])
def test_whose_servers_are_over(bench, status, host, is_member):
    outcome = bench.rebuild(body(0, status=status,
                                 **{'OS-EXT-SRV-ATTR:host': host}))
    assert outcome.n_members == int(is_member)
    assert outcome.n_servers == 1 and outcome.skipped == []


def test_many_groups_are_written_in_parts(bench):
    n = rebuild.CHUNK + 5
    outcome = bench.rebuild(*(body(i, name=f'g{i}') for i in range(n)))
    assert (outcome.n_groups, outcome.n_members) == (n, n) == (205, 205)
    with bench.database.reader() as session:
        assert db_groups.generation(session) == 3


def test_long_names_are_cut(bench):
    bench.rebuild(body(0, name='a' * 3, **{
        'OS-EXT-SRV-ATTR:reservation_id': 'r' * 300}) | {'name': 'n' * 300})
    row = next(row for row in bench.rows(models.Member)
               if row.instance_uuid)
    assert (len(row.display_name), len(row.reservation_id)) == (255, 255)


def test_the_first_matrix_counts_and_projects_are_apart(bench):
    other = '{"pattern": "ring", "n": 2, "flow_size": "1MB"}'
    bench.rebuild(body(0), body(1, tm=other,
                                created='2025-01-01T00:00:00Z'),
                  body(7, tenant_id='q'))
    assert {(row.project_id, row.n_vms)
            for row in bench.rows(models.Group)} == {('p', 2), ('q', 3)}


def test_a_server_whose_hint_cannot_be_is_named(bench):
    outcome = bench.rebuild(body(0), body(1, tm=None, hints={
        'virtco:cofow': ['x']}))
    ((project_id, server, why),) = outcome.skipped
    assert (project_id, server) == ('p', 'vm-1') and 'virtco:cofow' in why
    assert (outcome.n_groups, outcome.n_members) == (1, 1)
