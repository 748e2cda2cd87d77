# SPDX-License-Identifier: Apache-2.0

"""Commands of the measurements between hypervisors."""

from collections.abc import Sequence
import datetime
import itertools
import os
import pathlib
import statistics
import tempfile
import time
from typing import Any

import msgspec
from osc_lib import exceptions as osc_exceptions

from virtco import exception
from virtco.client import v1
from virtco.measure import bottleneck
from virtco.measure import calibration
from virtco.measure import crosstraffic
from virtco.osc import command_base as base
from virtco.topology import tree
from virtco.topology.formats import plain
from virtco.wire import host as host_wire
from virtco.wire import probe as wire
from virtco.wire import topology as topology_wire

_POLL_S = 0.5
#: Every two of them measure together.
MOST_PATHS = 8

Pair = tuple[str, str]


ShowProbes = base.declared(base.ShowOne, wire.SCHEDULE, example='-f json')


def _ask(client: v1.Client, pairs: Sequence[Pair], **request: Any
         ) -> list[wire.Result]:
    """Measure pairs; a result without a rate has failed.

    :raises osc_lib.exceptions.CommandError: for an order that is refused.
    """
    probe_id = client.call(wire.ORDER, pairs=[list(pair) for pair in pairs],
                           **request).id
    while not (found := client.call(wire.SHOW, probe_id)).done:
        time.sleep(_POLL_S)
    if found.why:
        raise osc_exceptions.CommandError(f'Nothing is measured: {found.why}.')
    by_pair = {(one.src, one.dst): one for one in found.results}
    return [by_pair[pair] for pair in pairs]


def _bulk(client: v1.Client, pairs: Sequence[Pair], lasts_s: float
          ) -> list[tuple[float, tuple[float, ...]]]:
    """Return rate and windows of a TCP connection of each pair.

    :raises osc_lib.exceptions.CommandError: where TCP got nowhere.
    """
    found = []
    for one in _ask(client, pairs, kind='bulk', lasts_s=lasts_s):
        if not one.rate_bps:
            raise osc_exceptions.CommandError(
                f'No TCP connection from {one.src} to {one.dst} could '
                'be measured: is either host unknown, busy or silent?')
        found.append((one.rate_bps, one.windows_bytes or ()))
    return found


class Calibrate(base.Lister):
    """Find the packet trains that predict TCP's rate in this cloud

    Measures a few disjoint pairs of hosts with one TCP connection each, then
    with trains of several lengths, and marks the cheapest trains that are
    accurate enough. Takes some minutes; the results are not used for
    placement. With --write the controller uses these trains from its next
    start on.
    """

    row, shown = base.row_of('bursts packets train_bytes mean_error '
                             'median_error worst_error failed chosen')
    example = '--write /etc/virtco/virtco.conf.d/trains.conf'

    arguments = (
        base.argument('--hosts', metavar='<host,host,...>', help=(
            'Hosts to measure, in pairs (default: the first ten)')),
        base.argument('--near-enough', type=float, metavar='<share>',
                      default=calibration.NEAR_ENOUGH, help=(
                          'Largest mean error (default: %(default)s)')),
        base.argument('--seconds', type=float, default=3.0,
                      metavar='<seconds>', help=(
            'Duration of each TCP connection (default: %(default)s)')),
        base.argument('--write', type=pathlib.Path, metavar='<file>',
                      help=('Write the setting as configuration of the '
                            'controller, such as '
                            '/etc/virtco/virtco.conf.d/trains.conf')))

    def entries(self, args: Any) -> Sequence[msgspec.Struct]:
        if args.write is not None:
            # Not only after minutes.
            _replace(args.write, None)
        client = self.client
        names = (args.hosts.split(',') if args.hosts else [
            host.host for host in client.call(host_wire.LIST).hosts[:10]])
        pairs = list(zip(names[::2], names[1::2]))
        if not pairs:
            raise exception.Invalid(field='hosts', value=len(names),
                                    limit='at least 2 hosts')
        truth_bps = [rate_bps for rate_bps, _windows in _bulk(
            client, pairs, args.seconds)]
        errors = {}
        for setting in calibration.GRID:
            found = _ask(client, pairs, kind='train', bursts=setting.bursts,
                         packets=setting.packets)
            errors[setting] = calibration.error(truth_bps, [
                calibration.tcp_bps(one.rate_bps) if one.rate_bps else None
                for one in found])
        chosen = calibration.choose(errors, near_enough=args.near_enough)
        if args.write is not None:
            if chosen is None:
                raise osc_exceptions.CommandError(
                    f'No trains worked on all pairs: {args.write} is left '
                    'as it was.')
            _replace(args.write, calibration.as_config(
                chosen, errors[chosen], _how(pairs),
                near_enough=args.near_enough))
        return [self.row(
            one.bursts, one.packets, one.train_bytes,
            error.mean, error.median, error.worst, error.failed,
            '[probe]' if one == chosen else '')
                for one, error in errors.items()]


def _how(pairs: Sequence[Pair]) -> str:
    now = datetime.datetime.now(datetime.UTC)
    return (f'virtco measure calibrate, {now:%Y-%m-%d %H:%M} UTC: '
            + ', '.join(f'{src} -> {dst}' for src, dst in pairs))


def _replace(path: pathlib.Path, text: str | None) -> None:
    """Write a file as a whole, or only try whether one could be written.

    :raises osc_lib.exceptions.CommandError: when none can.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(None, 'it is a directory')
        descriptor, made = tempfile.mkstemp(dir=path.parent,
                                            prefix=f'.{path.name}.')
        with open(descriptor, 'w', encoding='utf-8') as file:
            file.write(text or '')
        if text is None:
            os.unlink(made)
        else:
            os.chmod(made, 0o644)
            os.replace(made, path)
    except OSError as error:
        raise osc_exceptions.CommandError(
            f'--write {path}: cannot be written: {error.strerror}') from error


class Paths(base.Lister):
    """Measure other connections on a path between hosts, or compare paths

    On one path a TCP connection, measured each 10 ms, estimates the other
    connections (Choreo section 3.2). Of several paths it finds out which share
    a bottleneck, by TCP connections on each path alone, then on every two at
    the same time (section 3.3). For a shared bottleneck the topology gives the
    possible levels; more paths distinguish more levels.
    """

    row, shown = base.row_of('src dst path_bps rate_bps connections',
                             'connections_median connections_most n_windows')
    example = 'compute-11 compute-21 compute-12 compute-22'

    arguments = (
        base.argument('hosts', nargs='+', metavar='<host>', help=(
            'From, to, and from, to of each other path; all different, at '
            f'most {MOST_PATHS} paths')),
        base.argument('--seconds', type=float, default=5.0,
                      metavar='<seconds>', help=(
            'Duration of each TCP connection (default: %(default)s)')),
        base.argument('--plane', metavar='<name>',
                      default=tree.FRONT_END, help=(
                          'Plane of the topology to locate a bottleneck in '
                          '(default: %(default)s)')))

    def entries(self, args: Any) -> Sequence[msgspec.Struct]:
        n_hosts = len(args.hosts)
        if (len(set(args.hosts)) < n_hosts or n_hosts % 2
                or n_hosts > 2 * MOST_PATHS):
            raise exception.Invalid(
                field='hosts', value=', '.join(args.hosts),
                limit=f'2 to {2 * MOST_PATHS} different hosts, two per path')
        paths: list[Pair] = list(zip(args.hosts[::2], args.hosts[1::2]))
        if len(paths) == 1:
            return [self.row(*_cross_traffic(self.client, paths[0],
                                             args.seconds))]
        self.row, self.shown = base.row_of(
            'src dst beside alone_bps beside_bps shares_bottleneck')
        return self._interference(paths, args)

    def _interference(self, paths: Sequence[Pair], args: Any
                      ) -> Sequence[msgspec.Struct]:
        client = self.client
        plane = plain.load(client.call(topology_wire.SHOW).planes).plane(
            args.plane) or tree.Plane()
        alone = {path: _bulk(client, [path], args.seconds)[0][0]
                 for path in paths}
        rows, seen = [], []
        for both in itertools.combinations(paths, 2):
            beside = _bulk(client, both, args.seconds)
            new = [self.row(
                *path, ' -> '.join(other), alone[path], one,
                bottleneck.shares_bottleneck(alone[path], one))
                   for path, other, (one, _windows) in zip(
                       both, both[::-1], beside)]
            rows += new
            seen.append((*both, any(row.shares_bottleneck
                                    for row in new)))
        self.tell(_located(seen, plane))
        return rows


def _cross_traffic(client: v1.Client, path: Pair, lasts_s: float
                   ) -> tuple[Any, ...]:
    """Estimate the connections beside one of a measurement, as a row."""
    src, dst = path
    path_bps = calibration.tcp_bps(min(
        client.call(host_wire.SHOW, src).egress_bps,
        client.call(host_wire.SHOW, dst).ingress_bps))
    ((rate_bps, windows_bytes),) = _bulk(client, [path], lasts_s)
    others = crosstraffic.of_windows(windows_bytes, path_bps)
    if not others:
        raise osc_exceptions.CommandError('The connection was too short.')
    return (src, dst, path_bps, rate_bps,
            crosstraffic.cross_traffic(path_bps, rate_bps),
            statistics.median(others), max(others), len(others))


def _located(seen: Sequence[tuple[Pair, Pair, bool]], plane: tree.Plane
             ) -> str:
    """Tell in one line where the bottleneck of these paths may be."""
    if not any(is_shared for *_, is_shared in seen):
        return 'No two paths share a bottleneck.'
    known = bottleneck.places(plane)

    def path_of(pair: Pair) -> bottleneck.Path:
        src, dst = (known.get(host, (host,)) for host in pair)
        return src, dst

    measured = [(path_of(one), path_of(other), is_shared)
                for one, other, is_shared in seen]
    found = bottleneck.locate(measured)
    if not found.links:
        return ('No level of the topology explains which paths share a '
                'bottleneck.')
    told = []
    for links in found.links:
        names = sorted({name for one, other, is_shared in measured
                        if is_shared and (name := bottleneck.shared(
                            one, other, links)) is not None})
        # Level 0, the hosts' own links, needs paths with a common host.
        told.append(f'{links.way} {plane.level(links.level - 1).name} '
                    + ', '.join(names))
    return (f'The bottleneck may be {" or ".join(told)}: explains '
            f'{found.n_explained} of {len(seen)} pairs of paths.')
