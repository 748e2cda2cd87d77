# SPDX-License-Identifier: Apache-2.0

"""Reports and rates from plain values, for tests."""

import msgspec
import numpy as np

from virtco.measure import hostrates
from virtco.wire import frames
from virtco.wire import probe_order
from virtco.wire import reports

PLAIN = {'epoch': 'e', 'applied_generation': 0,
         'link': {'egress_bps': 1e9, 'ingress_bps': 2e9}, 'ports': [],
         'coflows': [], 'uplink_sent_bytes': 0}


def frame(kind, **fields):
    """A frame of the stream, as whoever speaks it sends it."""
    return frames.frame(msgspec.json.encode({'type': kind, **fields}))


def report(**values):
    """As a door decodes it; every field has a value here."""
    return msgspec.convert(PLAIN | values, reports.Report)


def measurement(src, dst, rate_bps, **values):
    return reports.Measurement(**{'probe_id': 'p', 'src': src, 'dst': dst,
                                  'rate_bps': rate_bps, **values})


def order(probe_id='p'):
    """An order to expect a train."""
    return probe_order.Receive(probe_id=probe_id, key='0a' * 32, peer='h2')


def replaced(before, **values):
    """The report with some fields of plain values."""
    return msgspec.convert(msgspec.to_builtins(before) | values,
                           reports.Report)


def host_rates(pair_rates):
    """What these readings of pairs say of the hosts."""
    readings = hostrates.Readings()
    for one in pair_rates:
        readings.add(one)
    return readings.estimate()


def readings(pairs, src, dst):
    """Times, rates and round trips kept of a pair, oldest first."""
    table = pairs.table(0.0)
    if not {src, dst} <= set(table.hosts):
        return []
    ends = [table.hosts.index(src), table.hosts.index(dst)]
    column, = np.flatnonzero((table.ends == ends).all(axis=1)) if len(
        table.ends) else (None,)
    return [(at_s, rate_bps, None if np.isnan(rtt_s) else rtt_s)
            for at_s, rate_bps, rtt_s in zip(
                table.times_s[:, column], table.rates_bps[:, column],
                table.rtts_s[:, column]) if not np.isnan(at_s)]
