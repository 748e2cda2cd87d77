# SPDX-License-Identifier: Apache-2.0

"""Time of each list and show of a tenant, among rows of other tenants.

A question must not read what others have: the time stays the same with
500,000 foreign groups, VMs, coflows, events, placements and profiles::

    python -m benchmarks.queries --rows 500000 --database sqlite
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import json
import pathlib
import statistics
import sys
import tempfile
import time
import types
from typing import Any

from oslo_config import cfg
import sqlalchemy as sa
from sqlalchemy import orm

from tests import databases as real_databases
from virtco.cmd import controller
from virtco.db import bookings
from virtco.db import groups
from virtco.db import models
from virtco.db import operators
from virtco.db import orders
from virtco.db import profile_rows
from virtco.db import records
from virtco.db import session as db_session
from virtco.model import states
from virtco.objects import coflows
from virtco.state import live_state

#: Limit of a list or a show.
MOST_MS = 50.0
TENANT, GROUP, GROUP_ID, VM = 'tenant', 'group', 'own', 'own vm'
#: Each keeps so many events, see :data:`virtco.db.records.KEPT_EVENTS`.
ROWS_PER_PROJECT = 1000
CHUNK = 20_000

Ask = Callable[[db_session.Database], object]


def _rows(project_id: str, group_id: str, name: str, vm: str, is_live: bool,
          at_s: float) -> dict[type[models.Base], dict[str, Any]]:
    """A row of each table that tenants fill."""
    state = (states.CoflowState.ACTIVE if is_live
             else states.CoflowState.RETIRED)
    return {
        models.Group: {
            'id': group_id, 'project_id': project_id, 'name': name,
            'live_key': '' if is_live else group_id, 'n_vms': 1,
            'created_at': at_s, 'retired_at': None if is_live else at_s,
            'app': 'app'},
        models.Member: {
            'group_id': group_id, 'row_index': 0,
            'instance_uuid': vm if is_live else None,
            'host': 'host' if is_live else None,
            'state': states.MemberState.RUNNING if is_live
            else states.MemberState.VACANT},
        models.Coflow: {
            'id': group_id, 'group_id': group_id, 'project_id': project_id,
            'name': name, 'state': state, 'n_vms': 1, 'n_flows': 1,
            'size_bytes': 1e9, 'tm': '[[0]]', 'created_at': at_s},
        models.Event: {
            'project_id': project_id, 'group_name': name,
            'group_id': group_id, 'instance_uuid': vm, 'kind': 'neutral',
            'detail': 'no room', 'created_at': at_s},
        models.Placement: {
            'instance_uuid': vm, 'project_id': project_id,
            'group_id': group_id, 'fingerprint': '', 'answer': '{}',
            'updated_at': at_s},
        models.ProfileHour: {
            'group_id': group_id, 'hour': int(at_s), 'app': 'app',
            'project_id': project_id, 'group_name': name, 'n_vms': 1,
            'pairs': '[]'}}


def _foreign(n_rows: int) -> Iterator[
        dict[type[models.Base], dict[str, Any]]]:
    for i in range(n_rows):
        # Of the name that the tenant uses, in each project.
        name = GROUP if i % ROWS_PER_PROJECT == 0 else f'group{i}'
        yield _rows(f'project{i // ROWS_PER_PROJECT}', f'g{i}', name,
                    f'vm{i}', is_live=False, at_s=float(i))


def fill(database: db_session.Database, n_rows: int) -> None:
    """Write one group of the tenant and ``n_rows`` rows of others."""
    own = _rows(TENANT, GROUP_ID, GROUP, VM, is_live=True, at_s=n_rows / 2)
    for kind, row in own.items():
        with database.statements() as connection:
            connection.execute(sa.insert(kind), [row])
    chunk: dict[type[models.Base], list[dict[str, Any]]] = {
        kind: [] for kind in own}
    for number, rows in enumerate(_foreign(n_rows), 1):
        for kind, row in rows.items():
            chunk[kind].append(row)
        if number % CHUNK == 0 or number == n_rows:
            for kind, many in chunk.items():
                with database.statements() as connection:
                    connection.execute(sa.insert(kind), many)
                many.clear()
    if not database.is_sqlite:
        _count(database, own)


def _count(database: db_session.Database,
           kinds: Iterable[type[models.Base]]) -> None:
    """Let a server count the rows, by which it chooses its plans, as it does
    by itself after a while.
    """
    with database.statements() as connection:
        for kind in kinds:
            name = kind.__tablename__
            connection.exec_driver_sql(
                f'ANALYZE {name}' if connection.dialect.name == 'postgresql'
                else f'ANALYZE TABLE `{name}`')


def _of(question: Callable[..., object], *args: Any, **values: Any) -> Ask:
    """A question of a session."""
    def ask(database: db_session.Database) -> object:
        with database.reader() as session:
            return question(session, *args, **values)
    return ask


def _bookings(session: orm.Session) -> object:
    return bookings.ledger(session.connection(), 1e9,
                           {'host': (8.0, 8192.0, 80.0)})


def _coflows(database: db_session.Database) -> coflows.Coflows:
    state: Any = types.SimpleNamespace(database=database,
                                       live=live_state.LiveState())
    return coflows.Coflows(cfg.ConfigOpts(), state, time.time)


#: By the command or route that asks.
QUESTIONS: dict[str, Ask] = {
    'coflow list': lambda database:
        _coflows(database).find(coflows.NO_SCHEDULE, TENANT),
    'coflow show': lambda database:
        _coflows(database).show(GROUP_ID, coflows.NO_SCHEDULE),
    'coflow register': _of(records.count_registered, TENANT),
    'event list': _of(records.list_events, project_id=TENANT),
    'profile list': _of(profile_rows.list_groups, TENANT),
    'profile show': _of(profile_rows.find, TENANT, GROUP),
    'profile hours': _of(profile_rows.hours, GROUP_ID),
    'app list': _of(profile_rows.list_apps, TENANT),
    'app show': _of(profile_rows.launches, TENANT, 'app'),
    'group show': _of(groups.only_living, TENANT, GROUP),
    'group members': _of(groups.members, GROUP_ID),
    'group coflows': _of(groups.coflows, GROUP_ID),
    'placement show': _of(orm.Session.get, models.Placement, VM),
    'placement show, neutral': _of(records.newest_event, VM, 'neutral'),
    'project show': _of(records.project, TENANT),
    'launch: usage': _of(groups.usage, TENANT),
    'launch: group': _of(groups.find, TENANT, GROUP),
    'launch: member': _of(groups.member_of, VM),
    'launch: bookings': _of(_bookings),
    'launch: promised': _of(groups.promised, 0.0),
    'start: members': _of(groups.living_members),
    'start: VMs': _of(groups.living_vms),
    'start: coflows': _of(groups.living_coflows),
    'expiry': _of(groups.expired, 0.0),
    'metrics: VMs': _of(groups.running_by_plan),
    'metrics: coflows': _of(groups.coflows_by_state),
    'operator: coflow list': lambda database:
        _coflows(database).find(coflows.NO_SCHEDULE),
    'operator: coflow list --marker': lambda database:
        _coflows(database).find(coflows.NO_SCHEDULE, marker=GROUP_ID),
    'operator: coflow list without retired': lambda database:
        _coflows(database).find(coflows.NO_SCHEDULE, retired=False),
    'operator: coflow list --state active': lambda database:
        _coflows(database).find(coflows.NO_SCHEDULE, state='active'),
    'operator: event list': _of(records.list_events),
    'operator: profile list': _of(profile_rows.list_groups, None),
    'operator: profile show': _of(profile_rows.find, None, 'absent'),
    'operator: app list': _of(profile_rows.list_apps, None),
    'operator: group show': _of(groups.living, None, GROUP),
    'operator: hint warnings': _of(
        records.latest_events, ['hint_ignored', 'neutral'], 1e9),
    'operator: project list': _of(records.list_projects),
    'operator: host list': _of(records.list_hosts),
    'operator: drains': _of(operators.drains),
    'operator: change list': _of(operators.changes, 1000),
    'operator: check list': _of(orders.find, models.Order.kind == 'check')}


def measure(database: db_session.Database, n_times: int = 5
            ) -> dict[str, float]:
    """Median time of each question, in ms."""
    found: dict[str, float] = {}
    for name, ask in QUESTIONS.items():
        ask(database)
        times_s = []
        for _ in range(n_times):
            started_s = time.perf_counter()
            ask(database)
            times_s.append(time.perf_counter() - started_s)
        found[name] = statistics.median(times_s) * 1e3
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--database', choices=real_databases.KINDS,
                        default='sqlite')
    parser.add_argument('--rows', type=int, default=500_000,
                        help='foreign rows in each table that tenants fill')
    parser.add_argument('--json', action='store_true')
    parsed = parser.parse_args()
    databases = real_databases.Databases()
    with tempfile.TemporaryDirectory() as home:
        try:
            database = db_session.Database(databases.make_current(
                parsed.database, pathlib.Path(home)), 60)
            fill(database, parsed.rows)
            controller.spare_libraries()  # as the product does
            found = measure(database)
            database.dispose()
        finally:
            databases.stop()
    if parsed.json:
        print(json.dumps({'database': parsed.database, 'rows': parsed.rows,
                          'ms': found}))
    else:
        for name, took_ms in found.items():
            print(f'{took_ms:9.2f} ms {name}'
                  + (' TOO SLOW' if took_ms > MOST_MS else ''))
    return 1 if max(found.values()) > MOST_MS else 0


if __name__ == '__main__':
    sys.exit(main())
