# SPDX-License-Identifier: Apache-2.0

"""Measurements that an operator asked for, beside those of the schedule."""

from collections.abc import Collection
from collections.abc import Iterator
import dataclasses
from typing import Any

from virtco import exception
from virtco.wire import probe as wire
from virtco.wire import reports

#: Requests at the same time, and how long one may wait for its hosts.
MOST = 16
PATIENCE_S = 120.0

Pair = tuple[str, str]


def train_bytes(request: wire.ProbeRequest) -> int:
    return request.bursts * request.packets * request.packet_bytes


def check(request: wire.ProbeRequest) -> None:
    """Check that each pair is of two hosts.

    :raises virtco.exception.Invalid: for a pair of one host.
    """
    for src, dst in request.pairs:
        if src == dst:
            raise exception.Invalid(field='pairs', value=[src, dst],
                                    limit='two different hosts')


def order(request: wire.ProbeRequest) -> dict[str, Any]:
    """Return the sender's order without its peer."""
    if request.kind == 'bulk':
        return {'kind': 'bulk', 'lasts_s': float(request.lasts_s)}
    return {'kind': 'train', 'repeats': False, 'bursts': request.bursts,
            'packets': request.packets,
            'packet_bytes': request.packet_bytes}


@dataclasses.dataclass
class Asked:
    """A request and its results up to now."""

    request: wire.ProbeRequest
    until_s: float
    waiting: list[Pair]
    results: dict[Pair, reports.Measurement | None] = dataclasses.field(
        default_factory=dict)

    def is_done(self) -> bool:
        return len(self.results) == len(set(self.request.pairs))

    def to_dict(self) -> dict[str, Any]:
        """Return the answer of ``GET /v1/probes/{id}``; a pair without a
        result has no rate.
        """
        return {'done': self.is_done(), 'results': [
            {'src': src, 'dst': dst, **({} if found is None else {
                name: getattr(found, name) for name in (
                    'rate_bps', 'lower_bound', 'loss', 'rtt_s',
                    'sent_bytes', 'windows_bytes')})}
            for (src, dst), found in self.results.items()]}


class Desk:
    """The requests of a controller, the oldest first."""

    def __init__(self) -> None:
        self._asked: dict[str, Asked] = {}

    def add(self, request: wire.ProbeRequest, name: str, now_s: float) -> None:
        """Add a request.

        :raises virtco.exception.Invalid: for a pair of one host.
        """
        check(request)
        self._asked[name] = Asked(request, now_s + PATIENCE_S,
                                  list(dict.fromkeys(request.pairs)))

    def forget(self, name: str) -> None:
        self._asked.pop(name, None)

    def get(self, name: str) -> Asked:
        """Return a request with its results.

        :raises virtco.exception.NotFound: for one that is not known.
        """
        if name not in self._asked:
            raise exception.NotFound(what='Probe', id=name)
        return self._asked[name]

    def begin(self, free: Collection[str], now_s: float
              ) -> Iterator[tuple[str, Pair, wire.ProbeRequest]]:
        """Yield what may begin between hosts that are free now."""
        left = set(free)
        for name, one in self._asked.items():
            for pair in list(one.waiting):
                if set(pair) <= left:
                    left -= set(pair)
                    one.waiting.remove(pair)
                    yield name, pair, one.request
                elif now_s > one.until_s:
                    one.waiting.remove(pair)
                    one.results[pair] = None

    def ended(self, name: str, pair: Pair,
              found: reports.Measurement | None) -> None:
        if name in self._asked:
            self._asked[name].results[pair] = found
