# SPDX-License-Identifier: Apache-2.0

"""Groups from what Nova says of servers."""

import pytest

from virtco.cmd import controller
from virtco.db import groups as db_groups
from virtco.db import migration
from virtco.db import session as db_session
from virtco.follow import rebuild

RING = '{"pattern": "ring", "n": 3, "flow_size": "1MB"}'


@pytest.fixture
def database(tmp_path):
    found = db_session.Database(f'sqlite:///{tmp_path}/db.sqlite', 0.3)
    migration.upgrade(found)
    yield found
    found.dispose()


def body(number, name='a', tm=RING, status='ACTIVE', hints=None, **changes):
    return {
        'id': f'vm-{number}', 'tenant_id': 'p', 'name': f'v{number}',
        'status': status, 'created': '2026-01-01T00:00:00Z', 'image': {'a': 1},
        'OS-EXT-SRV-ATTR:host': f'h{number}',
        'OS-EXT-SRV-ATTR:launch_index': number,
        'OS-EXT-SRV-ATTR:reservation_id': 'r',
        'flavor': {'vcpus': 1, 'ram': 512, 'disk': 2, 'ephemeral': 1,
                   'swap': 1023},
        'metadata': {}, 'scheduler_hints': ({
            'virtco:coflow': [name]} | ({'virtco:tm': [tm]} if tm else {})
            | (hints or {})) if name else {}} | changes


@pytest.fixture
def run(database):
    def call(*bodies, **kwargs):
        conf = controller.make_conf([])
        outcome = rebuild.rebuild(conf, database, map(rebuild.read, bodies),
                                  clock=lambda: 5.0, **kwargs)
        with database.reader() as session:
            members = db_groups.living_members(session)
        return outcome, {member.row_index: (member.instance_uuid, member.host,
                                            member.state)
                         for member in members}
    return call


def test_rows_are_those_of_a_launch(run):
    outcome, rows = run(
        body(1), body(0, tm=None), body(5, name=None),
        body(2, tm=None, hints={'virtco:index': ['2']}),
        body(3, tm=None))
    assert rows == {row: (f'vm-{row}', f'h{row}', 'running')
                    for row in range(3)}
    assert (outcome.n_groups, outcome.n_members, outcome.n_servers) == (
        1, 3, 5)
    ((project, server, why),) = outcome.skipped
    assert (project, server) == ('p', 'vm-3')
    assert 'all 3 rows of a have a VM' in why


def test_caps_are_those_of_the_flavors(run, database):
    capped = body(0)
    capped['flavor']['extra_specs'] = {'quota:vif_outbound_average': '1000'}
    run(capped, body(1, tm=None), body(2, tm=None))
    with database.reader() as session:
        assert {member.row_index: member.egress_cap_bps for member
                in db_groups.living_members(session)} == {
                    0: 8e6, 1: None, 2: None}


def test_metadata_counts_as_well_as_hints(run):
    hints = body(0)['scheduler_hints']
    _outcome, rows = run(body(0, name=None, metadata={
        key: value for key, (value,) in hints.items()}))
    assert rows[0] == ('vm-0', 'h0', 'running')


@pytest.mark.parametrize(('status', 'host', 'expected'), [
    ('SHELVED_OFFLOADED', None, ('vm-0', None, 'vacant')),
    ('BUILD', 'h0', ('vm-0', None, 'vacant')),
    ('ERROR', 'h0', ('vm-0', 'h0', 'running')),
    ('SHUTOFF', 'h0', ('vm-0', 'h0', 'running'))])
def test_what_a_state_means(run, status, host, expected):
    _outcome, rows = run(body(0, status=status,
                              **{'OS-EXT-SRV-ATTR:host': host}))
    assert rows[0] == expected


def test_what_makes_no_group(run):
    outcome, rows = run(
        body(0, name='ref', tm=None, hints={'virtco:tm_ref': ['x']}),
        body(1, name='bad', tm='[[0'), body(2, status='DELETED'),
        body(3, status='ERROR', **{'OS-EXT-SRV-ATTR:host': None}))
    assert rows == {}
    assert {(what, 'registered ones are lost' in why)
            for _project, what, why in outcome.skipped} == {
        ('ref', True), ('bad', False)}


def test_what_the_database_has_stays(run):
    assert run(body(0), dry_run=True)[0].n_groups == 1
    assert run(body(0))[1] == run()[1]
    outcome, rows = run(body(0), body(1, name='b'))
    assert (outcome.n_groups, len(rows)) == (1, 3)
    assert [what for _project, what, _why in outcome.skipped] == ['a']
