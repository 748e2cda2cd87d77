# SPDX-License-Identifier: Apache-2.0

"""Options of the coflow scheduler as the controller runs it."""

from oslo_config import cfg

GROUP = 'scheduler'

ORDERS = [
    ('mrtf', 'minimum remaining time first, with preemption'),
    ('mrtf+swap', 'mrtf, improved by swaps on the sum of the prefix CCTs'),
    ('sebf', 'smallest effective bottleneck first'),
    ('fifo', 'in order of arrival'),
    ('fifo+', 'in order of arrival, a small share to those behind'),
    ('priority', 'by the class an operator gave, then mrtf'),
    ('weighted-fair', 'by the weight an operator gave'),
    ('fair', 'no coflow classes at all: TCP shares per flow'),
]
CEILS = [
    ('rate', 'a coflow sends at its allocated rate, never more'),
    ('link', 'a coflow may use what others leave idle'),
]

OPTS = [
    cfg.StrOpt('order', default='mrtf', choices=ORDERS, help="""
Order in which coflows are served. ``PATCH /v1/settings`` changes it at run
time and is remembered over restarts; this is its value until then.
"""),
    cfg.StrOpt('ceil', default='link', choices=CEILS, help="""
Upper limit of a coflow's class at the edge; a run-time setting like
``order``. With ``link`` the allocated rate is a guarantee, and what others
leave idle is lent in the coflows' order, within what earlier coflows leave of
the receiver's link. With ``rate`` nobody sends more than was allocated, so
that every error of a hint is paid for in time.
"""),
    cfg.FloatOpt('theta_s', default=30, min=0, help="""
A coflow that has something to send and made no progress for so many seconds
goes to the front for a tenth of them; 0 turns it off. Progress is what it
would send alone in that tenth, which is more than the 1 % of the uplink that
the last coflows share.
"""),
    cfg.FloatOpt('beta', default=-1, min=-1, max=10, help="""
Over-estimation of sizes: a coflow is scheduled as if it were ``1 + beta``
times as large, so that traffic of low priority beside it does not make it
late. -1 takes the observed share of such traffic on the uplinks.
"""),
    cfg.FloatOpt('wire_overhead_fraction', default=0.0456, min=0, max=1,
                 help="""
Headers per byte of payload. The qdiscs count bytes on the wire, the matrices
name bytes of payload: TCP with 1500-byte packets sends 1514 bytes for each
1448. Too small a value ends coflows early (their last bytes then share the
default class), too large a value ends them late, see ``quiet_s``.
"""),
    cfg.FloatOpt('quiet_s', default=1.0, min=0.01, max=3600, help="""
Time without progress, in seconds, after which a coflow counts as idle: busy
ones are served before it, until its counters move again.
"""),
    cfg.FloatOpt('max_debt_bytes', default=1e12, min=0, help="""
What a coflow sends beyond its hint by more than a half its project owes: the
sizes of its coflows are not believed until they have sent as many bytes that
were hinted. This is the most that a project can owe, so that
one grave mistake does not last for ever; 0 turns debts off. Related:
``virtco project set PROJECT --forgive``.
"""),
    cfg.FloatOpt('default_share', default=0.02, min=0.001, max=0.9, help="""
Share of each uplink guaranteed to everything that is not a coflow.
"""),
    cfg.FloatOpt('interval_s', default=0.2, min=0.01, max=60, help="""
Shortest time, in seconds, between two computations that were caused by
counted bytes alone. Arrivals, departures and settings count at once.
"""),
    cfg.BoolOpt('protect_receivers', default=False, help="""
Tell edge modules also which pairs they receive, so that those with ``[edge]
protect_receiver`` can serve coflows first where they arrive. Policies become
up to twice as long.
"""),
    cfg.BoolOpt('limit_senders', default=True, help="""
Limit what VMs send to hosts where coflows arrive and belongs to no coflow, at
the hosts that send it: together they get what the coflows leave of the
receiver's link. Edge modules tell to which Ethernet addresses their VMs send,
so ports need their ``mac``. Nothing is limited with ``order = fair``.

Related options:

* ``default_share``, the least that is left to such traffic
"""),
    cfg.FloatOpt('policy_ttl_s', default=60, min=1, max=86400, help="""
How long an edge module holds on to the whole policy when the controller is
away, in seconds, before order and rates become shares.
"""),
]
