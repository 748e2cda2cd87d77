# SPDX-License-Identifier: Apache-2.0

"""Model and Nova beside each other: what is repaired, what is left alone."""


import pytest

from virtco.db import groups as db_groups
from virtco.follow import auditor
from virtco.follow import notifications
from virtco.follow import nova

GONE = notifications.Gone('u')
RUNNING, RESERVED, VACANT = (
    db_groups.Believed('u', 'p', state, host) for state, host in (
        ('running', 'h1'), ('reserved', 'h1'), ('vacant', None)))


def server(status='ACTIVE', host='h1', **kwargs):
    return nova.Server('u', status, host, **kwargs)


@pytest.mark.parametrize(('vm', 'found', 'change'), [
    (RUNNING, server(), None),
    (RUNNING, None, GONE),
    (RESERVED, None, GONE),
    (RUNNING, server('SOFT_DELETED'), GONE),
    (RUNNING, server('DELETED', None), GONE),
    (RUNNING, server(host='h2'), notifications.Built('u', 'h2')),
    (RUNNING, server('VERIFY_RESIZE', 'h2'), notifications.Built('u', 'h2')),
    (RESERVED, server(), notifications.Built('u', 'h1')),
    (RUNNING, server(addresses=('1', '2')),
     notifications.Built('u', 'h1', addresses=('1', '2'))),
    (RUNNING._replace(addresses='1 2'),
     server(addresses=('1', '2')), None),
    # Nova has not asked Neutron yet.
    (RUNNING._replace(addresses='1'), server(), None),
    (RESERVED, server('SHUTOFF', 'h2'), notifications.Built('u', 'h2')),
    (VACANT, server(host='h3'), notifications.Built('u', 'h3')),
    (RUNNING, server('SHELVED_OFFLOADED', None), notifications.OffHost('u')),
    (VACANT, server('SHELVED_OFFLOADED', None), None),
    # Nova works on it: what it says now will not last.
    (RESERVED, server('BUILD', None), None),
    (RUNNING, server('MIGRATING', 'h2', is_changing=True), None),
    (RUNNING, server('ACTIVE', 'h2', is_changing=True), None),
    # Its cell is down.
    (RUNNING, server('UNKNOWN', None), None),
    (RESERVED, server('ERROR', None, fault='full'),
     notifications.Gone('u', 'full')),
    (RESERVED, server('ERROR', 'h1', fault='full'),
     notifications.Gone('u', 'full')),
    (RUNNING, server('ERROR', None), notifications.Gone('u', 'in ERROR')),
    # It ran, so it may run on although it could not be moved.
    (RUNNING, server('ERROR', 'h1', fault='no migration'), None),
    (RUNNING, server('ERROR', 'h2'), notifications.Built('u', 'h2')),
])
def test_what_follows(vm, found, change):
    assert auditor.change_of(vm, found) == change


LIMITED = RUNNING._replace(egress_limit_bps=5e6)


@pytest.mark.parametrize(('vm', 'limits_bps', 'is_new'), [
    (RUNNING, (), False), (RUNNING, (None, None), False),
    (RUNNING, (5e6, None), True), (RUNNING, (None, 5e6), True),
    (LIMITED, (), False), (LIMITED, (5e6, None), False),
    (LIMITED, (None, None), True), (LIMITED, (5e6, 5e6), True)])
def test_limits_that_differ_are_told(vm, limits_bps, is_new):
    assert auditor.change_of(vm, server(), limits_bps) == (
        notifications.Built('u', 'h1', limits_bps=limits_bps)
        if is_new else None)
