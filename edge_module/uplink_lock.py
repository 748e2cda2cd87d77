# SPDX-License-Identifier: Apache-2.0

"""Lock by which an uplink has one edge module.

The lock is the name of an abstract socket. Such a name belongs to the network
namespace, as the uplink does, and is free when its process has ended, however
that ended.
"""

from collections.abc import Iterator
import contextlib
import socket

from oslo_config import cfg

from virtco import exception


@contextlib.contextmanager
def hold(conf: cfg.ConfigOpts) -> Iterator[None]:
    """Keep other edge modules from the configured uplinks.

    :raises virtco.exception.UplinkTaken: where another process keeps one.
    """
    options = conf.edge
    with contextlib.ExitStack() as stack:
        for dev in {options.uplink_dev, *options.further_uplinks}:
            sock = stack.enter_context(
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            try:
                sock.bind(f'\0virtco-edge:{dev}')
            except OSError as error:
                raise exception.UplinkTaken(dev=dev) from error
        yield


def is_held(conf: cfg.ConfigOpts) -> bool:
    """Tell whether an edge module runs with one of the uplinks."""
    try:
        with hold(conf):
            return False
    except exception.UplinkTaken:
        return True
