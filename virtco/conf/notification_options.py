# SPDX-License-Identifier: Apache-2.0

"""Options of the listener for Nova's notifications."""

from oslo_config import cfg

GROUP = 'notifications'

OPTS = [
    cfg.MultiStrOpt('transport_url', default=[], secret=True, help="""
Message bus of Nova's notifications, such as
``rabbit://user:password@host:5672/``. Unset: no listener, and the ``virtco``
notification driver in Nova posts to ``/v1/notifications`` instead.

Given once per bus where each of Nova's cells has its own, because its computes
send their notifications there. They are the ``transport_url`` of the cells, as
``nova-manage cell_v2 list_cells --verbose`` shows them, or
``[oslo_messaging_notifications] transport_url`` where nova.conf has one. The
bus of the super conductor is one of them: it tells of builds without a host.
"""),
    cfg.StrOpt('exchange', default='nova', help="""
Exchange that Nova sends to, its ``control_exchange``.
"""),
    cfg.ListOpt('topics', default=['versioned_notifications'], help="""
Topics to listen to, as in Nova's ``[notifications]
versioned_notifications_topics``. Give virtco a topic of its own when another
service consumes the default one.
"""),
    cfg.StrOpt('pool', help="""
Name of the pool of listeners. Several controllers with the same name share
the messages, and other consumers of the topic keep their copies.
"""),
]
