# SPDX-License-Identifier: Apache-2.0

"""Rates of pairs of hosts: the newest, and matrices of statistics."""

from typing import Annotated
from typing import Literal

import msgspec

from virtco.wire import fields
from virtco.wire import operation

Kind = Literal['rate', 'latency']
Statistic = Literal['constant', 'latest', 'median', 'least', 'most', 'range']


class MeasuredPair(fields.Pair, frozen=True, kw_only=True):
    """The newest measurement from one host to another.

    :ivar rate_bps: measured rate.
    :ivar age_s: age of the measurement.
    :ivar confidence: 0 to 1, falls with the age.
    :ivar lower_bound: whether the path may carry more.
    :ivar loss: fraction of the packets.
    :ivar rtt_s: shortest round trip.
    :ivar rtt_median_s: median round trip.
    :ivar rtt_p99_s: 99th percentile of the round trips.
    :ivar method: method of the measurement.
    """

    rate_bps: float
    age_s: float
    confidence: float
    lower_bound: bool
    loss: float | None
    rtt_s: float | None
    rtt_median_s: float | None
    rtt_p99_s: float | None
    method: str | None


class Rates(operation.Response, frozen=True):
    """A list of measured pairs of hosts.

    :ivar pairs: in the order of their names.
    """

    pairs: list[MeasuredPair]


class Matrix(operation.Response, frozen=True, kw_only=True):
    """A statistic of each pair of hosts.

    :ivar kind: measured quantity.
    :ivar unit: unit of the values.
    :ivar statistic: statistic of each pair over time.
    :ivar hosts: hosts of the rows (senders) and columns (receivers).
    :ivar values: null where the pair was not measured.
    :ivar ages_s: age of the newest measurement of each pair.
    """

    kind: Kind
    unit: str
    statistic: Statistic
    hosts: list[str]
    values: list[list[float | None]]
    ages_s: list[list[float | None]]


class MatrixQuery(operation.Query, frozen=True, kw_only=True):
    """Selection of a matrix of measurements.

    :ivar kind: measured quantity.
    :ivar statistic: statistic of each pair over time; the long-term rate, or
        the median of latencies, where it is not given.
    :ivar at: time, in seconds since the epoch; later measurements are left
        out.
    :ivar hosts: names with commas between them, 512 at most; all where it is
        not given.
    """

    kind: Kind
    statistic: Statistic | None = None
    at: Annotated[float, msgspec.Meta(ge=0)] | None = None
    hosts: Annotated[str, msgspec.Meta(
        pattern=r'^[A-Za-z0-9._:@,-]*\Z')] | None = None


class Performer(operation.Response, frozen=True, kw_only=True):
    """Medians over the pairs of a host; null where none was measured.

    :ivar host: name of the host.
    :ivar egress_bps: median over the peers of the long-term rate to them.
    :ivar ingress_bps: median over the peers of the rate from them.
    :ivar range_share: median over its pairs of (most - least) by the rate.
    :ivar rtt_s: median over the peers of the median round trip.
    :ivar n_peers: in the direction that has fewer of them.
    :ivar reasons: why the host is poor; empty when it is not.
    """

    host: str
    egress_bps: float | None
    ingress_bps: float | None
    range_share: float | None
    rtt_s: float | None
    n_peers: int
    reasons: tuple[str, ...]


class Performers(operation.Response, frozen=True, kw_only=True):
    """Measured hosts, and the estimator of the long-term rates.

    :ivar estimator: estimator of the long-term rates; null: nothing was
        measured.
    :ivar noise: noise of the readings about the long-term rates.
    :ivar trust: how far the long-term rates may be followed.
    :ivar errors: relative error of each estimator over past readings.
    :ivar hosts: hosts that were measured.
    """

    estimator: str | None
    noise: float | None
    trust: str | None
    errors: dict[str, float | None]
    hosts: list[Performer]


LIST = operation.Operation(
    'listRates', 'GET', '/v1/rates', Rates,
    'List the newest measurement of each pair of hosts.')
MATRIX = operation.Operation(
    'showMatrix', 'GET', '/v1/matrices/{kind}', Matrix,
    'Show a statistic of the measurements of each pair of hosts.',
    query=MatrixQuery)
PERFORMERS = operation.Operation(
    'listPerformers', 'GET', '/v1/performers', Performers,
    'List hosts by what their pairs do, and why some are poor.')
