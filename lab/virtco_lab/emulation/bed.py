# SPDX-License-Identifier: Apache-2.0

"""Description of a bed: hosts, links, switches and services, as one value.

:class:`.fabric.Fabric` builds the network that it describes, and
:class:`.testbed.Testbed` starts the services on top of it.
"""

from collections.abc import Mapping
import dataclasses
import pathlib

from virtco.topology import tree
from virtco_lab.emulation import process


@dataclasses.dataclass(frozen=True, slots=True)
class Bed:
    """Description of a bed.

    :ivar rates_bps: rate of each hypervisor's cable, both ways, by its name.
    :ivar plane: switches above the hypervisors; each has a short name and
        both rates. Hypervisors below none are cabled to the core.
    :ivar bucket_bytes: token buckets of the cables; None for as little as a
        late timer needs.
    :ivar queue_s: longest time that a packet queues at a cable; None for
        queues that hold the windows of all flows of a hypervisor.
    :ivar segments: most segments in a super-packet of a hypervisor; None for
        the kernel's limit.
    :ivar pairs_bps: rates of pairs of hypervisors, by (sender, receiver).
    :ivar link_bps: rate of every cable as controller and edge modules are
        told.
    :ivar slots: slots of each hypervisor, 1 vCPU and 512 MB each.
    :ivar has_nova: else servers are placed by asking the controller.
    :ivar has_page: whether the controller's live page can be seen.
    :ivar controller: options of the controller instead of the testbed's.
    :ivar logs: directory for the logs of all processes.
    """

    rates_bps: Mapping[str, float]
    plane: tree.Plane = tree.Plane()
    bucket_bytes: int | None = None
    queue_s: float | None = None
    segments: int | None = None
    pairs_bps: Mapping[tuple[str, str], float] = dataclasses.field(
        default_factory=dict)
    link_bps: float = 0.0
    slots: int = 1
    has_nova: bool = False
    has_page: bool = False
    controller: process.Options = dataclasses.field(default_factory=dict)
    logs: pathlib.Path = pathlib.Path('logs')

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hypervisors."""
        return tuple(self.rates_bps)

    @property
    def racks(self) -> dict[str, str]:
        """Name of the switch next to each hypervisor that has one."""
        return {host: above[0].name for host, above in self.plane.chains()}


def host_names(n_hosts: int) -> tuple[str, ...]:
    """Return the hypervisors' usual names: ``h0``, ``h1`` and so on."""
    return tuple(f'h{number}' for number in range(n_hosts))
