# SPDX-License-Identifier: Apache-2.0

"""``virtco-cast receive``."""

import argparse
from collections.abc import Mapping
import json
import pathlib
import re
import socket
import time
from typing import Any
from urllib import parse

from rich import console
import tenacity
import urllib3

from virtco import exception
from virtco import units
from virtco_tenant.cast import members
from virtco_tenant.cast import swarm
from virtco_tenant.cast import tracker as trackers

#: Time that the tracker may be away before a receiver gives up.
TRACKER_S = 60.0


class OtherFiles(exception.VirtcoException):
    """The tracker offers other files than those that were begun."""

    msg_fmt = ('The sender at %(url)s was started again with other files than '
               'this began with; start this again, too.')


class NotReached(exception.VirtcoException):
    """The tracker did not answer within ``TRACKER_S``."""

    msg_fmt = '%(url)s did not answer for %(limit_s)g s: %(why)s.'


def receive(args: argparse.Namespace, out: console.Console) -> int:
    """Receive a cast into a directory; return the exit code.

    :raises virtco.exception.Invalid: for a directory or address.
    """
    directory = pathlib.Path(args.directory)
    if not directory.is_dir():
        raise exception.Invalid(field='directory', value=directory,
                                limit='an existing directory')
    url = args.url.rstrip('/')
    if not re.fullmatch(r'http://[^/\s]+/[^/\s]+', url):
        raise exception.Invalid(field='address of the cast', value=args.url,
                                limit='http://HOST:PORT/KEY')
    http = urllib3.PoolManager(retries=False, timeout=10)
    torrent = _ask(http, 'GET', f'{url}/torrent')
    own = swarm.Transfer(torrent, directory, is_source=False,
                         address=args.address, rate_bps=args.rate)
    name = args.name or socket.gethostname()
    try:
        with members.bar(out, own.size_bytes) as move:
            while True:
                share = own.share
                failed = own.error
                answer = json.loads(_ask(http, 'POST', f'{url}/peers', {
                    'name': name, 'port': own.port, 'share': share,
                    'files': trackers.digest(torrent),
                    'cluster': args.cluster, 'rates_bps': own.rates_bps(),
                    'failed': failed and failed[-trackers.MAX_NAME:]}))
                members.check(own)
                own.follow(*members.part(answer))
                move(share * own.size_bytes,
                     f'{units.format_rate(own.receive_bps)} in, '
                     f'{units.format_rate(own.send_bps)} out')
                if _is_over(share, answer):
                    break
                time.sleep(_pause_s(answer))
    except NotReached:
        # The sender ends when all are done; it may have ended first.
        if own.share < 1:
            raise
    finally:
        own.end()
    out.print(f'Received {", ".join(own.names)}: '
              f'{units.format_size(own.size_bytes)}, checked.',
              highlight=False)
    return 0


def _is_over(share: float, answer: Mapping[str, Any]) -> bool:
    """Return whether there is nothing left to fetch or to send.

    :raises virtco_tenant.cast.members.GivesUp: when the sender gave up before
        all blocks came.
    """
    if share >= 1 and (answer['done'] or answer['failed']):
        return True
    if answer['failed'] is not None:
        raise members.GivesUp(why=f'The sender gave up: {answer["failed"]}')
    return False


def _pause_s(answer: Mapping[str, Any]) -> float:
    """Return the seconds until the next request to the tracker.

    They are fewer before the cast begins, so that nobody begins late.
    """
    return trackers.POLL_S / (2 if any(answer['swarms']) else 4)


def _ask(http: urllib3.PoolManager, method: str, url: str,
         body: Any = None) -> bytes:
    """Send a request to the tracker, with retries; return the answer.

    :raises NotReached: after TRACKER_S without an answer.
    """
    try:
        for attempt in tenacity.Retrying(
                retry=tenacity.retry_if_exception_type(
                    urllib3.exceptions.HTTPError),
                stop=tenacity.stop_after_delay(TRACKER_S),
                wait=tenacity.wait_random_exponential(0.2, max=5),
                reraise=True):
            with attempt:
                answer = http.request(
                    method, url, body=None if body is None
                    else json.dumps(body).encode())
    except urllib3.exceptions.HTTPError as error:
        raise NotReached(url=parse.urlsplit(url).netloc, limit_s=TRACKER_S,
                         why=type(error).__name__) from error
    if answer.status == 409:
        raise OtherFiles(url=parse.urlsplit(url).netloc)
    if answer.status != 200:
        raise exception.Invalid(field='address of the cast', value=url,
                                limit='an address printed by a sender '
                                      f'(HTTP {answer.status})')
    return answer.data
