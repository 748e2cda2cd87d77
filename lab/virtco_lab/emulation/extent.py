# SPDX-License-Identifier: Apache-2.0

"""The extent of a figure on the emulated testbed."""

from collections.abc import Callable
import dataclasses

from virtco_lab.emulation import display
from virtco_lab.sim.figures import outcome


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """How much to run.

    :ivar rate_bps: of the fastest links.
    :ivar seeds: of random draws; a figure that draws once takes the last.
    :ivar short: as little as shows that it works.
    """

    rate_bps: float
    seeds: tuple[int, ...] = (0,)
    short: bool = False


#: Measures and shows a figure.
Figure = Callable[[Options, display.Display], outcome.Outcome]
