# SPDX-License-Identifier: Apache-2.0

"""Tests that an edge module makes of its configuration and its host.

A start makes them and logs the problems; ``virtco-edge --check`` prints them.
"""

from collections.abc import Iterator
import socket
import tempfile

from oslo_config import cfg

from edge_module import edge_options as edge_conf
from edge_module.probe import probing
from virtco import configuration
from virtco import exception
from virtco.wire.health import Problem

#: A policy of some hundred coflows.
_SAVED_BYTES = 1 << 20


def problems(conf: cfg.ConfigOpts) -> Iterator[Problem]:
    """Find problems of options, uplinks, state and certificates."""
    options, auth = conf[edge_conf.EDGE], conf[edge_conf.AUTH]
    yield from configuration.unknown(
        conf, edge_conf.list_opts(), {'oslo.log': ('DEFAULT',)},
        (edge_conf.AUTH,), {})
    for dev in filter(None, (options.uplink_dev, *options.further_uplinks)):
        try:
            socket.if_nametoindex(dev)
        except OSError:
            yield Problem('VC-091', f'{dev}: no such device')
    yield from _state(options.state_dir)
    yield from configuration.certificates(
        edge_conf.AUTH, auth.certfile, auth.keyfile, (auth.cafile,))


def listeners(conf: cfg.ConfigOpts) -> Iterator[Problem]:
    """Find addresses of metrics and packet trains that are taken."""
    addresses = []
    if conf.edge.metrics_port:
        addresses.append((str(conf.edge.metrics_address),
                          int(conf.edge.metrics_port)))
    if conf.probe.enabled:
        addresses.append((probing.address_of(conf), int(conf.probe.port)))
    return configuration.taken(addresses)


def _state(path: str) -> Iterator[Problem]:
    """Find out whether a policy can be saved, without saving one."""
    try:
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(bytes(_SAVED_BYTES))
            file.flush()
    except FileNotFoundError:
        return  # a start makes it
    except OSError as error:
        yield Problem('VC-093', f'[edge] state_dir {path}: '
                      f'{exception.reason(error)}')
