# SPDX-License-Identifier: Apache-2.0

"""``virtco-cast send``: the tracker, and the member with the files."""

import argparse
import contextlib
import json
import pathlib
import secrets
import socket
import statistics
import time
from typing import TYPE_CHECKING

import msgspec
from rich import console

from virtco import exception
from virtco_tenant.cast import demand
from virtco_tenant.cast import members
from virtco_tenant.cast import peers
from virtco_tenant.cast import swarm
from virtco_tenant.cast import torrents
from virtco_tenant.cast import tracker as trackers

if TYPE_CHECKING:
    from virtco_tenant.cast import groups


class NotReceived(exception.VirtcoException):
    """A cast is over, and some receivers left early or never came."""

    msg_fmt = '%(n_missing)d of %(n_receivers)d did not get all: %(who)s.'


def send(args: argparse.Namespace, out: console.Console) -> int:
    """Send a file or directory to all receivers; return the exit code.

    :raises virtco.exception.Invalid: for an address that is taken.
    """
    path = pathlib.Path(args.path)
    out.print(f'Reading {path} …', highlight=False)
    stamps = torrents.stamps(path)
    torrent = torrents.describe(path)
    group = _group(args.group, out)
    known = {**_from_history(args.history),
             **(group.clusters() if group is not None else {}),
             **_from_file(args.clusters)}
    name = args.name or socket.gethostname()
    tracker = trackers.Tracker(
        name, args.receivers, time.monotonic, known,
        plan=peers.plan_plain if args.plain else peers.plan,
        missed_s=args.wait or trackers.MISSED_S,
        absent_s=args.wait or trackers.ABSENT_S)
    key = args.key or secrets.token_urlsafe(16)
    try:
        server = trackers.serve(tracker, key, torrent,
                                (args.address, args.port))
    except OSError as error:
        raise exception.Invalid(
            field='--address and --port', value=f'{args.address}:{args.port}',
            limit=f'a free port of this VM ({error.strerror})') from error
    own = swarm.Transfer(torrent, path.resolve().parent, is_source=True,
                         address=args.address, rate_bps=args.rate)
    host = (args.address if args.address != '0.0.0.0'
            else _own_address())
    out.print(f'On each other VM: virtco-cast receive http://{host}:'
              f'{server.server_port}/{key} DIRECTORY', soft_wrap=True,
              highlight=False)
    try:
        with (members.bar(out, own.size_bytes * args.receivers) as move,
              _announced(group, name, tracker, own.size_bytes, out)):
            while not tracker.is_over:
                answer = tracker.ask(name, (host, own.port),
                                     cluster=args.cluster)
                own.follow(*members.part(answer))
                _check(own, stamps)
                shares = tracker.shares()
                move(sum(shares.values()) * own.size_bytes,
                     f'{len(shares)} of {args.receivers} here')
                time.sleep(trackers.POLL_S / 4)
        if not (missing := tracker.missing()):
            out.print(f'All {args.receivers} have it after '
                      f'{tracker.taken_s or 0:.1f} s.',
                      highlight=False)
        _tell()
    except members.GivesUp as error:
        tracker.fail(str(error).rstrip('.'))
        _tell()
        raise
    finally:
        own.end()
        server.shutdown()
        _write_history(args.history, tracker, out)
    if missing:
        raise NotReceived(
            n_missing=tracker.n_lacking, n_receivers=args.receivers,
            who='; '.join(
                members.printable(f'{one}: {why}')
                for one, why in sorted(missing.items())))
    return 0


def _check(own: swarm.Transfer, stamps: torrents.Stamps) -> None:
    """Check that the files can be read and have not changed.

    :raises virtco_tenant.cast.members.GivesUp: otherwise.
    """
    members.check(own)
    if (name := torrents.changed(stamps)) is not None:
        raise members.GivesUp(why=f'{name} changed while it was sent')


def _tell() -> None:
    """Wait until every member has asked the tracker once more."""
    time.sleep(2 * trackers.POLL_S)


def _own_address() -> str:
    """Return this VM's address on the default route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(('192.0.2.1', 9))
        except OSError as error:
            raise exception.Invalid(
                field='--address', value=None,
                limit='an address of this VM (it has no route)') from error
        address: str = probe.getsockname()[0]
    return address


def _from_file(path: str | None) -> dict[str, str]:
    """Read the cluster of each member from a JSON file; empty without one.

    :raises virtco.exception.Invalid: unless it holds an object of strings.
    """
    if path is None:
        return {}
    try:
        return msgspec.json.decode(pathlib.Path(path).read_bytes(),
                                   type=dict[str, str])
    except (OSError, msgspec.MsgspecError) as error:
        raise exception.Invalid(
            field='--clusters', value=path, limit='a JSON file with an object '
            f'{{"VM": "cluster", …}} ({error})') from error


def _group(name: str | None, out: console.Console) -> 'groups.Group | None':
    """Return the controller's group; None without a name or a controller."""
    if name is None:
        return None
    # The client is imported only where it is needed.
    from virtco_tenant.cast import groups
    try:
        return groups.Group(name)
    except exception.ControllerUnavailable as error:
        out.print(f'Without racks: {error}', highlight=False, markup=False)
        return None


def _announced(group: 'groups.Group | None', source: str,
               tracker: trackers.Tracker, size_bytes: float,
               out: console.Console
               ) -> contextlib.AbstractContextManager[None]:
    """Return a context in which this cast is announced to the controller.

    Without a group, the context does nothing.
    """
    if group is None:
        return contextlib.nullcontext()
    from virtco_tenant.cast import groups
    return groups.announced(
        group, f'cast-{source}', lambda: _left(source, tracker, size_bytes),
        lambda text: out.print(text, highlight=False, markup=False))


def _left(source: str, tracker: trackers.Tracker,
          size_bytes: float) -> 'groups.Left':
    """Return the bytes left to send by pair; None before the cast begins."""
    parts = tracker.parts()
    shares, names = tracker.shares(), tracker.names()
    return {(names[src], names[dst]): sent * (1 - shares[dst])
            for (src, dst), sent in demand.demand(
                source, parts, size_bytes).items()
            if shares[dst] < 1} if parts else None


def _from_history(path: str | None) -> dict[str, str]:
    if path is None or not pathlib.Path(path).exists():
        return {}
    # scipy takes a second to import, and only inference needs it.
    from virtco_tenant.cast import clusters
    try:
        told = {(src, dst): rate_bps for src, dst, rate_bps
                in msgspec.json.decode(pathlib.Path(path).read_bytes(),
                                       type=list[tuple[str, str, float]])}
    except (OSError, msgspec.MsgspecError) as error:
        raise exception.Invalid(
            field='--history', value=path,
            limit=f'a file written by an earlier cast ({error})') from error
    return clusters.infer(told)


def _write_history(path: str | None, tracker: trackers.Tracker,
                   out: console.Console) -> None:
    if path is None or not (rates_bps := tracker.rates_bps()):
        return
    try:
        pathlib.Path(path).write_text(json.dumps([
            [src, dst, statistics.median(told)]
            for (src, dst), told in rates_bps.items()]))
    except OSError as error:
        out.print(f'--history {path} is not written: {error.strerror}',
                  highlight=False, markup=False)
