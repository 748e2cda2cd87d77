# SPDX-License-Identifier: Apache-2.0

"""A database of the initial schema with coflows that send, and its edges.

``tests/fixtures/initial.sql`` has the rows: four VMs on two hosts that have
half of their bytes to send, a group with one VM of four, and one that ended.
"""

import contextlib
import pathlib
import sqlite3
import sys
import time

import pytest
import sqlalchemy as sa

from tests import databases as real_databases
from tests import forks
from tests.functional.controller import harness
from virtco.db import session as db_session

ROWS = pathlib.Path(__file__).parents[1] / 'fixtures' / 'initial.sql'
WRITTEN_AT_S = 1795358031.2
TIMES = {'created_at', 'retired_at', 'expires_at', 'updated_at', 'arrival',
         'ended_at', 'first_seen', 'last_report', 'placed_at', 'event_at'}
#: Of the policy that h0 had.
GENERATION, MINOR = 2, 17
TENANT = 7


def _restore(connection, home):
    """The rows in a database of any kind, as if written just now."""
    source = db_session.Database(f'sqlite:///{home}/rows.sqlite')
    target = db_session.Database(connection, 5)
    for database in source, target:
        real_databases.make_initial(database)
    with contextlib.closing(sqlite3.connect(
            source.engine.url.database)) as rows:
        rows.executescript('DELETE FROM cluster; DELETE FROM leader;'
                           + ROWS.read_text())
    later_s = time.time() - WRITTEN_AT_S
    metadata = sa.MetaData()
    metadata.reflect(source.engine)
    with source.engine.begin() as reading, target.engine.begin() as writing:
        for table in metadata.sorted_tables:
            if table.name != 'alembic_version':
                writing.execute(table.delete())
                for row in reading.execute(table.select()).mappings().all():
                    writing.execute(table.insert(), {
                        name: value + later_s if name in TIMES and value
                        else value for name, value in row.items()})
    source.dispose()
    target.dispose()


@pytest.mark.parametrize('kind', real_databases.of(
    'sqlite', real_databases.KINDS, still='the upgrade on SQLite; each '
    "server's migrations are in tests/functional/services"))
def test_coflows_go_on(kind, databases, tmp_path):
    connection = databases.make(kind, tmp_path)
    _restore(connection, tmp_path)
    controller = harness.ControllerProcess(
        tmp_path, {'database': {'connection': connection}})
    controller.config.write_text(f'[database]\nconnection = {connection}\n')
    forks.run([sys.executable, '-m', 'virtco.cmd.manage', '--config-file',
               controller.config, 'db', 'sync'], check=True)
    try:
        _go_on(controller.start())
    finally:
        controller.stop(9)


def _go_on(controller):
    tenant = harness.Tenant(controller)
    tenant.number, tenant.project = TENANT, f'project-{TENANT}'
    before = tenant.coflow()
    assert (before['state'], before['sent_bytes']) == ('active', 5e8)
    assert tenant.coflow('ended')['state'] == 'retired'
    # Edges go on with their counters, and with the minors that they have.
    edges = [harness.Edge(tenant, host, vms)
             for host, vms in (('h0', (0, 2)), ('h1', (1, 3)))]
    for edge in edges:
        edge.report()
    policy = harness.wait_for(edges[0].policy, 'a policy')
    assert policy['generation'] > GENERATION
    (one,) = policy['classes']
    assert one['coflow_id'] == before['id']
    assert [d['minor'] for d in one['destinations']] == [MINOR]
    # The answer to a question that was asked before is still there.
    assert tenant.stored(20)['host'] == 'h2'
    # A group that was being launched goes on, where it was planned.
    hosts = [tenant.place(20 + i, 'waits', launch_index=i,
                          num_instances=4)['host'] for i in range(1, 4)]
    assert hosts == ['h3', 'h2', 'h3']
    for number, host in enumerate(['h2', *hosts], 20):
        tenant.notify('instance.create.end', number, host=host)
    # What is left of the first group is sent, and then it is over.
    for wire_bytes in (1e8, 1e8, 3e8):
        assert tenant.coflow()['state'] == 'active'
        for edge, dst in zip(edges, ('h1', 'h0')):
            edge.count(before['id'], wire_bytes, dst)
            edge.report()

    def is_done():
        for edge in edges:
            edge.report()
        return tenant.coflow()['state'] == 'done'
    harness.wait_for(is_done, 'the end of the coflow')
    assert tenant.coflow()['sent_bytes'] == 1e9
    for number in (0, 1, 2, 3):
        tenant.notify('instance.delete.end', number)
    assert tenant.coflow()['state'] in ('done', 'retired')
    assert 'Traceback' not in controller.log_text()
