# SPDX-License-Identifier: Apache-2.0

"""Measurements that an operator asked for, in addition to the schedule's."""

from collections.abc import Iterator
from typing import Any

from virtco import exception
from virtco.wire import probe as wire
from virtco.wire import probe_order
from virtco.wire import reports

#: Requests at the same time, and how long one may wait for its hosts.
MOST = 16
PATIENCE_S = 120.0

Pair = tuple[str, str]
#: A pair that failed, or is under way, has no measurement.
Results = dict[Pair, reports.Measurement | None]


def check(request: wire.ProbeRequest) -> None:
    """Check that each pair is of two hosts.

    :raises virtco.exception.Invalid: for a pair of one host.
    """
    for src, dst in request.pairs:
        if src == dst:
            raise exception.Invalid(field='pairs', value=[src, dst],
                                    limit='two different hosts')


def traffic(request: wire.ProbeRequest) -> probe_order.Traffic:
    """Return the traffic that measures each pair."""
    if request.kind == 'bulk':
        return probe_order.Bulk(request.lasts_s)
    return probe_order.Train(request.bursts, request.packets,
                             request.packet_bytes)


class Asked:
    """A request and its results up to now."""

    def __init__(self, request: wire.ProbeRequest, now_s: float):
        self.request = request
        self.results: Results = {}
        self._until_s = now_s + PATIENCE_S
        self._waiting = list(dict.fromkeys(request.pairs))

    def is_done(self) -> bool:
        """Tell whether each pair has a result or has failed."""
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
            # Other threads add to them.
            for (src, dst), found in list(self.results.items())]}

    def begin(self, free: set[str], now_s: float) -> Iterator[Pair]:
        """Yield the pairs that may begin now.

        :param free: hosts; those of the pairs are removed from it.
        """
        for pair in list(self._waiting):
            if set(pair) <= free:
                free.difference_update(pair)
                self._waiting.remove(pair)
                yield pair
            elif now_s > self._until_s:
                self._waiting.remove(pair)
                self.results[pair] = None
