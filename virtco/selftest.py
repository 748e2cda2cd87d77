# SPDX-License-Identifier: Apache-2.0

"""Tests that a controller makes of itself and of its surroundings.

``virtco doctor --config-file`` makes all of them before a start; a controller
repeats those that may fail later.
"""

from collections.abc import Iterable
from collections.abc import Iterator
import os
from typing import Any

from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import loading
from oslo_config import cfg
import sqlalchemy as sa

from virtco import configuration
from virtco import exception
from virtco.conf import opts
from virtco.db import migration
from virtco.db import models
from virtco.db import session as db_session
from virtco.follow import listener
from virtco.wire.health import Problem

#: A database that has less room than this takes no write before long.
LEAST_FREE_BYTES = 16 << 20
#: Sections whose options are keystoneauth's.
_LOGINS = ('nova', 'keystone_authtoken')
#: Namespaces of libraries whose options may stand in the file, with the
#: beginnings of their sections.
_LIBRARIES = {'oslo.log': ('DEFAULT',), 'oslo.policy': ('oslo_policy',),
              'oslo.messaging': ('DEFAULT', 'oslo_messaging'),
              'oslo.middleware.http_proxy_to_wsgi': ('oslo_middleware',),
              'keystonemiddleware.auth_token': ('keystone_authtoken',)}
_TOKEN_S = 10


def repeated(conf: cfg.ConfigOpts, database: db_session.Database
             ) -> Iterator[Problem]:
    """Make the tests whose answer may change while a controller runs."""
    yield from unknown(conf)
    yield from writes(database)
    yield from certificates(conf.distributor)
    yield from tokens(conf)


def before_start(conf: cfg.ConfigOpts, addresses: Iterable[tuple[str, int]]
                 ) -> Iterator[Problem]:
    """Make all tests of a configuration.

    :param addresses: host and port, of each listener.
    """
    yield from unknown(conf)
    yield from configuration.taken(addresses)
    yield from _of_database(conf)
    yield from certificates(conf.distributor)
    yield from tokens(conf)


def unknown(conf: cfg.ConfigOpts) -> Iterator[Problem]:
    """Find sections and options of the files that nothing reads."""
    return configuration.unknown(
        conf, opts.list_opts(), _LIBRARIES, _LOGINS,
        {'oslo.messaging': listener.choose_threads})


def _of_database(conf: cfg.ConfigOpts) -> Iterator[Problem]:
    """Test the database that a start would use, without making one."""
    try:
        path = db_session.file_of(db_session.default_connection(conf))
        if path and not os.path.exists(path):
            yield from _has_room(path)
            return
        database = db_session.Database.from_conf(conf)
    except exception.Invalid as error:
        yield Problem('VC-002', str(error))
        return
    except exception.DatabaseUnavailable as error:
        yield Problem('VC-020', str(error))
        return
    try:
        yield from _of_schema(database)
    finally:
        database.dispose()


def _of_schema(database: db_session.Database) -> Iterator[Problem]:
    """Yield problems of the schema's version and of writing."""
    try:
        revision = migration.current(database)
    except exception.DatabaseUnavailable as error:
        yield Problem('VC-020', str(error))
        return
    if revision == migration.head():
        yield from writes(database)
    # A start brings an older schema of an embedded database up to date.
    elif not (database.is_sqlite and migration.is_known(revision)):
        yield Problem('VC-023', f'the schema is {revision or "missing"}, '
                      f'this version needs {migration.head()}')


def writes(database: db_session.Database) -> Iterator[Problem]:
    """Find out whether the database takes a write, without changing it."""
    try:
        with database.writer(db_session.PATIENCE_S) as session:
            session.execute(sa.delete(models.Event).where(sa.false()))
    except exception.DatabaseUnavailable as error:
        yield Problem(_code_of(str(error)), str(error))
        return
    path = db_session.file_of(str(database.engine.url))
    if path:
        yield from _has_room(path)


def _code_of(error: str) -> str:
    """Tell from the database's words why it refused a write."""
    words = error.lower().replace('-', '').replace(' ', '')
    if 'readonly' in words:
        return 'VC-021'
    return 'VC-022' if 'isfull' in words or 'nospace' in words else 'VC-020'


def _has_room(path: str) -> Iterator[Problem]:
    """Test the directory of a file, or the one that a start would make."""
    directory = os.path.dirname(os.path.abspath(path))
    while not os.path.exists(directory):
        directory = os.path.dirname(directory)
    found = os.statvfs(directory)
    free_bytes = found.f_bavail * found.f_frsize
    if not os.access(directory, os.W_OK | os.X_OK):
        yield Problem('VC-021', f'{directory} is not writable')
    elif free_bytes < LEAST_FREE_BYTES:
        yield Problem('VC-022', f'{directory}: {free_bytes} bytes are free')


def certificates(options: Any) -> Iterator[Problem]:
    """Find out whether the TLS pair can be used, and when it ends.

    :param options: options of the section ``distributor``.
    """
    return configuration.certificates(
        'distributor', options.cert_file, options.key_file,
        (options.client_ca_file, options.ca_file))


def tokens(conf: cfg.ConfigOpts) -> Iterator[Problem]:
    """Find out whether keystone grants a token to each account."""
    if conf.nova.auth_type:
        yield from _token(conf, 'nova')
    if conf.api.auth_strategy == 'keystone':
        group = 'keystone_authtoken'
        # keystonemiddleware registers other options of the same names.
        own = cfg.ConfigOpts()
        own([], default_config_files=conf.config_file or [],
            default_config_dirs=conf.config_dir or [])
        loading.register_session_conf_options(own, group)
        loading.register_auth_conf_options(own, group)
        yield from _token(own, group)


def _token(conf: cfg.ConfigOpts, group: str) -> Iterator[Problem]:
    options = conf[group]
    unreadable = list(configuration.unreadable('VC-033', group, filter(None, (
        options.cafile, options.certfile, options.keyfile))))
    if unreadable:
        yield from unreadable
        return
    try:
        auth = loading.load_auth_from_conf_options(conf, group)
        if auth is None:
            yield Problem('VC-032', f'[{group}] auth_type is not set')
            return
        loading.session.Session().load_from_options(
            auth=auth, timeout=_TOKEN_S, insecure=options.insecure,
            cacert=options.cafile, cert=options.certfile,
            key=options.keyfile).get_token()
    except (ks_exceptions.AuthPluginException,
            ks_exceptions.MissingRequiredOptions) as error:
        yield Problem('VC-032', f'[{group}]: {_line(error)}')
    except ks_exceptions.HttpError as error:
        yield Problem('VC-031' if error.http_status in (401, 403) else
                      'VC-030', f'[{group}]: {_line(error)}')
    except (ks_exceptions.ClientException, OSError) as error:
        yield Problem('VC-030', f'[{group}]: {_line(error)}')


def _line(error: Exception) -> str:
    return ' '.join(str(error).split())[:200]
