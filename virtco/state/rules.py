# SPDX-License-Identifier: Apache-2.0

"""How what is known is counted, as an operator configures it. Pure."""

import dataclasses
import math

from virtco.scheduling import endings
from virtco.state import schedule_input as snapshots
from virtco.state import uplink_rates


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """See ``[scheduler]``, ``[probe]`` and ``[placement]``.

    :ivar half_life_s: of the moving average of background traffic, five
        times the default interval of reports.
    """

    half_life_s: float = 5.0
    wire_overhead_fraction: float = 0.0
    ending: endings.Rules = endings.Rules()
    uplink: uplink_rates.Rules = uplink_rates.Rules()
    share: snapshots.Share = snapshots.Share()
    max_debt_bytes: float = math.inf

    @property
    def wire_factor(self) -> float:
        """Bytes on the wire per byte of payload."""
        return 1 + self.wire_overhead_fraction

    @property
    def payload_fraction(self) -> float:
        """Payload of coflows per bit of a link."""
        return (1 - self.share.default_share) / self.wire_factor
