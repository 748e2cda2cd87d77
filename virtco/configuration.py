# SPDX-License-Identifier: Apache-2.0

"""Reads and checks a command's options, and sets its log up.

Each daemon finds here problems of its configuration that do not stop it.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import difflib
from importlib import metadata
import itertools
import logging
import pathlib
import re
import socket
import ssl
import sys
import time
from typing import Any

from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import loading
from oslo_config import cfg
from oslo_log import formatters
from oslo_log import log

from virtco import exception
from virtco import problems
from virtco import version
from virtco.wire.health import Problem

LOG = logging.getLogger(__name__)

# How oslo.config words a value that is none.
_NOT_VALID = re.compile(r"detail='(?P<where>.*)'\) is not valid: "
                        r'(?P<limit>.*)')

#: A certificate is to be renewed when it has no more than this time left, or
#: this share of its life.
SOON_S = 14 * 86400.0
SOON_SHARE = 0.2

Options = Iterable[tuple[str, Sequence[cfg.Opt]]]
_Found = Iterator[tuple[Any, Iterable[cfg.Opt]]]


def read(conf: cfg.ConfigOpts, argv: Sequence[str], options: Options,
         **kwargs: Any) -> None:
    """Parse the arguments and files, and look at every value.

    oslo.config looks at a value when it is first used, which may be never or
    in the middle of something.

    :param options: group and its options, for each that is checked.
    :raises virtco.exception.ConfigInvalid:
    """
    try:
        conf(argv, project='virtco', version=version.version_string(),
             **kwargs)
        for group, group_options in options:
            for option in group_options:
                _check(conf, group, option)
    except UnicodeDecodeError as error:
        raise exception.ConfigInvalid(
            why=f'a configuration file is not in UTF-8: {error}',
            code='VC-001') from error
    except (cfg.Error, OSError, ValueError) as error:
        raise exception.ConfigInvalid(why=_line(error), code='VC-001'
                                      ) from error


def _check(conf: cfg.ConfigOpts, group: str, option: cfg.Opt) -> None:
    try:
        getattr(conf[group], option.dest)
    except ValueError as error:
        text = _line(error)
        found = _NOT_VALID.search(text)
        if found:
            text = '{}, in {}'.format(found['limit'], found['where'])
        raise exception.ConfigInvalid(
            why=f'[{group}] {option.name}: {text}') from error


def set_up_log(conf: cfg.ConfigOpts, product: str) -> None:
    """Set up the log of a product as it is configured.

    :raises virtco.exception.ConfigInvalid: for a log that cannot be.
    """
    try:
        log.setup(conf, product)
    except (log.LogConfigError, cfg.Error, OSError, RuntimeError, TypeError,
            ValueError) as error:
        raise exception.ConfigInvalid(why=f'the log: {_line(error)}'
                                      ) from error
    for handler in logging.root.handlers:
        made = handler.formatter
        if type(made) is formatters.ContextFormatter:
            handler.setFormatter(_Formatter(
                project=made.project, version=made.version, config=made.conf,
                datefmt=made.datefmt))


class _Formatter(formatters.ContextFormatter):
    """Does not append the error to a line that tells it already.

    Tenants, edge modules and whoever connects choose some of the text: a
    message is one line, and tells a terminal nothing.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        told = vars(record)
        for name in ('message', 'error_summary'):
            told[name] = exception.escaped(told[name])
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        text: str = super().format(record)
        summary = getattr(record, 'error_summary', '')
        told = summary.partition(': ')[2]
        if told and not record.exc_info and told in record.message:
            return text.removesuffix(f': {summary}')
        return text


def cannot_start(program: str, why: object) -> None:
    """Say it in one line on stderr, and in a log that is not on the console.
    """
    line = f'{program} cannot start: {_line(why)}'
    print(line, file=sys.stderr)
    handlers = logging.root.handlers
    if handlers and not any(
            getattr(handler, 'stream', None) in (sys.stdout, sys.stderr)
            for handler in handlers):
        LOG.error('%s', line)


def _line(why: object) -> str:
    return re.sub(r'\s+', ' ', str(why)).strip()


def tell(found: Iterable[Problem], say: Callable[[int, str], None]) -> bool:
    """Say each problem with its level; return whether one is an error."""
    has_errors = False
    for one in found:
        is_error = problems.is_error(one.code)
        has_errors |= is_error
        say(logging.ERROR if is_error else logging.WARNING,
            f'{one.code}: {one.finding}')
    return has_errors


def taken(addresses: Iterable[tuple[str, int]]) -> Iterator[Problem]:
    """Find addresses that cannot be listened on, all at the same time."""
    with contextlib.ExitStack() as stack:
        for host, port in addresses:
            family = socket.AF_INET6 if ':' in host else socket.AF_INET
            try:
                stack.enter_context(
                    socket.create_server((host, port), family=family))
            except OSError as error:
                yield Problem('VC-010', f'{host} port {port}: '
                              f'{exception.reason(error)}')


def certificates(section: str, cert_file: str | None, key_file: str | None,
                 ca_files: Iterable[str | None]) -> Iterator[Problem]:
    """Find out whether a section's TLS pair can be used, and when it ends."""
    authorities = [path for path in ca_files if path]
    unusable = list(unreadable('VC-040', section, filter(None, (
        cert_file, key_file, *authorities))))
    yield from unusable
    if unusable:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    path = cert_file or ''
    try:
        if cert_file:
            context.load_cert_chain(cert_file, key_file or None)
        for path in authorities:
            context.load_verify_locations(path)
    except ssl.SSLError as error:
        yield Problem('VC-041', f'[{section}] {path}: {error}')
        return
    if cert_file:
        yield from _end(cert_file)


def _end(cert_file: str) -> Iterator[Problem]:
    """Find out whether a certificate has ended, or ends soon."""
    # Daemons without TLS start without it.
    from cryptography import x509
    found = x509.load_pem_x509_certificate(
        pathlib.Path(cert_file).read_bytes())
    end_s = found.not_valid_after_utc.timestamp()
    begin_s = found.not_valid_before_utc.timestamp()
    left_s = end_s - time.time()
    if left_s <= 0:
        yield Problem('VC-042', f'{cert_file}: it ended '
                      f'{-left_s / 86400:.1f} days ago')
    elif left_s < min(SOON_S, SOON_SHARE * (end_s - begin_s)):
        yield Problem('VC-043', f'{cert_file}: it ends in '
                      f'{left_s / 86400:.1f} days')


def unreadable(code: str, section: str, paths: Iterable[str]
               ) -> Iterator[Problem]:
    """Find files that cannot be read.

    :param code: code of the problem.
    """
    for path in paths:
        try:
            with open(path, 'rb'):
                pass
        except OSError as error:
            yield Problem(code, f'[{section}] {path}: '
                          f'{exception.reason(error)}')


def unknown(conf: cfg.ConfigOpts, options: Options,
            libraries: Mapping[str, tuple[str, ...]], logins: Iterable[str],
            prepare: Mapping[str, Callable[[], None]]) -> Iterator[Problem]:
    """Find sections and options of the files that nothing reads.

    :param options: options of the program.
    :param libraries: namespaces of libraries whose options may stand in the
        files, with the beginnings of their sections.
    :param logins: sections whose options are keystoneauth's.
    :param prepare: called before the options of a library are listed.
    """
    known = _names(options)
    left = {section: strange for section, names in _written(conf).items()
            if (strange := names - known.get(section, set()))}
    if not left:
        return
    wanted = {name for name, of in libraries.items()
              if any(section.startswith(of) for section in left)}
    for name in wanted & prepare.keys():
        prepare[name]()
    for section, names in _names(itertools.chain(
            _of_libraries(wanted), _of_logins(conf, logins, left))).items():
        known.setdefault(section, set()).update(names)
    for section, names in left.items():
        if section not in known:
            yield Problem('VC-004', f'[{section}]{_meant(section, known)}')
            continue
        for name in sorted(names - known[section]):
            yield Problem('VC-003', f'[{section}] {name}'
                          + _meant(name, known[section]))


def _meant(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f', {close[0]} is meant perhaps' if close else ''


def _written(conf: cfg.ConfigOpts) -> dict[str, set[str]]:
    """Read all files: section -> names of its options."""
    found: dict[str, dict[str, Any]] = {}
    for path in conf.config_file:
        cfg.ConfigParser(path, found).parse()
    return {section: {name.replace('-', '_') for name in names}
            for section, names in found.items()}


def _names(options: Iterable[tuple[Any, Iterable[cfg.Opt]]]
           ) -> dict[str, set[str]]:
    """Return the names of options by section, deprecated ones, too."""
    found: dict[str, set[str]] = {}
    for group, group_options in options:
        section = str(getattr(group, 'name', group) or 'DEFAULT')
        for option in group_options:
            found.setdefault(section, set()).add(option.dest)
            for old in option.deprecated_opts:
                found.setdefault(old.group or section, set()).add(
                    (old.name or option.dest).replace('-', '_'))
    return found


def _of_libraries(names: Collection[str]) -> _Found:
    for entry in metadata.entry_points(group='oslo.config.opts'):
        if entry.name in names:
            yield from entry.load()()


def _of_logins(conf: cfg.ConfigOpts, logins: Iterable[str],
               sections: Mapping[str, set[str]]) -> _Found:
    for group in set(logins) & set(sections):
        loading.register_auth_conf_options(conf, group)
        plugin = conf[group].auth_type
        if not plugin:
            continue
        try:
            yield group, loading.get_auth_plugin_conf_options(plugin)
        except ks_exceptions.AuthPluginException:
            # A missing plugin is a problem of its own: none of its options is
            # called unknown.
            yield group, [cfg.Opt(name) for name in sections[group]]
