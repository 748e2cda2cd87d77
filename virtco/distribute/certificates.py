# SPDX-License-Identifier: Apache-2.0

"""TLS contexts that follow the files of their certificates."""

from collections.abc import Callable
from collections.abc import Iterable
import logging
import os
import ssl
from typing import Any

import prometheus_client

from virtco import exception
from virtco import metrics

LOG = logging.getLogger(__name__)

#: Identity of a file's content: a renewal writes to it or puts another file in
#: its place, and either changes one of these. None: it cannot be read.
Stamp = tuple[int, int, int] | None


class Renewed:
    """A TLS context that is made again once one of its files changed.

    A connection keeps the context that its handshake began with.

    :param make: reads the files; raises OSError when they cannot be used.
    :param unusable: is 1 while the files cannot be used, and the context is
        of those before.
    :raises OSError: for a file that cannot be used at the start.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext],
                 paths: Iterable[str], unusable: prometheus_client.Gauge):
        self._make = make
        self._paths = [path for path in paths if path]
        self._unusable = unusable
        self._stamps = self._look()
        self._context = make()

    def context(self) -> ssl.SSLContext:
        """Return the context of the files as they are, for one handshake.

        A certificate whose key is not there yet cannot be used, and is tried
        again when the key comes.
        """
        stamps = self._look()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._context = self._make()
            except OSError as error:
                self._unusable.set(1)
                LOG.error('%s cannot be used, the certificate of before is '
                          'shown: %s', ', '.join(self._paths), error)
            else:
                self._unusable.set(0)
                LOG.info('Read anew: %s.', ', '.join(self._paths))
        return self._context

    def _look(self) -> list[Stamp]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: str) -> Stamp:
    """Identify a file's content; None without a file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns, found.st_size


def of_server(options: Any, counts: metrics.Metrics) -> Renewed | None:
    """Make the stream server's TLS context; None without a certificate.

    :param options: options of the section ``distributor``.
    :raises virtco.exception.ConfigInvalid: for a file that cannot be used.
    """
    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if options.client_ca_file:
            context.load_verify_locations(options.client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    return _with_pair(options, 'client_ca_file', make,
                      counts.unusable_certificates.labels('server'))


def of_client(options: Any, counts: metrics.Metrics) -> Renewed | None:
    """Make this process's TLS context towards the leader; None without a
    certificate.

    :param options: options of the section ``distributor``: a process has one
        pair.
    :raises virtco.exception.ConfigInvalid: for a file that cannot be used.
    """
    def make() -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=options.ca_file or None)
        context.hostname_checks_common_name = False
        return context

    return _with_pair(options, 'ca_file', make,
                      counts.unusable_certificates.labels('client'))


def _with_pair(options: Any, authorities: str,
               make: Callable[[], ssl.SSLContext],
               unusable: prometheus_client.Gauge) -> Renewed | None:
    """Add this process's certificate to the contexts that are made.

    :param authorities: option whose file ``make`` reads.
    """
    def make_with_pair() -> ssl.SSLContext:
        context = make()
        context.load_cert_chain(options.cert_file, options.key_file or None)
        return context

    if not options.cert_file:
        return None
    try:
        return Renewed(make_with_pair, (
            options.cert_file, options.key_file,
            getattr(options, authorities)), unusable)
    except OSError as error:
        raise exception.ConfigInvalid(
            why=f'[distributor] cert_file, key_file or {authorities}: '
            f'{error}') from error
