# SPDX-License-Identifier: Apache-2.0

"""Free resources of the cloud's hosts, read from placement and Nova."""

from collections.abc import Callable
from collections.abc import Mapping
import threading
import time
from typing import Any

from oslo_config import cfg

from virtco import exception
from virtco.follow import nova
from virtco.model import booking

#: Placement shows all classes of a provider since then.
PLACEMENT_VERSION = '1.27'
CLASSES = 'VCPU', 'MEMORY_MB', 'DISK_GB'
#: An answer is good for so long.
FRESH_S = 15.0


class Inventory:
    """Two questions for all hosts: one to Nova, one to placement."""

    def __init__(self, conf: cfg.ConfigOpts,
                 clock: Callable[[], float] = time.monotonic):
        """Log in.

        :raises virtco.exception.Invalid: for credentials that cannot be.
        """
        self._nova = nova.Nova(conf)
        self._placement = nova.adapter_of(
            conf, self._nova.session, 'placement',
            conf.nova.placement_endpoint_override, PLACEMENT_VERSION)
        self._clock = clock
        self._lock = threading.Lock()
        self._free: dict[str, booking.Vector] = {}
        self._since_s = self._failed_s = float('-inf')
        self._why = ''

    def free(self) -> Mapping[str, booking.Vector]:
        """Return the vCPUs, MB of memory and GB of disk left on each host that
        takes VMs, overcommitment included.

        Those who come while a question is under way wait for its answer, and
        hear of its failure, too.

        :raises virtco.exception.NovaUnavailable:
        """
        came_s = self._clock()
        with self._lock:
            if came_s <= self._failed_s:
                raise exception.NovaUnavailable(why=self._why)
            if self._clock() - self._since_s > FRESH_S:
                try:
                    self._free = self._ask()
                except exception.NovaUnavailable as error:
                    self._failed_s = self._clock()
                    self._why = error.kwargs['why']
                    raise
                self._since_s = self._clock()
            return self._free

    def _ask(self) -> dict[str, booking.Vector]:
        """Ask Nova and placement for the free resources of each host."""
        hosts = self._nova.hypervisors()
        with nova.translated():
            response = self._placement.get(
                '/allocation_candidates', params={'resources': 'VCPU:1'})
            response.raise_for_status()
            found = response.json()['provider_summaries']
            return {host: _left(found[uuid]['resources'])
                    for uuid, host in hosts.items() if uuid in found}


def _left(resources: Mapping[str, Mapping[str, Any]]) -> booking.Vector:
    """Return the resources that placement shows as free."""
    nothing = {'capacity': 0.0, 'used': 0.0}
    found = [resources.get(name, nothing) for name in CLASSES]
    return tuple(max(0.0, float(one['capacity']) - float(one['used']))
                 for one in found)
