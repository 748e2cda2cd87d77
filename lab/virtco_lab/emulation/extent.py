# SPDX-License-Identifier: Apache-2.0

"""The extent of a figure on the emulated testbed."""

from collections.abc import Callable
import dataclasses
import pathlib

from virtco_lab.emulation import cases
from virtco_lab.emulation import display as displays
from virtco_lab.sim.figures import outcome


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """How much to run.

    :ivar rate_bps: rate of the fastest links.
    :ivar seeds: seeds of random draws; a figure that is measured once has
        one.
    :ivar short: whether the smallest run is wanted that shows that it works.
    :ivar n_hosts: hypervisors of a test case.
    :ivar shapes: shapes of the matrices of test cases 1 to 3.
    :ivar directory: directory of the runs and the logs of a test case.
    :ivar display: display of the run's progress.
    """

    rate_bps: float
    seeds: tuple[int, ...] = (0,)
    short: bool = False
    n_hosts: int = 8
    shapes: tuple[str, ...] = ('medium',)
    directory: pathlib.Path = pathlib.Path('virtco-emulate-output')
    display: displays.Display = dataclasses.field(
        default_factory=displays.Display, compare=False)

    def say(self, text: str) -> None:
        """Print a line about the run."""
        self.display.say(text)

    @property
    def scale(self) -> cases.Scale:
        """Size of a test case's testbed."""
        return cases.Scale(self.n_hosts, self.rate_bps)

    def cells(self, case: str) -> list[cases.Cell]:
        """List the cells of a test case that are run."""
        wanted = cases.cells(case, self.shapes, self.scale)
        return wanted[-1:] if self.short else wanted


#: Measures and shows a figure.
Figure = Callable[[Options], outcome.Outcome]
