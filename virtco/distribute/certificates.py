# SPDX-License-Identifier: Apache-2.0

"""TLS contexts that follow the files of their certificates."""

from collections.abc import Callable
from collections.abc import Iterable
import logging
import os
import ssl
from typing import Any
from typing import Literal

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
                 paths: Iterable[str | None],
                 unusable: prometheus_client.Gauge):
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


def of(options: Any, end: Literal['server', 'client'],
       counts: metrics.Metrics) -> Renewed | None:
    """Make the TLS context of the stream server, or of this process towards
    the leader; None without a certificate. Both show the same one.

    :param options: options of the section ``distributor``.
    :raises virtco.exception.ConfigInvalid: for a file that cannot be used.
    """
    authorities = 'client_ca_file' if end == 'server' else 'ca_file'
    ca_file = getattr(options, authorities) or None

    def make() -> ssl.SSLContext:
        if end == 'client':
            context = ssl.create_default_context(cafile=ca_file)
            context.hostname_checks_common_name = False
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            if ca_file:
                context.load_verify_locations(ca_file)
                context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(options.cert_file, options.key_file or None)
        return context

    if not options.cert_file:
        return None
    try:
        return Renewed(make, (options.cert_file, options.key_file, ca_file),
                       counts.unusable_certificates.labels(end))
    except OSError as error:
        raise exception.ConfigInvalid(
            why=f'[distributor] cert_file, key_file or {authorities}: '
            f'{error}') from error
