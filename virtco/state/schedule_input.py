# SPDX-License-Identifier: Apache-2.0

"""Input of the scheduler: a snapshot of everything it decides by. Pure.

Snapshots are immutable. A part that did not change between two snapshots is
the same object in both, so that :mod:`virtco.decide.policy_documents` need not
compute it again.
"""

from collections.abc import Mapping
import dataclasses
import functools
import math

import numpy as np

from virtco.model import live
from virtco.model import uplinks as uplinks_model
from virtco.scheduling import endings
from virtco.scheduling import policies
from virtco.state import uplink_rates
from virtco.table import coflow_table
from virtco.table import unmanaged

FAIR = 'fair'


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """How coflows are scheduled: an operator's choices and constants.

    :ivar own: policy in place of the order's.
    :ivar theta_s: wait after which a coflow goes first; inf: never.
    :ivar beta: share of background traffic; below 0: the observed share.
    :ivar min_rate_fraction: part of an uplink for all coflows together that
        the order leaves nothing, so that their connections stay alive and
        their bytes are seen.
    :ivar rate_tolerance_fraction: a policy is not sent again while each of its
        rates moved by less than this fraction.
    :ivar minor_grace_s: time after which the class number of an ended coflow
        is used again: twice as long as an edge module keeps the class.
    """

    order: str = 'mrtf'
    own: policies.Policy | None = None
    work_conserving: bool = True
    theta_s: float = math.inf
    beta: float = -1.0
    quiet_s: float = 1.0
    min_rate_fraction: float = 0.01
    rate_tolerance_fraction: float = 0.03
    policy_ttl_s: float = 60.0
    minor_grace_s: float = 10.0
    protect_receivers: bool = False
    limit_senders: bool = False
    default_share: float = 0.02

    @property
    def is_fair(self) -> bool:
        """There are no classes: TCP shares."""
        return self.order == FAIR

    @property
    def limits_senders(self) -> bool:
        """Whether senders' unmanaged traffic is limited; never if fair."""
        return self.limit_senders and not self.is_fair


@dataclasses.dataclass(frozen=True, slots=True)
class Host:
    """The uplink of one host.

    :ivar link: link of a host that reports, at the link's speed also where
        less was measured: a wrong measurement must not become true by being
        enforced. The coflows' rates keep to the measurement.
    :ivar egress_bps: rate that the uplink can carry; 0 for an unknown host on
        which a VM runs.
    """

    name: str
    link: coflow_table.Link | None
    egress_bps: float
    ingress_bps: float


class Hosts(tuple[Host, ...]):
    """All hosts, by name."""

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(host.name for host in self)

    @functools.cached_property
    def number_of(self) -> Mapping[str, int]:
        """Index of each host by its name."""
        return {name: i for i, name in enumerate(self.names)}

    @functools.cached_property
    def links(self) -> tuple[coflow_table.Link, ...]:
        """Links of the hosts that report."""
        return tuple(host.link for host in self if host.link is not None)

    @functools.cached_property
    def speeds_bps(self) -> np.ndarray:
        """Speed of each link out and in, inf where unknown, (2, n_hosts)."""
        return np.array([
            (host.link.egress_bps, host.link.ingress_bps)
            if host.link is not None else (math.inf, math.inf)
            for host in self], np.float64).reshape(-1, 2).T

    @functools.cached_property
    def links_bps(self) -> float:
        """Sum of the links' egress rates, in bits per second."""
        return sum(link.egress_bps for link in self.links)

    @functools.cached_property
    def egress_bps(self) -> np.ndarray:
        """Rate of each uplink from its host, shape (n_hosts,)."""
        return np.array([host.egress_bps for host in self], np.float64)

    @functools.cached_property
    def ingress_bps(self) -> np.ndarray:
        """Rate of each uplink to its host, shape (n_hosts,)."""
        return np.array([host.ingress_bps for host in self], np.float64)


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """Part of an uplink that coflows leave to others; see ``[scheduler]``.

    :ivar max_background_fraction: largest part of an uplink that background
        traffic in classes takes from the coflows, so that no flood stops them.
    """

    default_share: float = 0.02
    max_background_fraction: float = 0.5

    def residual(self, hosts: Hosts, is_fair: bool,
                 background_bps: np.ndarray,
                 unshaped_bps: np.ndarray | float = 0.0,
                 received_bps: np.ndarray | float = 0.0
                 ) -> tuple[np.ndarray, np.ndarray]:
        """Return egress and ingress of each host that coflows may use.

        No class holds back traffic such as RDMA, so all of it is taken away,
        but for the default share of the link.

        :param background_bps: observed at each egress, shape (n_hosts,).
        :param unshaped_bps: part of it that passes no class.
        :param received_bps: rate of RDMA that comes to each host.
        """
        most = 0.0 if is_fair else self.max_background_fraction
        unheld_bps = np.minimum(unshaped_bps,
                                hosts.egress_bps * (1 - self.default_share))
        most_bps = np.maximum(hosts.egress_bps * most, unheld_bps)
        received_bps = np.minimum(received_bps, hosts.ingress_bps * (
            1 - self.default_share))
        return (hosts.egress_bps - np.maximum(
                    np.minimum(background_bps, most_bps),
                    hosts.egress_bps * self.default_share),
                hosts.ingress_bps - np.maximum(
                    received_bps, hosts.ingress_bps * self.default_share))


@dataclasses.dataclass(frozen=True, slots=True)
class Coflow:
    """A coflow whose VMs run.

    :ivar is_queued: whether bytes of it wait at some host.
    :ivar is_resting: whether it is between two iterations.
    :ivar sent_bps: rate of each pair by its host's last report, inf where
        bytes wait, shape (n_pairs,); None: nothing is sent.
    """

    live: live.LiveCoflow
    table: coflow_table.TableCoflow
    moved_s: float | None = None
    is_queued: bool = False
    is_resting: bool = False
    sent_bps: np.ndarray | None = None

    def is_busy(self, now_s: float, quiet_s: float) -> bool:
        """Tell whether bytes wait at a host or moved within ``quiet_s``."""
        return self.is_queued or (self.moved_s is not None
                                  and now_s - self.moved_s < quiet_s)


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """Input of the scheduler at one moment.

    :ivar coflows: coflows whose VMs run; those between two iterations last, so
        that a pair of VMs that they share belongs to the others.
    :ivar egress_bps: rate of each host for coflows, shape (n_hosts,).
    :ivar ingress_bps: likewise.
    :ivar uplinks: uplinks above the hosts with their rates for coflows.
    :ivar minors: class numbers of the hosts that have any.
    :ivar size_factor: bytes on the wire per remaining byte.
    :ivar senders: hosts that send unmanaged traffic to others.
    """

    now_s: float
    options: Options
    hosts: Hosts
    egress_bps: np.ndarray
    ingress_bps: np.ndarray
    coflows: tuple[Coflow, ...] = ()
    minors: Mapping[str, coflow_table.Minors] = dataclasses.field(
        default_factory=dict)
    size_factor: float = 1.0
    senders: Mapping[str, unmanaged.Sender] = dataclasses.field(
        default_factory=dict)
    uplinks: uplinks_model.Uplinks = uplinks_model.NONE

    @functools.cached_property
    def ports(self) -> live.Ports:
        """Rates of hosts and uplinks for coflows, in bits per second."""
        return live.Ports(self.hosts.names, self.egress_bps,
                          self.ingress_bps, self.uplinks)


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """See ``[scheduler]``, ``[probe]`` and ``[placement]``.

    :ivar half_life_s: half-life of the moving average of background traffic,
        five times the default interval of reports.
    """

    half_life_s: float = 5.0
    wire_overhead_fraction: float = 0.0
    ending: endings.Rules = endings.Rules()
    uplink: uplink_rates.Rules = uplink_rates.Rules()
    share: Share = Share()
    max_debt_bytes: float = math.inf

    @property
    def wire_factor(self) -> float:
        """Bytes on the wire per byte of payload."""
        return 1 + self.wire_overhead_fraction

    @property
    def payload_fraction(self) -> float:
        """Payload of coflows per bit of a link."""
        return (1 - self.share.default_share) / self.wire_factor
