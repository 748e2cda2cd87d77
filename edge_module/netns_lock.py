# SPDX-License-Identifier: Apache-2.0

"""Lock by which a network namespace has one edge module.

Uplinks, their queues and the one table of nftables belong to the network
namespace. The lock is a group of nfnetlink_log, which nothing logs to: the
kernel keeps groups by namespace, gives each to one socket of a process with
CAP_NET_ADMIN there, and frees it when this process has ended, however that
ended. A name that everybody may take, such as that of a socket, would let any
user of the host keep the edge module from starting.
"""

from collections.abc import Iterator
import contextlib
import errno
import os
import struct

from oslo_log import log as logging

from edge_module.privileged import choice
from edge_module.privileged import kernel_calls as kernel
from edge_module.qdisc import wire
from virtco import exception

LOG = logging.getLogger(__name__)

_NETFILTER = 12
# Layouts of linux/netfilter/nfnetlink.h and nfnetlink_log.h.
_LOG_CONFIG, _COMMAND, _BIND = 4 << 8 | 1, 1, b'\x01'
_GROUP = 0x7672
_TAKE = _LOG_CONFIG, 0, struct.pack('>BBH', 0, 0, _GROUP) + wire.attr(
    _COMMAND, _BIND)


@contextlib.contextmanager
def hold() -> Iterator[None]:
    """Keep other edge modules out of this network namespace.

    :raises virtco.exception.Invalid: without the privilege for any change.
    :raises virtco.exception.AlreadyRuns: while another process keeps it.
    """
    if not choice.may_administer():
        raise exception.Invalid(field='privileges', value='none',
                                limit='root, or CAP_NET_ADMIN')
    with kernel.open_socket(_NETFILTER) as sock:
        # The helper would keep the lock of an agent that has ended.
        os.register_at_fork(after_in_child=sock.close)
        refused = kernel.send_over(sock, [_TAKE])
        if errno.EPERM in refused:
            raise exception.AlreadyRuns
        for code in refused:
            LOG.warning('Nothing keeps a second edge module out: the kernel '
                        'has no nfnetlink_log (%s)', os.strerror(code))
        yield


def is_held() -> bool:
    """Tell whether an edge module runs in this network namespace."""
    try:
        with hold():
            return False
    except exception.AlreadyRuns:
        return True
