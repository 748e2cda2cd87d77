# SPDX-License-Identifier: Apache-2.0

"""Capacity of uplinks: measured, else nominal, else configured. Pure."""

import dataclasses

from virtco.measure import hostrates
from virtco.wire import reports


@dataclasses.dataclass(frozen=True, slots=True)
class Capacity:
    """Rates of one uplink and where they come from.

    :ivar measured_s: time of the measurement; None = never.
    :ivar source: ``measured``, ``link`` or ``unknown`` (the default).
    """

    egress_bps: float
    ingress_bps: float
    measured_egress_bps: float | None = None
    measured_ingress_bps: float | None = None
    measured_s: float | None = None
    source: str = 'unknown'


#: Fraction of the link's speed within which a measurement confirms it: pairs
#: below it by more are planned by themselves, too.
TOLERANCE = 0.1
#: A measurement counts for this many times ``[probe] freshness_s``: three
#: repetitions may fail.
FRESH_PERIODS = 4
_UNMEASURED = hostrates.HostRate(None, None, 0.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """See ``[placement] default_link_bps``."""

    default_bps: float = 1e9
    max_age_s: float = 7200.0


def of_host(link: reports.Link, rate: hostrates.HostRate | None,
            rules: Rules, now_s: float = 0.0) -> Capacity:
    """Combine the link's speed with the measured rate.

    A measurement within the tolerance of the link's speed confirms it; one
    that only bounds the rate from below counts where it is the larger.
    """
    if rate is None or now_s - rate.measured_s > rules.max_age_s:
        rate = _UNMEASURED
    egress_bps, out_source = _one_way(
        link.egress_bps, rate.egress_bps, rate.egress_lower_bound, rules)
    ingress_bps, in_source = _one_way(
        link.ingress_bps, rate.ingress_bps, rate.ingress_lower_bound, rules)
    is_measured = rate.egress_bps is not None or rate.ingress_bps is not None
    return Capacity(
        egress_bps, ingress_bps, rate.egress_bps, rate.ingress_bps,
        rate.measured_s if is_measured else None,
        next(source for source in ('measured', 'link', 'unknown')
             if source in (out_source, in_source)))


def _one_way(link_bps: float | None, measured_bps: float | None,
             is_bound: bool, rules: Rules) -> tuple[float, str]:
    """Choose a link's rate and name its source."""
    if measured_bps is None:
        return ((link_bps, 'link') if link_bps
                else (rules.default_bps, 'unknown'))
    if link_bps and (is_bound or measured_bps >= link_bps * (1 - TOLERANCE)):
        return link_bps, 'link' if is_bound else 'measured'
    return measured_bps, 'measured'
