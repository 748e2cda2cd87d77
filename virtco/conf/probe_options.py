# SPDX-License-Identifier: Apache-2.0

"""Options of the bandwidth measurements between hypervisors."""

from oslo_config import cfg

GROUP = 'probe'

OPTS = [
    cfg.BoolOpt('enabled', default=True, help="""
Let the edge modules measure each other with packet trains.
"""),
    cfg.FloatOpt('interval_s', default=1, min=0.05, max=86400, help="""
Time between two searches for pairs of hosts whose measurement is too old, in
seconds. 196 hosts measure all their pairs in about 400 intervals.
"""),
    cfg.FloatOpt('max_link_share', default=0.01, min=0.0, max=1.0, help="""
Share of the bytes that a host's link carries in an hour, for measurements, in
each direction. They may use the bytes of an hour at once.
"""),
    cfg.IntOpt('max_bytes_per_hour', min=1, help="""
Most bytes of all measurements together within any hour. Default: only the
limit of each link.
"""),
    cfg.FloatOpt('freshness_s', default=1800, min=1, help="""
A measurement younger than this is not repeated, in seconds. Hosts for which
VMs are planned are measured first, and again after a quarter of that time.
Instead of a measurement older than four times this, the speed of the link is
used.
"""),
    cfg.StrOpt('check_groups', default='never', choices=[
        ('never', 'the hint ``virtco:preflight`` leaves a note'),
        ('hinted', 'groups whose tenant asks for it with that hint'),
        ('always', 'every new group')], help="""
Whether the hosts of a group are checked right after it is planned, as ``virtco
measure check --group`` does. Hosts that were checked within ``freshness_s``
are left out, and at most 16 checks wait at a time. The VMs do not wait for the
check; its findings affect later placements and policies. With ``hinted``
tenants can cause measurements.

Related options:

* ``[probe] freshness_s``
"""),
    cfg.IntOpt('bursts', default=10, min=1, max=1000, help="""
Bursts in one packet train (Choreo section 3.1). One measurement sends bursts
times packets times 1472 bytes.
"""),
    cfg.IntOpt('packets', default=200, min=2, max=5000, help="""
Packets in each burst, sent back to back.
"""),
]
