# SPDX-License-Identifier: Apache-2.0

"""``virtco-manage``: the database and the leader's epoch, by hand."""

import argparse
import math
import sys
import time

from oslo_config import cfg

from virtco import configuration
from virtco import exception
from virtco.cmd import controller as controller_cmd
from virtco.db import bounds
from virtco.db import leader
from virtco.db import migration
from virtco.db import records
from virtco.db import session as db_session
from virtco.follow import nova
from virtco.follow import rebuild

#: Lines about skipped servers, at most.
SHOWN = 20


def _sync(_conf: cfg.ConfigOpts, database: db_session.Database) -> int:
    migration.upgrade(database)
    print(migration.current(database))
    return 0


def _version(_conf: cfg.ConfigOpts, database: db_session.Database) -> int:
    print(f'database {migration.current(database) or "empty"}, '
          f'code {migration.head()}')
    return 0


def _purge(conf: cfg.ConfigOpts, database: db_session.Database) -> int:
    before_s = time.time() - conf.command.days * 86400
    for table, count in database.retried(
            lambda session: records.purge(session, before_s)).items():
        print(f'{table}: {count} deleted')
    return 0


def _days(text: str) -> float:
    """Parse a time; a negative one, or NaN on PostgreSQL, would keep nothing.
    """
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise argparse.ArgumentTypeError(exception.expected(
            'a number of days, at least 0', repr(text)))
    return found


def _show_epoch(_conf: cfg.ConfigOpts, database: db_session.Database) -> int:
    with database.reader() as session:
        seen = leader.current(session)
    print(f'epoch {seen.epoch}, {seen.name or "nobody"} leads')
    return 0


def _raise_epoch(conf: cfg.ConfigOpts, database: db_session.Database) -> int:
    with database.writer() as session:
        leader.raise_epoch(session, conf.command.epoch)
    print(f'epoch {conf.command.epoch}; whoever led begins anew, and the next '
          'leader has a higher one')
    return 0


def _rebuild(conf: cfg.ConfigOpts, database: db_session.Database) -> int:
    if not conf.nova.auth_type:
        raise exception.Invalid(field='[nova] auth_type', value=None,
                                limit='a way to log in to Nova')
    found = rebuild.rebuild(
        conf, database, map(rebuild.read, nova.Nova(conf).all_servers()),
        conf.command.dry_run)
    would = 'would be ' if conf.command.dry_run else ''
    for project_id, what, why in found.skipped[:SHOWN]:
        print(f'skipped {what} of project {project_id}: {why}')
    if len(found.skipped) > SHOWN:
        print(f'and {len(found.skipped) - SHOWN} more')
    print(f'{found.n_groups} groups with {found.n_members} VMs {would}'
          f'rebuilt of {found.n_servers} servers, {len(found.skipped)} '
          'skipped')
    return 0


def _add_commands(
        subparsers: 'argparse._SubParsersAction[argparse.ArgumentParser]',
) -> None:
    db = subparsers.add_parser('db', help='The database')
    commands = db.add_subparsers(dest='action', required=True)
    sync = commands.add_parser('sync', help='Bring the schema up to date')
    sync.set_defaults(run=_sync)
    shown = commands.add_parser('version', help='Show the schema revision')
    shown.set_defaults(run=_version)
    purge = commands.add_parser('purge', help='Delete what ended long ago')
    purge.add_argument('--days', type=_days, default=1.0,
                       help='Keep what is younger, default 1')
    purge.set_defaults(run=_purge)
    again = subparsers.add_parser(
        'rebuild', help='Groups from the hints of all servers in Nova, after '
                        'the database was lost')
    again.add_argument('--dry-run', action='store_true',
                       help='Only say what would be written')
    again.set_defaults(run=_rebuild)
    epoch = subparsers.add_parser('epoch', help='The epoch of the leader')
    commands = epoch.add_subparsers(dest='action', required=True)
    shown = commands.add_parser('show', help='Show it, and who leads')
    shown.set_defaults(run=_show_epoch)
    raised = commands.add_parser('raise', help=(
        'For a new or an older database: go on above the epoch that edge '
        'modules heard of'))
    raised.add_argument('epoch', type=int)
    raised.set_defaults(run=_raise_epoch)


def main(argv: list[str] | None = None) -> int:
    """Run ``virtco-manage``; return its exit code."""
    conf = cfg.ConfigOpts()
    conf.register_cli_opt(cfg.SubCommandOpt(
        'command', title='Commands', handler=_add_commands))
    try:
        controller_cmd.make_conf(sys.argv[1:] if argv is None else argv,
                                 conf, prog='virtco-manage')
        configuration.set_up_log(conf, 'virtco')
        database = db_session.Database.from_conf(conf, bounds.MIGRATING_S)
        return int(conf.command.run(conf, database))
    except exception.ConfigInvalid as error:
        configuration.cannot_start('virtco-manage', error)
        return 1
    except (exception.VirtcoException, OSError) as error:
        print(f'virtco-manage: {error}', file=sys.stderr)
        return 1


if __name__ == '__main__':
    sys.exit(main())
