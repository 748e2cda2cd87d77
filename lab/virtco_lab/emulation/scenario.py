# SPDX-License-Identifier: Apache-2.0

"""The workloads of the demo and the schemes they run under."""

import dataclasses
import math

import numpy as np

from virtco import units
from virtco.model import coflow as coflow_model
from virtco_lab.sim import schemes as scheme_model
from virtco_lab.sim import workloads

PAPER_SLOTS = 12  # VirtCO section 5.1
VM_SLOTS = 1
#: Share of the wire that is TCP payload: 1448 bytes of each 1514.
PAYLOAD_FRACTION = 1448 / 1514
#: Rate of all flows inside of one host together, relative to an uplink. A
#: memory bus is faster, but here the processors also carry the uplinks.
LOCAL_PACE = 3
_FIG1_UNIT_S = 1.5
_FIG1_PORTS = (5001, 5002)
_FULL_SIZE_HOSTS = 18  # VirtCO's testbed
# Seconds that the mix would take if all hosts sent at full rate all along: on
# few hosts, and on VirtCO's, where edge modules wait for a processor and the
# controller hears of sent bytes up to two seconds late.
_MIX_LOAD_S = 20.0
_FULL_MIX_LOAD_S = 120.0
# On fewer hosts: Nova needs half a second of processor per VM, and every
# application should be too wide for a host, or it has nothing to send.
_FEW_SLOTS = 6
_MIN_WIDTH = 20  # of Table 2's row
_TAKEN_FRACTION = 0.6
# The largest flow of an application, in terms of its mean flow.
_MAX_LENGTH = 4.0


BASELINE = scheme_model.Scheme('baseline', 'Baseline', 'spread', 'fair')
SEBF_TA = scheme_model.Scheme('sebf-ta', 'SEBF-TA', 'min-cut', 'sebf')
VIRTCO = scheme_model.Scheme('virtco', 'virtco', 'virtco', 'mrtf')
FIG1_SCHEMES = (
    scheme_model.Scheme('sebf', 'no co-residence + SEBF', 'spread', 'sebf'),
    scheme_model.Scheme('ta-sebf', 'TA + SEBF', 'min-cut', 'sebf'),
    scheme_model.Scheme('joint', 'joint (virtco)', 'virtco', 'mrtf'))


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """A tenant's VMs and the coflows over them; all coflows start at 0."""

    name: str
    n_vms: int
    vm_slots: int
    coflows: tuple[coflow_model.Coflow, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """Groups that run together, under each of the schemes in turn.

    :ivar local_pace: see :data:`LOCAL_PACE`; None is no limit.
    """

    name: str
    title: str
    groups: tuple[Group, ...]
    schemes: tuple[scheme_model.Scheme, ...]
    unit_s: float | None = None
    paper_means: tuple[float, ...] = ()
    local_pace: float | None = LOCAL_PACE


def goodput_bps(rate_bps: float) -> float:
    """Return TCP's payload rate over a link that carries ``rate_bps``."""
    return rate_bps * PAYLOAD_FRACTION


def fig1(rate_bps: float, slots: int,
         unit_s: float = _FIG1_UNIT_S) -> Workload:
    """Build VirtCO's Fig. 1: two coflows over three VMs, two on one host.

    :param slots: slots of each host.
    :param unit_s: time that a unit of data takes on an idle link.
    """
    unit = round(units.bps_to_bytes_per_s(goodput_bps(rate_bps)) * unit_s)
    flows = ([(0, 1, 5), (1, 2, 1), (2, 0, 2)], [(1, 2, 1), (2, 1, 2)])
    coflows = tuple(
        coflow_model.Coflow.from_flows(
            name, 3, [(src, dst, n * unit) for src, dst, n in rows],
            dst_port=port)
        for name, rows, port in zip(('C1', 'C2'), flows, _FIG1_PORTS))
    return Workload(
        'fig1', 'Fig. 1 of VirtCO: two coflows over three VMs',
        (Group('fig1', 3, slots // 2, coflows),), FIG1_SCHEMES,
        unit_s=unit_s, paper_means=(4.5, 3.0, 2.5), local_pace=None)


def slots_per_host(n_hosts: int) -> int:
    """Choose each hypervisor's slots for this many: the paper's 12, or few."""
    if n_hosts >= _FULL_SIZE_HOSTS:
        return PAPER_SLOTS
    n_vms = len(_few_applications()) * (_FEW_SLOTS + 1)
    return max(_FEW_SLOTS, math.ceil(n_vms / n_hosts))


def mix(n_hosts: int, rate_bps: float, seed: int, load_s: float | None = None,
        order: str = VIRTCO.order) -> Workload:
    """Draw VirtCO's Table 2 applications together, scaled to the testbed.

    Below the paper's 18 hosts only the wider four, narrowed with the number
    of hosts; sizes so that all hosts sending at full rate would need
    ``load_s`` for them. Bytes go from every VM to every other (PAGER) or from
    every mapper to every reducer (RECOMM), the largest flow at most a few
    times the mean: with Table 2's own skew a handful of flows hold nearly all
    bytes, every traffic-aware placement makes those local, and little is left
    to send.
    """
    rng = np.random.default_rng([seed, n_hosts])
    usual_load_s = _MIX_LOAD_S
    if n_hosts >= _FULL_SIZE_HOSTS:
        rows, scale_width, min_width = list(workloads.TABLE2), 1.0, 4
        usual_load_s = _FULL_MIX_LOAD_S
    else:
        rows, min_width = _few_applications(), _FEW_SLOTS + 1
        scale_width = (_TAKEN_FRACTION * n_hosts * _FEW_SLOTS
                       / sum(row.width for row in rows))
    coflows = [_application(rng, row, max(min_width, round(
        row.width * scale_width))) for row in rows]
    total = sum(coflow.size_bytes for coflow in coflows)
    target = units.bps_to_bytes_per_s(
        goodput_bps(rate_bps)) * n_hosts * (
            usual_load_s if load_s is None else load_s)
    return Workload(
        'mix', f'Table 2 of VirtCO, scaled: {len(rows)} applications at once',
        tuple(group_of(coflow.scaled(target / total)) for coflow in coflows),
        (BASELINE, SEBF_TA, dataclasses.replace(VIRTCO, order=order)))


def _few_applications() -> list[workloads.Application]:
    return [row for row in workloads.TABLE2 if row.width >= _MIN_WIDTH]


def _application(rng: np.random.Generator, row: workloads.Application,
                 n_vms: int) -> coflow_model.Coflow:
    """Draw a coflow by the paper's application, for fewer VMs."""
    mappers = n_vms // 2
    n_flows = (mappers * (n_vms - mappers) if row.shuffle
               else n_vms * (n_vms - 1))
    return workloads.draw(
        row.name, rng, n_vms=n_vms, shape='dense', shuffle=row.shuffle,
        size_bytes=row.size_bytes,
        length_bytes=min(row.length_bytes,
                         _MAX_LENGTH * row.size_bytes / n_flows))


def group_of(coflow: coflow_model.Coflow) -> Group:
    """Build a group of one coflow, with sizes in whole bytes."""
    whole = coflow_model.Coflow.from_flows(
        coflow.name, coflow.n_vms,
        [(f.src, f.dst, max(1, round(f.size_bytes))) for f in coflow.flows],
        coflow.dst_port)
    return Group(coflow.name, coflow.n_vms, VM_SLOTS, (whole,))
