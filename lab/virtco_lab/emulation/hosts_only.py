# SPDX-License-Identifier: Apache-2.0

"""Hypervisors below a tree of switches, with controller and edge modules.

There are neither VMs nor Nova: only what hypervisors measure of each other.
The controller is not told the tree.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import pathlib
import tempfile
import time

from virtco.topology import tree
from virtco.wire import check as wire
from virtco_lab.emulation import bed
from virtco_lab.emulation import testbed

#: Time after which a host's report tells where it is reached.
_REACHED_S = 0.2


class Cloud(testbed.Testbed):
    """Controller and edge modules on hosts without VMs."""

    def check(self, hosts: Sequence[str] | None = None,
              purpose: str = 'check') -> wire.Check:
        """Run a check or discovery of these hosts, or of all, to its end."""
        begun = self.ask(wire.ORDER, hosts, purpose=purpose)

        def state() -> wire.Check:
            return self.ask(wire.SHOW, begun.check_id)

        self._wait(lambda: state().state not in ('waiting', 'running'),
                   f'the end of the {purpose}', self._planner,
                   lambda: state().n_rounds_done)
        return state()


@contextlib.contextmanager
def cloud(plane: tree.Plane, link_bps: float, debug: bool = False
          ) -> Iterator[Cloud]:
    """Build it, and take all of it away again.

    :param plane: the tree above the hosts, see :class:`.bed.Bed`.
    :param link_bps: rate of each host's link.
    :param debug: let the controller log all that it measures.
    """
    with (tempfile.TemporaryDirectory() as folder, Cloud(bed.Bed(
            dict.fromkeys(plane.hosts(), link_bps), plane, link_bps=link_bps,
            controller={'DEFAULT': {'debug': debug},
                        'probe': {'enabled': False}},
            logs=pathlib.Path(folder))) as made):
        time.sleep(_REACHED_S)
        yield made
