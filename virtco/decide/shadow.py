# SPDX-License-Identifier: Apache-2.0

"""What virtco would have saved while it only watches."""

import logging

from virtco import metrics
from virtco.state import summary

LOG = logging.getLogger(__name__)
#: A difference below this part is none.
TOLERANCE = 0.05


def note_end(coflow: summary.Status, counts: metrics.Metrics) -> None:
    """Compare the measured CCT of Nova's hosts and TCP's sharing with the
    planned one.

    Bytes that stayed within hosts take no time.
    """
    planned_s = coflow.planned_cct_s
    if planned_s is None:
        return
    took_s = coflow.span.cct_s if coflow.span is not None else 0.0
    saved_s = took_s - planned_s
    if abs(saved_s) <= TOLERANCE * max(took_s, planned_s):
        outcome = 'alike'
    else:
        outcome = 'faster' if saved_s > 0 else 'slower'
    counts.shadow_coflows.labels(outcome).inc()
    if saved_s > 0:
        counts.shadow_saved_seconds.inc(saved_s)
    else:
        counts.shadow_lost_seconds.inc(-saved_s)
    LOG.info('Shadow mode: coflow %s (%s) took %.3f s, planned were %.3f s: '
             '%.3f s would have been %s.', coflow.coflow_id, coflow.name,
             took_s, planned_s, abs(saved_s),
             'saved' if saved_s > 0 else 'lost')
