# SPDX-License-Identifier: Apache-2.0

"""Results of a run of the demo, as values."""

import dataclasses
import statistics
import typing

from virtco_lab.sim.figures import outcome


@dataclasses.dataclass(frozen=True, slots=True)
class CoflowResult:
    """Result of one coflow under one scheme.

    :ivar predicted_s: completion time that the model expects of the
        placement.
    :ivar measured_s: completion time of the real transfer, or the
        simulator's when nothing was transferred.
    :ivar unpaced_s: completion time that the model expects when transfers
        inside of a host take no time.
    :ivar tied: whether the scheme's order ranks it equal to another coflow;
        the prediction is for the order that was taken.
    """

    name: str
    group: str
    n_vms: int
    size_bytes: float
    predicted_s: float
    measured_s: float
    unpaced_s: float
    tied: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class SchemeResult:
    """A workload under one scheme.

    :ivar hosts: group -> host of each of its VMs.
    :ivar uplink_bytes: host -> payload that leaves it and that enters it.
    :ivar timeline: bytes received per coflow over the fabric, per bin of
        ``bin_s``; empty when simulated.
    :ivar busy_fraction: busy share of all processors during the transfers,
        with any load; busy processors make real transfers slower.
    :ivar waited_fraction: share of the transfers' time for which a thread of
        the testbed waited for a processor, the largest of all threads.
    :ivar edge_cpu: host -> share of one processor that its edge module used.
    """

    name: str
    label: str
    coflows: tuple[CoflowResult, ...]
    hosts: dict[str, tuple[str, ...]]
    uplink_bytes: dict[str, tuple[float, float]]
    timeline: tuple[tuple[int, ...], ...] = ()
    bin_s: float = 0.0
    retransmits: int = 0
    busy_fraction: float = 0.0
    placing_s: float = 0.0
    waited_fraction: float = 0.0
    edge_cpu: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def mean_predicted_s(self) -> float:
        """Mean of the coflows' predicted completion times, in seconds."""
        return statistics.fmean(c.predicted_s for c in self.coflows)

    @property
    def mean_unpaced_s(self) -> float:
        """Mean CCT in seconds if transfers inside of a host took no time."""
        return statistics.fmean(c.unpaced_s for c in self.coflows)

    @property
    def mean_measured_s(self) -> float:
        """Mean of the coflows' measured completion times, in seconds."""
        return statistics.fmean(c.measured_s for c in self.coflows)


@dataclasses.dataclass(frozen=True, slots=True)
class WorkloadResult:
    """A workload under its schemes; the last one is virtco's.

    :ivar complete: all schemes are there; else virtco's is missing.
    :ivar unit_s: length of the paper's time unit here, where it has one.
    :ivar paper_means: the paper's average CCT per scheme, in that unit.
    """

    name: str
    title: str
    schemes: tuple[SchemeResult, ...]
    unit_s: float | None = None
    paper_means: tuple[float, ...] = ()
    complete: bool = True

    @property
    def has_ties(self) -> bool:
        """Whether any scheme's order ranks two coflows equal."""
        return any(coflow.tied for scheme in self.schemes
                   for coflow in scheme.coflows)

    def speed_ups(self) -> list[float]:
        """Compute relative speed-ups of the last scheme over each other one.
        """
        if not self.complete:
            return []
        ours = self.schemes[-1].mean_measured_s
        return [outcome.reduction(ours, scheme.mean_measured_s) / 100
                for scheme in self.schemes[:-1]]


@dataclasses.dataclass(frozen=True, slots=True)
class HostRate:
    """An uplink as configured and as the edge modules measured it."""

    host: str
    configured_bps: float
    egress_bps: float | None
    ingress_bps: float | None
    slow: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Results:
    """Results of a whole run of the demo.

    :ivar mode: ``emulated`` or ``simulated``.
    :ivar partial: the run broke off; what was finished is here.
    """

    mode: str
    n_hosts: int
    rate_bps: float
    slots: int
    seed: int
    workloads: tuple[WorkloadResult, ...]
    host_rates: tuple[HostRate, ...] = ()
    notes: tuple[str, ...] = ()
    wall_s: float = 0.0
    partial: bool = False

    @property
    def measured(self) -> str:
        """Name of the times that are no predictions."""
        return 'measured' if self.mode == 'emulated' else 'simulated'

    def sentence(self) -> str:
        """Summarise the result in one sentence."""
        workload = self.workloads[-1]
        ours = workload.schemes[-1]
        if not workload.complete:
            return f'The run broke off after {workload.name}: {ours.label}.'
        others = [
            f'{abs(saved) * 100:.0f} % {"sooner" if saved >= 0 else "later"} '
            f'than {scheme.label}'
            for scheme, saved in zip(workload.schemes, workload.speed_ups())]
        return (f'{ours.label} finished {len(ours.coflows)} coflows '
                f'{" and ".join(others)}: after {ours.mean_measured_s:.1f} s '
                'on average.')

    def to_dict(self) -> dict[str, typing.Any]:
        """Convert for JSON: the values, and the averages made of them."""
        made = dataclasses.asdict(self)
        for workload, shown in zip(self.workloads, made['workloads']):
            shown['relative_speed_up'] = dict(zip(
                (scheme.name for scheme in workload.schemes),
                workload.speed_ups()))
            for scheme, entry in zip(workload.schemes, shown['schemes']):
                entry['mean_predicted_s'] = scheme.mean_predicted_s
                entry['mean_measured_s'] = scheme.mean_measured_s
                entry['mean_unpaced_s'] = scheme.mean_unpaced_s
        return made
