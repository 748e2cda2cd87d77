# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""``virtco-cast``: hand files to all VMs of a group.

On the VM that has them::

    virtco-cast send model/ --receivers 8

prints the address that the other VMs take::

    virtco-cast receive http://10.0.0.5:41234/kZ3… /data
"""

import argparse
from collections.abc import Iterator
import contextlib
import json
import pathlib
import re
import secrets
import socket
import statistics
import sys
import time
from typing import Any, TYPE_CHECKING
from urllib import parse

from rich import console
from rich import progress
import tenacity
import urllib3

from virtco.cast import demand
from virtco.cast import peers
from virtco.cast import swarm
from virtco.cast import tracker as trackers
from virtco import exception
from virtco import units

if TYPE_CHECKING:
    from virtco.cast import groups

#: For so long the tracker may be away before a receiver gives up.
TRACKER_S = 60.0


class NotWritten(exception.VirtcoException):
    msg_fmt = '%(why)s.'


class NotReceived(exception.VirtcoException):
    msg_fmt = '%(n_missing)d of %(n_receivers)d did not get all: %(who)s.'


class NotReached(exception.VirtcoException):
    msg_fmt = '%(url)s did not answer for %(limit_s)g s: %(why)s.'


def _send(args: argparse.Namespace, out: console.Console) -> int:
    path = pathlib.Path(args.path)
    out.print(f'Reading {path} …', highlight=False)
    torrent = swarm.describe(path)
    group = _group(args.group, out)
    known = {**_from_history(args.history),
             **(group.clusters() if group is not None else {}),
             **_from_file(args.clusters)}
    name = args.name or socket.gethostname()
    tracker = trackers.Tracker(
        name, args.receivers, time.monotonic, known,
        plan=peers.plan_plain if args.plain else peers.plan,
        missed_s=args.wait)
    key = args.key or secrets.token_urlsafe(16)
    try:
        server = trackers.serve(tracker, key, torrent,
                                (args.address, args.port))
    except OSError as error:
        raise exception.Invalid(
            field='--address and --port', value=f'{args.address}:{args.port}',
            limit=f'free on this VM ({error.strerror})') from error
    own = swarm.Transfer(torrent, path.resolve().parent, is_source=True,
                         address=args.address, rate_bps=args.rate)
    host = (args.address if args.address != '0.0.0.0'  # noqa: S104
            else _own_address())
    out.print(f'On each other VM: virtco-cast receive http://{host}:'
              f'{server.server_port}/{key} DIRECTORY', soft_wrap=True,
              highlight=False)
    try:
        with (_bar(out, own.size_bytes * args.receivers) as move,
              _announced(group, name, tracker, own.size_bytes, out)):
            while not tracker.is_over:
                answer = tracker.ask(name, (host, own.port), share=1,
                                     cluster=args.cluster)
                own.follow(*_part(answer))
                _check(own)
                shares = tracker.shares()
                move(sum(shares.values()) * own.size_bytes,
                     f'{len(shares)} of {args.receivers} here')
                time.sleep(trackers.POLL_S / 4)
        if not (missing := tracker.missing()):
            out.print(f'All {args.receivers} have it after '
                      f'{tracker.taken_s or 0:.1f} s.',
                      highlight=False)
        # Everybody hears that it is done.
        time.sleep(2 * trackers.POLL_S)
    finally:
        own.end()
        server.shutdown()
        _write_history(args.history, tracker)
    if missing:
        raise NotReceived(
            n_missing=len(missing), n_receivers=args.receivers, who='; '.join(
                _printable(f'{one}: {why}')
                for one, why in sorted(missing.items())))
    return 0


def _printable(text: str) -> str:
    """What others told, without what a terminal would obey."""
    return ''.join(one if one.isprintable() else '?' for one in text)


def _check(own: swarm.Transfer) -> None:
    """:raises NotWritten: files could not be written or read."""
    if own.error is not None:
        raise NotWritten(why=own.error)


def _receive(args: argparse.Namespace, out: console.Console) -> int:
    directory = pathlib.Path(args.directory)
    if not directory.is_dir():
        raise exception.Invalid(field='directory', value=directory,
                                limit='a directory that exists')
    url = args.url.rstrip('/')
    if not re.fullmatch(r'http://[^/\s]+/[^/\s]+', url):
        raise exception.Invalid(field='address of the cast', value=args.url,
                                limit='http://HOST:PORT/KEY')
    http = urllib3.PoolManager(retries=False, timeout=10)
    own = swarm.Transfer(_ask(http, 'GET', f'{url}/torrent'), directory,
                         is_source=False, address=args.address,
                         rate_bps=args.rate)
    name = args.name or socket.gethostname()
    try:
        with _bar(out, own.size_bytes) as move:
            while True:
                share = own.share
                failed = own.error
                answer = json.loads(_ask(http, 'POST', f'{url}/peers', {
                    'name': name, 'port': own.port, 'share': share,
                    'cluster': args.cluster, 'rates_bps': own.rates_bps(),
                    'failed': failed and failed[-trackers.MAX_NAME:]}))
                _check(own)
                own.follow(*_part(answer))
                move(share * own.size_bytes,
                     f'{units.format_rate(own.receive_bps)} in, '
                     f'{units.format_rate(own.send_bps)} out')
                if answer['done'] and share >= 1:
                    break
                # Until all are here, nobody should begin late.
                time.sleep(trackers.POLL_S / (2 if any(answer['swarms'])
                                              else 4))
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


def _ask(http: urllib3.PoolManager, method: str, url: str,
         body: Any = None) -> bytes:
    """:raises NotReached: after TRACKER_S without an answer."""
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
    if answer.status != 200:
        raise exception.Invalid(field='address of the cast', value=url,
                                limit=f'one that a sender printed '
                                      f'(HTTP {answer.status})')
    return answer.data


def _part(answer: dict[str, Any]) -> tuple[list[list[swarm.Peer]],
                                           peers.Share | None]:
    """What the tracker told, as a transfer takes it."""
    told = answer['share']
    return ([[swarm.Peer(**one) for one in level]
             for level in answer['swarms']],
            told and peers.Share(told['gate'], told['gates'],
                                 tuple(told['first'])))


@contextlib.contextmanager
def _bar(out: console.Console, total_bytes: float) -> Iterator[Any]:
    shown = progress.Progress(
        progress.BarColumn(), progress.DownloadColumn(),
        progress.TimeElapsedColumn(), progress.TextColumn(
            '{task.description}'), console=out)
    with shown:
        task = shown.add_task('', total=total_bytes)
        yield lambda done_bytes, text: shown.update(
            task, completed=done_bytes, description=text)


def _own_address() -> str:
    """Where others reach this VM: its address on the default route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(('192.0.2.1', 9))
        except OSError as error:
            raise exception.Invalid(
                field='--address', value='not given',
                limit='an address of this VM, which has no route') from error
        address: str = probe.getsockname()[0]
    return address


def _from_file(path: str | None) -> dict[str, str]:
    """:raises virtco.exception.Invalid: unless an object of strings."""
    if path is None:
        return {}
    try:
        found = json.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError) as error:
        raise exception.Invalid(field='--clusters', value=path,
                                limit=f'a JSON file ({error})') from error
    if not isinstance(found, dict) or not all(
            isinstance(value, str) for value in found.values()):
        raise exception.Invalid(field='--clusters', value=path,
                                limit='{"VM": "cluster", …}')
    return found


def _group(name: str | None, out: console.Console) -> 'groups.Group | None':
    """None where nobody is to be asked, or the controller cannot be."""
    if name is None:
        return None
    # Only who asks a controller needs its client.
    from virtco.cast import groups
    try:
        return groups.Group(name)
    except exception.ControllerUnavailable as error:
        out.print(f'Without racks: {error}', highlight=False, markup=False)
        return None


def _announced(group: 'groups.Group | None', source: str,
               tracker: trackers.Tracker, size_bytes: float,
               out: console.Console
               ) -> contextlib.AbstractContextManager[None]:
    """Meanwhile the controller knows what this cast has to send."""
    if group is None:
        return contextlib.nullcontext()
    from virtco.cast import groups

    def left() -> groups.Left:
        parts = tracker.parts()
        shares, names = tracker.shares(), tracker.names()
        return {(names[src], names[dst]): sent * (1 - shares[dst])
                for (src, dst), sent in demand.demand(
                    source, parts, size_bytes).items()
                if shares.get(dst, 1) < 1} if parts else None

    return groups.announced(
        group, f'cast-{source}', left,
        lambda text: out.print(text, highlight=False, markup=False))


def _from_history(path: str | None) -> dict[str, str]:
    if path is None or not pathlib.Path(path).exists():
        return {}
    # Only who infers loads scipy, which takes a second.
    from virtco.cast import clusters
    try:
        told = {(str(src), str(dst)): float(rate_bps) for src, dst, rate_bps
                in json.loads(pathlib.Path(path).read_text())}
    except (OSError, ValueError, TypeError) as error:
        raise exception.Invalid(
            field='--history', value=path,
            limit=f'a file that a former cast wrote ({error})') from error
    return clusters.infer(told)


def _write_history(path: str | None, tracker: trackers.Tracker) -> None:
    if path is not None and (rates_bps := tracker.rates_bps()):
        pathlib.Path(path).write_text(json.dumps([
            [src, dst, statistics.median(told)]
            for (src, dst), told in rates_bps.items()]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='virtco-cast', description='Hand files to all VMs of a group.')
    actions = parser.add_subparsers(dest='action', required=True,
                                    metavar='ACTION')
    send = actions.add_parser('send', help='on the VM that has the files')
    send.set_defaults(run=_send)
    send.add_argument('path', help='file or directory')
    send.add_argument('--receivers', type=_count, required=True,
                      help='how many others there are')
    send.add_argument('--port', type=_port, default=0,
                      help='of the tracker, default: any')
    send.add_argument('--key', type=_key, help=(
        'of the address, default: drawn; with --port, a sender that was '
        'killed comes back at the same address'))
    send.add_argument('--wait', type=_seconds, default=trackers.MISSED_S,
                      help='seconds for a VM that is gone, default: '
                           f'{trackers.MISSED_S:g}')
    send.add_argument('--clusters', metavar='FILE',
                      help='JSON: {"VM": "rack", …}, by names of VMs')
    send.add_argument('--group', help=(
        'ask the controller at VIRTCO_URL which VMs of this group share a '
        'rack, and announce what the cast sends'))
    send.add_argument('--history', metavar='FILE',
                      help='learn racks from the rates of former casts')
    send.add_argument('--plain', action='store_true',
                      help='one swarm of random neighbours, without shares')
    receive = actions.add_parser('receive', help='on each other VM')
    receive.set_defaults(run=_receive)
    receive.add_argument('url', help='what the sender printed')
    receive.add_argument('directory', help='where the files go')
    for action in (send, receive):
        action.add_argument('--name',
                            help='of this VM, default: its host name')
        action.add_argument('--cluster', help='the rack or host of this VM')
        action.add_argument('--address', default='0.0.0.0',  # noqa: S104
                            help='where to listen, default: everywhere')
        action.add_argument('--rate', type=_rate, default=0,
                            help='cap of what this VM sends, as in 1Gbit/s')
    return parser


def _count(text: str) -> int:
    return _whole(text, 1, trackers.MAX_MEMBERS - 1)


def _port(text: str) -> int:
    return _whole(text, 0, 65535)


def _key(text: str) -> str:
    if not re.fullmatch(r'[A-Za-z0-9_-]{16,255}', text):
        raise argparse.ArgumentTypeError(
            '16 to 255 letters, digits, - and _ are needed')
    return text


def _seconds(text: str) -> int:
    return _whole(text, 1, 1_000_000)


def _whole(text: str, least: int, most: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f'{text}: {least} to {most}')
    return int(text)


def _rate(text: str) -> float:
    try:
        return units.parse_rate_bps(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    out = console.Console()
    try:
        return int(args.run(args, out))
    except exception.VirtcoException as error:
        print(f'virtco-cast: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == '__main__':
    sys.exit(main())
