# SPDX-License-Identifier: Apache-2.0

"""Options of the bandwidth measurements between hypervisors."""

from oslo_config import cfg

GROUP = 'probe'

OPTS = [
    cfg.BoolOpt('enabled', default=True, help="""
Let the edge modules measure each other with packet trains.
"""),
    cfg.FloatOpt('interval_s', default=1, min=0.05, max=86400, help="""
Time between two looks for pairs of hosts whose measurement is too old, in
seconds. 196 hosts measure all their pairs in about 400 looks.
"""),
    cfg.FloatOpt('max_link_share', default=0.01, min=0.0, max=1.0, help="""
Part of what a host's link carries in an hour that measurements may send over
it, and likewise receive. Within an hour they may take it at once.
"""),
    cfg.IntOpt('max_bytes_per_hour', min=1, help="""
Most bytes that all measurements together send within any hour. Default: no
limit but that of each link.
"""),
    cfg.FloatOpt('freshness_s', default=1800, min=1, help="""
A measurement younger than this is not repeated, in seconds. Hosts for which
VMs are planned are measured first, and again after a quarter of that time.
A measurement older than four times this is not used: the speed of the link is.
"""),
    cfg.StrOpt('check_groups', default='never', choices=[
        ('never', 'the hint ``virtco:preflight`` leaves a note'),
        ('hinted', 'groups whose tenant asks for it with that hint'),
        ('always', 'every new group')], help="""
Whether the hosts of a group are checked right after it is planned, as
``virtco measure check --group`` does. Hosts that were checked within
``freshness_s`` are left out, and at most 16 checks wait at a time. The VMs do
not wait for it; what is found counts for later placements and policies. With
``hinted`` tenants make hosts measure.

Related options:

* ``[probe] freshness_s``
"""),
    cfg.IntOpt('bursts', default=10, min=1, max=1000, help="""
Bursts in one packet train (Choreo section 3.1). Bursts times packets times
1472 bytes is what one measurement sends.
"""),
    cfg.IntOpt('packets', default=200, min=2, max=5000, help="""
Packets in each burst, sent back to back.
"""),
]
