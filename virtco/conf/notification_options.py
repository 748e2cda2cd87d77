# SPDX-License-Identifier: Apache-2.0

"""Options of the listener for Nova's notifications."""

from oslo_config import cfg

GROUP = 'notifications'

OPTS = [
    cfg.MultiStrOpt('transport_url', default=[], secret=True, help="""
Message bus of Nova's notifications, such as
``rabbit://user:password@host:5672/``. Default: no listener; Nova's
notification driver ``virtco_http`` can post to ``/v1/notifications`` instead.

Give it once per bus where each of Nova's cells has its own, because the
computes of a cell send their notifications there. The values are the
``transport_url`` of the cells, as ``nova-manage cell_v2 list_cells --verbose``
shows them, or ``[oslo_messaging_notifications] transport_url`` where nova.conf
has one. Include the bus of the super conductor, which has the notifications of
builds without a host.
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
Name of the pool of listeners. Controllers with the same name share the
messages; other consumers of the topic get their own copies.
"""),
]
