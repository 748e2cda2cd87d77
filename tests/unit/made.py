# SPDX-License-Identifier: Apache-2.0

"""Reports and rates from plain values, for tests."""

import msgspec

from virtco.know import reports
from virtco.measure import hostrates

PLAIN = {'epoch': 'e', 'applied_generation': 0,
         'link': {'egress_bps': 1e9, 'ingress_bps': 2e9}, 'ports': [],
         'coflows': [], 'uplink_sent_bytes': 0}


def report(**values):
    """As a door decodes it; every field has a value here."""
    return msgspec.convert(PLAIN | values, reports.Report)


def measurement(src, dst, rate_bps, **values):
    return reports.Measurement(**{'probe_id': 'p', 'src': src, 'dst': dst,
                                  'rate_bps': rate_bps, **values})


def replaced(before, **values):
    """The report with some fields of plain values."""
    return msgspec.convert(msgspec.to_builtins(before) | values,
                           reports.Report)


def host_rates(pair_rates, now_s):
    """What these readings of pairs say of the hosts."""
    readings = hostrates.Readings()
    for one in pair_rates:
        readings.add(one)
    return readings.estimate(now_s)
