# SPDX-License-Identifier: Apache-2.0

"""What a row of :mod:`benchmarks.hostile` says."""

import dataclasses

LINK_BPS = 100e6
MARGIN = 0.02
# Payload of a full frame per byte on the wire.
GOODPUT = 1448 / 1538


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """See :mod:`benchmarks.hostile`.

    :ivar coflow_share_undefended: the same without the defence; None where
        nobody attacks.
    """

    attack: str
    host_ping_p99_ms: float
    host_requests_ok: float
    coflow_share: float
    unmanaged_share: float
    lost_packets: int
    seconds_unenforced: float
    defence: str = ''
    coflow_share_undefended: float | None = None
