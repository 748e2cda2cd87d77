# SPDX-License-Identifier: Apache-2.0

"""A controller's plan for a hint, without reserving anything."""

from collections import Counter

from virtco import exception
from virtco import units
from virtco.client import v1
from virtco.wire import host as host_wire
from virtco.wire import plan as plan_wire
from virtco_tenant.hintkit import figures
from virtco_tenant.hintkit import screen

#: Demand of a VM in a what-if: room is counted in slots per host, because only
#: Nova knows the free resources.
SLOT = {'vcpus': 1, 'memory_mb': 1, 'disk_gb': 1}


def ask(client: v1.Client, found: figures.Figures,
        slots: int) -> tuple[plan_wire.Plan | None, str]:
    """Ask the controller for a plan; return it and the text to show.

    Without a plan, the text says why there is none.

    :param slots: VMs that each of the controller's hosts has room for.
    """
    try:
        hosts = client.call(host_wire.LIST).hosts
        if len(found.vms) > slots * len(hosts):
            return None, screen.wrap(
                f'What-if: {len(found.vms)} VMs do not fit onto '
                f'{len(hosts)} hosts with {slots} slots each (--slots).')
        plan = client.call(
            plan_wire.PLAN,
            groups=[{'name': found.hint.coflow_name, 'tm': found.text,
                     'flavor': SLOT}],
            hosts=[{'host': host.host, 'free': {
                key: value * slots for key, value in SLOT.items()}}
                for host in hosts])
    except exception.Forbidden:
        return None, screen.wrap(
            'What-if: this controller lets operators ask only.')
    except exception.VirtcoException as error:
        return None, screen.wrap(f'What-if: no answer. {error}')
    return plan, _shown(plan, len(hosts), slots)


def _shown(plan: plan_wire.Plan, n_hosts: int, slots: int) -> str:
    on = Counter(vm.host for vm in plan.vms)
    lines = [screen.wrap(
        f'What-if, now, on the {n_hosts} hosts of the controller with {slots} '
        f'slots each (--slots): {_time(plan.cct_s)}, at least '
        f'{_time(plan.lower_bound_s)} for {plan.bound_scope}; '
        f'{plan.bottleneck} decides.')]
    lines.append(screen.table(
        ('Host', 'VMs', 'Rows'),
        ((host[:40], str(count), _rows([
            vm.row for vm in plan.vms if vm.host == host]))
         for host, count in sorted(on.items()))))
    return '\n'.join(lines)


def _time(time_s: float | None) -> str:
    return 'unknown' if time_s is None else units.format_time(time_s)


def _rows(rows: list[int]) -> str:
    text = ', '.join(map(str, sorted(rows)))
    return text if len(text) <= 28 else text[:27] + '…'
