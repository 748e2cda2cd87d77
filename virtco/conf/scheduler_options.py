# SPDX-License-Identifier: Apache-2.0

"""Options of the coflow scheduler as the controller runs it."""

from oslo_config import cfg

GROUP = 'scheduler'

ORDERS = [
    ('mrtf', 'minimum remaining time first, with preemption'),
    ('mrtf+swap', 'mrtf, improved by swaps on the sum of the prefix CCTs'),
    ('sebf', 'smallest effective bottleneck first'),
    ('sincronia', 'last those that cost least at the fullest link'),
    ('fifo', 'in order of arrival'),
    ('fifo+', 'in order of arrival, a small share to those behind'),
    ('priority', 'by the class an operator gave, then mrtf'),
    ('weighted-fair', 'by the weight an operator gave'),
    ('fair', 'no coflow classes at all: TCP shares per flow'),
    ('own', 'by the installed policy of the entry points virtco.policies'),
]
CEILS = [
    ('rate', 'a coflow sends at its allocated rate, never more'),
    ('link', 'a coflow may use what others leave idle'),
]

OPTS = [
    cfg.StrOpt('order', default='mrtf', choices=ORDERS, help="""
Order in which coflows are served. ``PATCH /v1/settings`` changes it at run
time and persistently; this option is the value before.
"""),
    cfg.StrOpt('ceil', default='link', choices=CEILS, help="""
Upper limit of a coflow's class at the edge; a run-time setting like ``order``.
With ``link`` the allocated rate is guaranteed, and idle bandwidth is lent in
the coflows' order, up to the bandwidth that earlier coflows leave of the
receiver's link. With ``rate`` no coflow sends faster than its allocated rate,
so every error of a hint costs time.
"""),
    cfg.FloatOpt('theta_s', default=30, min=0, help="""
Time without progress, in seconds, after which a coflow with bytes to send is
served first, for a tenth of this time; 0 switches this off. Progress is the
number of bytes that the coflow would send alone in that tenth, which is more
than the 1 % of the uplink that the last coflows share.
"""),
    cfg.FloatOpt('beta', default=-1, min=-1, max=10, help="""
Over-estimation of sizes: a coflow is scheduled as if it were ``1 + beta``
times as large, so that traffic of low priority beside it does not make it
late. -1 uses the observed share of such traffic on the uplinks.
"""),
    cfg.FloatOpt('wire_overhead_fraction', default=0.0456, min=0, max=1,
                 help="""
Headers per byte of payload. The qdiscs count bytes on the wire, the matrices
have bytes of payload: TCP with 1500-byte packets sends 1514 bytes for each
1448. Too small a value ends coflows early (their last bytes then share the
default class), too large a value ends them late, see ``quiet_s``.
"""),
    cfg.FloatOpt('quiet_s', default=1.0, min=0.01, max=3600, help="""
Time without progress, in seconds, after which a coflow counts as idle: busy
ones are served before it, until its counters move again.
"""),
    cfg.FloatOpt('max_debt_bytes', default=1e12, min=0, help="""
Largest debt of a project, so that one large mistake does not last for ever; 0
switches debts off. Bytes beyond one and a half times the hint of a coflow are
a debt of its project: the sizes of its hints are not used until its coflows
have sent as many hinted bytes. Related: ``virtco project set PROJECT
--forgive``.
"""),
    cfg.FloatOpt('default_share', default=0.02, min=0.001, max=0.9, help="""
Share of each uplink that is guaranteed to traffic without a coflow.
"""),
    cfg.FloatOpt('interval_s', default=0.2, min=0.01, max=60, help="""
Shortest time between two computations of policies that only counted bytes
cause, in seconds. Arrivals, departures and settings cause one immediately.
"""),
    cfg.BoolOpt('protect_receivers', default=False, help="""
Include the received pairs in the policies, so that edge modules with ``[edge]
protect_receiver`` can serve coflows first at the receiver. Policies become up
to twice as long.
"""),
    cfg.BoolOpt('limit_senders', default=True, help="""
Limit traffic without a coflow to hosts where coflows arrive, at the sending
hosts: together it gets the bandwidth that the coflows leave of the receiver's
link. Edge modules report the Ethernet addresses to which their VMs send, so
ports need their ``mac``. Nothing is limited with ``order = fair``.

Related options:

* ``default_share``, the least bandwidth for such traffic
"""),
    cfg.FloatOpt('policy_ttl_s', default=60, min=1, max=86400, help="""
Time for which an edge module keeps the whole policy while the controller is
away, in seconds. After it order and rates become shares of the link.
"""),
]
