# SPDX-License-Identifier: Apache-2.0

"""Poor hosts found by checks: kept in the database, known to each process."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
import logging
import math
import threading

import msgspec

from virtco import metrics
from virtco.db import models
from virtco.db import orders
from virtco.measure import preflight
from virtco.state import state as states
from virtco.wire import check as wire

LOG = logging.getLogger(__name__)

UPLINKS = (preflight.Kind.UPLINK, preflight.Kind.DOWNLINK)
_DECODER = msgspec.json.Decoder(wire.Finding)


class Findings:
    """The findings in force."""

    def __init__(self, state: states.State, counts: metrics.Metrics,
                 clock: Callable[[], float]):
        self._state = state
        self._counts = counts
        self._clock = clock
        self._lock = threading.Lock()
        self._signature: orders.Signature | None = None
        self._held: tuple[wire.Finding, ...] = ()

    def all(self) -> tuple[wire.Finding, ...]:
        """Return the findings in force, with their times."""
        return self._held

    def refresh(self) -> bool:
        """Read the findings if somebody changed them; return whether so.

        :raises virtco.exception.DatabaseUnavailable:
        """
        with self._lock:
            with self._state.database.reader() as session:
                seen = orders.signature(session)
                if seen == self._signature:
                    return False
                rows = orders.findings(session)
            self._held = tuple(msgspec.structs.replace(
                _DECODER.decode(row.document), found=row.found_at)
                for row in rows)
            is_first, self._signature = self._signature is None, seen
            self._state.live.set_poor_uplinks(self._uplinks())
        self.show()
        if rows or not is_first:
            self._state.changed()
        return True

    def show(self) -> None:
        """Raise the alerts, where this process leads."""
        if self._state.tell_leader is None:
            self._counts.poor.replace({
                (one.subject, one.kind): one.rate_bps / one.expected_bps
                for one in self._held})

    def _uplinks(self) -> dict[str, tuple[float, float]]:
        """Map poor uplinks to their rates out and in, bit/s."""
        found: dict[str, list[float]] = {}
        for one in self._held:
            if one.kind in UPLINKS:
                rates_bps = found.setdefault(one.subject,
                                             [float('inf')] * 2)
                rates_bps[UPLINKS.index(one.kind)] = one.rate_bps
        return {subject: (out_bps, in_bps)
                for subject, (out_bps, in_bps) in found.items()}

    def conclude(self, subjects: Collection[str],
                 found: Iterable[wire.Finding]) -> None:
        """Replace the findings about the subjects."""
        found = list(found)
        for one in found:
            LOG.warning('Check: %s of %s: %.4g instead of %.4g Mbit/s',
                        one.kind, one.subject, one.rate_bps / 1e6,
                        one.expected_bps / 1e6)
        still = {(one.subject, one.kind) for one in found}
        for held in self._held:
            subject, kind = held.subject, held.kind
            if subject in subjects and (subject, kind) not in still:
                LOG.info('Check: %s of %s is well again.', kind, subject)
        # The newest of them is another one than before, whatever the clock.
        newest_s = self._signature[1] if self._signature else -math.inf
        now_s = max(self._clock(), newest_s + 1e-3)

        rows = [models.Finding(subject=one.subject, kind=one.kind,
                               found_at=now_s,
                               document=msgspec.json.encode(one).decode())
                for one in found]
        self._state.database.as_leader(lambda session: orders.replace_findings(
            session, subjects, rows))
        self.refresh()
