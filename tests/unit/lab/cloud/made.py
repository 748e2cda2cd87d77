# SPDX-License-Identifier: Apache-2.0

"""A layout of a cloud that is not up."""

from virtco_lab.cloud import layout as layouts


def layout(home, **changes):
    return layouts.Layout(**{
        'run': 'abc123', 'address': '127.0.0.1',
        'computes': ('compute1', 'compute2'), 'slots': 3, 'rate_bps': 5e7,
        'pid': 42, 'home': home} | changes)
