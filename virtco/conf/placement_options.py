# SPDX-License-Identifier: Apache-2.0

"""Options of the planner as the controller runs it."""

from oslo_config import cfg

GROUP = 'placement'

PLANNERS = [
    ('virtco', 'relaxation, rounding and search over all active coflows'),
    ('virtco-printed', 'Algorithm 2 of the paper on residual bandwidth'),
    ('spread', 'no two VMs of a group on a host while hosts last'),
    ('min-cut', 'strong traffic-aware placement, the traffic of a group only'),
]
OBJECTIVES = [
    ('online', 'sum of the completion times of all active coflows'),
    ('isolated', 'completion time of the newcomer alone'),
    ('joint', 'the sum over all coflows that wait together, nobody else'),
]

MODES = [
    ('enforce', "rank Nova's hosts and shape at the edges"),
    ('shadow', 'decide, log and count, and change nothing'),
]

OPTS = [
    cfg.StrOpt('mode', default='enforce', choices=MODES, help="""
Whether decisions are carried out.

With ``shadow`` every group is planned and stored as usual, but Nova gets a
neutral answer and uses its own order, and edge modules get no classes, as with
``[scheduler] order = fair``. When a coflow ends, the log and
``virtco_shadow_saved_seconds`` compare its measured CCT with the planned one.
All processes of a controller need the same value.
"""),
    cfg.StrOpt('planner', default='virtco', choices=PLANNERS, help="""
Planner that places the groups. ``PATCH /v1/settings`` changes it at run time
and persistently; this option is the value before.
"""),
    cfg.StrOpt('objective', default='online', choices=OBJECTIVES, help="""
Objective that a placement minimises; a run-time setting like ``planner``.
"""),
    cfg.FloatOpt('budget_s', default=0.25, min=0.001, max=60, help="""
Longest time of the search for one group, in seconds.

Related options:

* ``[placement] deadline_s``
"""),
    cfg.FloatOpt('deadline_s', default=0.7, min=0.05, max=120, help="""
Longest time until a placement is answered, in seconds; the answer is neutral
if the plan is not ready.

Nova stops waiting after its own ``[virtco] timeout_ms``, so this should be
shorter.
"""),
    cfg.FloatOpt('window_ms', default=0, min=0, max=100, help="""
Time for which a new group waits for other new groups, in milliseconds; all of
them are planned together. 0 plans each group immediately. The answer for every
new group is later by this time, which counts for ``deadline_s``. Only groups
whose requests reach the same controller process are planned together.
"""),
    cfg.FloatOpt('reservation_ttl_s', default=300, min=1, max=86400, help="""
Time for which the planned host of a VM stays reserved, in seconds, if Nova
does not report that the VM was built.
"""),
    cfg.FloatOpt('default_link_bps', default=1e9, min=1e3, help="""
Rate in bits per second of an uplink without a measurement and a known speed.
"""),
]
