# SPDX-License-Identifier: Apache-2.0

"""How much TCP this machine carries, and the uplinks' rate that follows."""


from virtco import units
from virtco_lab.emulation import bed
from virtco_lab.emulation import fabric
from virtco_lab.emulation import shaping
from virtco_lab.emulation import traffic
from virtco_lab.emulation import transfers

#: Rates to choose from. More than the largest shows nothing new.
RATES_BPS = (5e6, 10e6, 15e6, 20e6, 30e6, 40e6, 50e6)
# Share of the machine's capacity that is used for one host, and the number of
# hosts that halve it: edge modules and controller need the rest.
_USED_SHARE = 0.8
_HALF_USED_HOSTS = 12
_TRIAL_LINK_BPS = 10e9
_TRIAL_BYTES = 10 * 2 ** 20
_N_TRIALS = 2
# Cost of a rate on the uplinks, in rates between two hosts of one flow each:
# VMs of one host send LOCAL_PACE times as much, and hundreds of flows share a
# link.
_COST = 11
# Slow flows send two segments at a time, and that costs the most.
_SLOW_SEGMENTS = 2


def measure_bps() -> float:
    """Measure TCP payload per second between the VMs of two hypervisors.

    Their links are so fast that the processors are the limit, and whatever
    else the machine does now. It takes two seconds.
    """
    with fabric.built(bed.Bed(dict.fromkeys(
            bed.host_names(2), _TRIAL_LINK_BPS))) as trial:
        vms = [trial.add_vm(f'v{i}', f'h{i % 2}') for i in range(4)]
        for vm in vms:
            shaping.limit_segments(vm.namespace, ('eth0',), _SLOW_SEGMENTS)
        flows = tuple(
            traffic.FlowSpec(0, src.namespace, dst.namespace,
                             dst.address, 5001, _TRIAL_BYTES)
            for src in vms for dst in vms if src.host != dst.host)
        return max(units.bytes_per_s_to_bps(
            len(flows) * _TRIAL_BYTES / transfers.send(flows).wall_s)
            for _ in range(_N_TRIALS))


def choose_rate_bps(carried_bps: float, n_hosts: int) -> float:
    """Choose the largest rate at which all hosts can send at once, in bit/s.

    The first of :data:`RATES_BPS` is chosen where no rate fits.

    :param carried_bps: result of :func:`measure_bps`.
    """
    used_share = _USED_SHARE / (1 + n_hosts / _HALF_USED_HOSTS)
    most_bps = carried_bps * used_share / n_hosts
    fitting_bps = most_bps / _COST
    return max((rate_bps for rate_bps in RATES_BPS
                if rate_bps <= fitting_bps), default=RATES_BPS[0])
