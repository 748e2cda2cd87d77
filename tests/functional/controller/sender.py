# SPDX-License-Identifier: Apache-2.0

"""Sends notifications to a message bus, one per line of its input; tries again
so often, -1 = until it is taken.
"""

import json
import sys

from oslo_config import cfg
import oslo_messaging


def main():
    conf = cfg.ConfigOpts()
    conf([])
    oslo_messaging.set_transport_defaults('nova')
    notifier = oslo_messaging.Notifier(
        oslo_messaging.get_notification_transport(conf, sys.argv[1]),
        'nova-compute:h1', driver='messagingv2',
        topics=['versioned_notifications'],
        retry=int(sys.argv[2]))
    for line in sys.stdin:
        priority, event_type, payload = json.loads(line)
        getattr(notifier, priority)({}, event_type, payload)
        print('sent', flush=True)


if __name__ == '__main__':
    main()
