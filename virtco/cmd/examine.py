# SPDX-License-Identifier: Apache-2.0

"""``virtco doctor --config-file``: tests a controller's configuration."""

import logging

import requests

from virtco import exception
from virtco import selftest
from virtco.api import listeners
from virtco.cmd import controller
from virtco.wire.health import Problem

_ANSWER_S = 5


def examine(path: str) -> list[Problem]:
    """Test a configuration file on this machine.

    Ports are left out where a controller serves by this file already.
    """
    for library in ('alembic', 'oslo_service', 'stevedore'):
        logging.getLogger(library).setLevel(logging.ERROR)
    try:
        conf = controller.make_conf(['--config-file', path],
                                    prog=controller.CONTROLLER.name)
    except exception.ConfigInvalid as error:
        return [Problem(error.code, str(error))]
    addresses = list(listeners.addresses(conf).values())
    if any(port and _is_served(host, port) for host, port in addresses):
        addresses = []
    else:
        addresses.append((str(conf.distributor.host or conf.api.host),
                          int(conf.distributor.port)))
    return list(selftest.before_start(conf, addresses))


def _is_served(host: str, port: int) -> bool:
    """Tell whether a controller answers there."""
    at = f'[{host}]' if ':' in host else host
    try:
        found = requests.get(f'http://{at}:{port}/health', timeout=_ANSWER_S)
        return 'status' in found.json()
    except (requests.RequestException, ValueError):
        return False
