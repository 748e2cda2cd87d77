# SPDX-License-Identifier: Apache-2.0

"""Reads and checks a command's options, and sets its log up."""

from collections.abc import Iterable
from collections.abc import Sequence
import logging
import re
import sys
from typing import Any

from oslo_config import cfg
from oslo_log import formatters
from oslo_log import log

from virtco import exception
from virtco import version

LOG = logging.getLogger(__name__)

# How oslo.config words a value that is none.
_NOT_VALID = re.compile(r"detail='(?P<where>.*)'\) is not valid: "
                        r'(?P<limit>.*)')

Options = Iterable[tuple[str, Sequence[cfg.Opt]]]


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
    """Does not append the error to a line that tells it already."""

    def format(self, record: logging.LogRecord) -> str:
        text: str = super().format(record)
        summary = getattr(record, 'error_summary', '')
        told = summary.partition(': ')[2]
        if told and not record.exc_info and told in record.getMessage():
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
