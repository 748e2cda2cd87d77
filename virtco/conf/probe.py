# SPDX-License-Identifier: Apache-2.0

"""Options of the bandwidth measurements between hypervisors."""

from typing import Any

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
    cfg.IntOpt('max_concurrent_trains', default=128, min=1, max=100_000,
               help="""
Most measurements at the same time. No host takes part in two of them, and they
do not exceed the uplinks above the hosts where the topology is known.
"""),
    cfg.IntOpt('all_pairs_hosts', default=256, min=2, max=1000, help="""
Up to so many hosts are measured towards all others. With more, each host gets
``readings`` measurements per direction within ``freshness_s``.
"""),
    cfg.IntOpt('readings', default=8, min=2, max=32, help="""
Measurements per host and direction when there are more hosts than
``all_pairs_hosts``.
"""),
    cfg.FloatOpt('freshness_s', default=1800, min=1, help="""
A measurement younger than this is not repeated, in seconds. Hosts for which
VMs are planned are measured first, and again after a quarter of that time.
"""),
    cfg.FloatOpt('max_age_s', default=7200, min=1, help="""
A measurement older than this is not used any more, in seconds: the speed of
the link is.

Related options:

* ``[probe] freshness_s``, which should be shorter
"""),
    cfg.BoolOpt('check_at_launch', default=False, help="""
Check the hosts of a new group right after it is planned, as ``virtco measure
check --group`` does, without those that were checked within ``freshness_s``.
The VMs do not wait for it; what is found counts for later placements and
policies.

Related options:

* ``[probe] freshness_s``
"""),
    cfg.BoolOpt('check_on_hint', default=False, help="""
Check the hosts of a group right after it is planned where its tenant asks for
it with the hint ``virtco:preflight``. Off, the hint does nothing but leave a
note. On, tenants make hosts measure: a host that was checked within
``freshness_s`` is left out, at most 16 checks wait at a time, and the VMs do
not wait for it.

Related options:

* ``[probe] check_at_launch``, which needs no hint
* ``[probe] freshness_s``
"""),
    cfg.IntOpt('history_readings', default=10, min=3, max=100, help="""
Measurements that are kept of each pair of hosts, in memory and in the
database. The long-term rate of a pair is estimated from them; the RPCA paper
takes ten.
"""),
    cfg.FloatOpt('history_retention_s', default=604800, min=60, help="""
A measurement older than this is deleted, in seconds.

Related options:

* ``[probe] max_age_s``, up to which the newest one of a pair counts for
  placements
"""),
    cfg.BoolOpt('use_pairs', default=True, help="""
Plan by the rate of a pair of hosts where it is more than 10 % below what both
hosts' own rates and the topology's uplinks explain. Off: by hosts and uplinks
alone.
"""),
    cfg.FloatOpt('timeout_s', default=5, min=0.1, max=600, help="""
Time after which an unanswered measurement is given up, in seconds.
"""),
    cfg.IntOpt('bursts', default=10, min=1, max=1000, help="""
Bursts in one packet train (Choreo section 3.1). Bursts times packets times
``packet_bytes`` is what one measurement sends.
"""),
    cfg.IntOpt('packets', default=200, min=2, max=5000, help="""
Packets in each burst, sent back to back.
"""),
    cfg.IntOpt('packet_bytes', default=1472, min=64, max=8972, help="""
Payload of one packet, in bytes.
"""),
    cfg.FloatOpt('tolerance_fraction', default=0.1, min=0, max=1, help="""
A measured rate within this fraction of the link's speed confirms the link's
speed, which is then used.
"""),
    cfg.BoolOpt('only_idle', default=True, help="""
Do not measure hosts on which a coflow is busy: the train would disturb it and
see what it leaves.
"""),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[str, list[Any]]:
    return {GROUP: OPTS}
