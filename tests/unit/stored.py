# SPDX-License-Identifier: Apache-2.0

"""A real database in memory, and rows of it, for tests of thin shells."""

import sqlite3
import types

from oslo_config import cfg
import sqlalchemy as sa

from virtco.conf import opts
from virtco.db import models
from virtco.db import session as db_session
from virtco.measure import pipes
from virtco.model import states


def database():
    """SQLite in memory, as the models say; one thread uses it at a time."""
    found = db_session.Database('sqlite://')
    models.Base.metadata.create_all(found.engine)
    with found.writer() as session:
        session.add(models.Cluster(id=1, generation=1, secret='s'))
    return found


def conf(**groups):
    """Return the configuration's defaults, but for some values by group."""
    found = cfg.ConfigOpts()
    opts.register_opts(found)
    found([])
    for group, values in groups.items():
        for name, value in values.items():
            found.set_override(name, value, group)
    return found


def state(database, live=None, **values):
    """What objects know of the state; values are attributes of it."""
    return types.SimpleNamespace(**{
        'database': database, 'live': live, 'tell_leader': None,
        'has_database': lambda: True,
        'rates': types.SimpleNamespace(
            choose=lambda *_hosts: pipes.Chosen({}, '')),
        'invalidate': lambda *_groups: None,
        'refresh': lambda: None} | values)


def add(database, *rows):
    with database.writer() as session:
        for row in rows:
            session.add(row)
            session.flush()


def many_groups(database, number):
    """Add groups to a SQLite that takes no more variables than it does
    unless a distribution raised the limit; return their ids.
    """
    sa.event.listen(database.engine, 'connect', lambda found, _record: (
        found.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32_766)))
    database.dispose()
    ids = [f'g{i}' for i in range(number)]
    with database.writer() as session:
        session.execute(sa.insert(models.Group), [
            {'id': id_, 'project_id': 'p', 'name': id_, 'live_key': '',
             'n_vms': 2, 'created_at': 1.0, 'method': '', 'why': ''}
            for id_ in ids])
    return ids


def count(database, model):
    with database.reader() as session:
        return session.query(model).count()


def group(name='a', project_id='p', **values):
    return models.Group(**{
        'id': f'{project_id}-{name}', 'project_id': project_id, 'name': name,
        'live_key': '', 'n_vms': 3, 'created_at': 1.0, 'method': '',
        'why': ''} | values)


def member(group_id, index, host=None, **values):
    return models.Member(**{
        'group_id': group_id, 'row_index': index, 'host': host,
        'instance_uuid': f'{group_id}-{index}',
        'display_name': f'vm{index}', 'reservation_id': '',
        'state': states.MemberState.RUNNING, 'vcpus': 1.0,
        'memory_mb': 2.0, 'disk_gb': 3.0} | values)


def coflow(group_id, **values):
    """Rows and columns of the matrix differ, and so do all sizes."""
    return models.Coflow(**{
        'id': f'c-{group_id}', 'group_id': group_id, 'project_id': 'p',
        'name': 'c', 'position': 0, 'state': states.CoflowState.ACTIVE,
        'n_vms': 3, 'n_flows': 3, 'size_bytes': 175.0,
        'tm': '[[0,1,100],[0,2,50],[1,2,25]]', 'iterations': 1,
        'iteration': 1, 'progress': '[]', 'sent_bytes': 0.0,
        'priority_class': 0, 'weight': 1.0, 'why': '', 'created_at': 1.0
    } | values)
