# SPDX-License-Identifier: Apache-2.0

"""Hypervisors below a tree of switches, with controller and edge modules.

There are neither VMs nor Nova: only what hypervisors measure of each other.
The controller is not told the tree.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import pathlib
import tempfile
import time
from typing import TypeVar

from virtco.client import v1
from virtco.topology import tree
from virtco.wire import check as wire
from virtco_lab.emulation import fabric as fabric_module
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import process
from virtco_lab.emulation import services
from virtco_lab.emulation import switches

POLL_S = 0.2
T = TypeVar('T')


class Cloud:
    """Controller and edge modules on hosts without VMs.

    :ivar log: log of the controller.
    """

    def __init__(self, fabric: fabric_module.Fabric,
                 children: Sequence[process.Child], log: pathlib.Path):
        self.fabric = fabric
        self.log = log
        self._children = children
        self._client = v1.Client(services.controller_url(fabric))

    def ask(self, function: Callable[[v1.Client], T]) -> T:
        """Call the controller's API from where it can be reached."""
        return namespaces.call(self.fabric.control,
                               lambda: function(self._client))

    def check(self, hosts: Sequence[str] | None = None,
              purpose: str = 'check') -> wire.Check:
        """Run a check or discovery of these hosts, or of all, to its end."""
        begun = self.ask(lambda client: client.check(hosts, purpose=purpose))

        def state() -> wire.Check:
            return self.ask(lambda client: client.check_state(
                begun.check_id))

        process.wait_until(
            lambda: state().state not in ('waiting', 'running'),
            f'the end of the {purpose}', self._children, interval_s=POLL_S,
            progress=lambda: state().n_rounds_done)
        return state()

    def wait_for_hosts(self) -> None:
        """Wait until all edge modules have reported."""
        def have() -> int:
            with contextlib.suppress(Exception):
                return len(self.ask(lambda client: client.hosts()))
            return 0

        process.wait_until(
            lambda: have() == len(self.fabric.hypervisors),
            'all edge modules', self._children, interval_s=POLL_S)
        # Their first reports are of before they could be reached.
        time.sleep(POLL_S)


@contextlib.contextmanager
def cloud(plane: tree.Plane, link_bps: float, debug: bool = False
          ) -> Iterator[Cloud]:
    """Build it, and take all of it away again.

    :param plane: the tree above the hosts, see :func:`.switches.grow`.
    :param link_bps: rate of each host's link.
    :param debug: let the controller log all that it measures.
    """
    children: list[process.Child] = []
    with (tempfile.TemporaryDirectory() as folder, fabric_module.built(
            dict.fromkeys(plane.hosts(), link_bps)) as fabric):
        state = pathlib.Path(folder)
        switches.grow(fabric, plane)
        children.append(services.start_controller(
            fabric, state, state, debug,
            {'probe': {'enabled': False}}))
        children += [services.start_edge(fabric, host, link_bps, state,
                                         state)
                     for host in fabric.hypervisors]
        made = Cloud(fabric, children, state / 'controller.log')
        made.wait_for_hosts()
        try:
            yield made
        finally:
            for child in reversed(children):
                child.stop()
