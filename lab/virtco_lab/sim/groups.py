# SPDX-License-Identifier: Apache-2.0

"""Groups of VMs with their coflows, as tenants bring them."""

from collections.abc import Iterable
import dataclasses
import json
import math
import pathlib
from typing import Any

from virtco import exception
from virtco import hints
from virtco import units
from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco_lab.sim import workloads


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """A group that arrives, is placed, and starts its coflows at once.

    :ivar vm_demands: one capacity vector per VM, as many entries as the
        hosts' ``free``.
    :ivar stay_s: its VMs stay at least so long after they were placed.
    """

    name: str
    vm_demands: tuple[tuple[float, ...], ...]
    coflows: tuple[coflow_model.Coflow, ...]
    arrival_s: float = 0.0
    stay_s: float = 0.0

    @property
    def vms(self) -> tuple[cluster.Vm, ...]:
        return tuple(cluster.Vm(f'{self.name}-{row}', demand)
                     for row, demand in enumerate(self.vm_demands))


def of_slots(name: str, coflows: Iterable[coflow_model.Coflow],
             arrival_s: float = 0.0, vm_slots: float = 1.0) -> Group:
    """Build a group whose VMs take ``vm_slots`` of a one-dimensional capacity.
    """
    coflows = tuple(coflows)
    return Group(name, ((vm_slots,),) * coflows[0].n_vms, coflows, arrival_s)


def of_apps(apps: Iterable[workloads.App]) -> tuple[Group, ...]:
    """Make a group of each application, with one slot per VM."""
    return tuple(of_slots(app.application.name, (app.coflow,))
                 for app in apps)


def equal_hosts(count: int, slots: float, rate_bps: float
                ) -> tuple[cluster.Host, ...]:
    """Build hosts h0, h1, … alike, with the same rate both ways."""
    return tuple(cluster.Host(f'h{i}', (slots,), rate_bps, rate_bps)
                 for i in range(count))


def read(path: pathlib.Path
         ) -> tuple[tuple[cluster.Host, ...], tuple[Group, ...]]:
    """Read hosts and groups from JSON.

    ::

        {"hosts": {"count": 18, "slots": 12, "rate": "1Gbit"},
         "groups": [{"name": "a", "arrival_s": 0, "vm_slots": 1,
                     "tm": [[0, "5GB"], ["1GB", 0]]}]}

    ``hosts`` may be a list of ``{"name", "slots", "egress", "ingress"}``
    instead, and ``tm`` has every form of the hint ``virtco:tm``.

    :raises virtco.exception.Invalid: naming the field and what is wrong.
    """
    try:
        document = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError) as error:
        raise exception.Invalid(field='groups', value=str(path),
                                limit=f'a readable JSON file ({error})'
                                ) from error
    if not isinstance(document, dict):
        raise exception.Invalid(field='groups', value=str(path),
                                limit='an object with hosts and groups')
    hosts = _hosts(document.get('hosts'))
    rows = document.get('groups')
    if not (isinstance(rows, list) and rows):
        raise exception.Invalid(field='groups', value=rows,
                                limit='a list with at least one group')
    groups = tuple(_group(i, row) for i, row in enumerate(rows))
    if len({group.name for group in groups}) < len(groups):
        raise exception.Invalid(field='groups', value='a name twice',
                                limit='different names')
    return hosts, groups


def _hosts(value: Any) -> tuple[cluster.Host, ...]:
    if isinstance(value, dict):
        count = _number('hosts.count', value.get('count'), 1, 100_000)
        return equal_hosts(int(count),
                           _number('hosts.slots', value.get('slots'), 0, 1e9),
                           _rate('hosts.rate', value.get('rate')))
    if not (isinstance(value, list) and value):
        raise exception.Invalid(field='hosts', value=value,
                                limit='a list of hosts, or an object with '
                                'count, slots and rate')
    hosts = []
    for i, row in enumerate(value):
        field = f'hosts[{i}]'
        if not isinstance(row, dict):
            raise exception.Invalid(field=field, value=row,
                                    limit='an object')
        hosts.append(cluster.Host(
            str(row.get('name', f'h{i}')),
            (_number(f'{field}.slots', row.get('slots'), 0, 1e9),),
            _rate(f'{field}.egress', row.get('egress')),
            _rate(f'{field}.ingress', row.get('ingress'))))
    if len({host.name for host in hosts}) < len(hosts):
        raise exception.Invalid(field='hosts', value='a name twice',
                                limit='different names')
    return tuple(hosts)


def _group(i: int, row: Any) -> Group:
    field = f'groups[{i}]'
    if not isinstance(row, dict) or 'tm' not in row:
        raise exception.Invalid(field=field, value=row,
                                limit='an object with a tm')
    name = str(row.get('name', f'group-{i}'))
    tm = row['tm']
    text = tm if isinstance(tm, str) else json.dumps(tm)
    hint = hints.parse({hints.COFLOW: name, hints.TM: text})
    assert hint is not None
    return of_slots(
        name, hint.coflows,
        _number(f'{field}.arrival_s', row.get('arrival_s', 0), 0, 1e12),
        _number(f'{field}.vm_slots', row.get('vm_slots', 1), 0, 1e9))


def _number(field: str, value: Any, low: float, high: float) -> float:
    if (isinstance(value, bool) or not isinstance(value, int | float)
            or not math.isfinite(value) or not low <= value <= high):
        raise exception.Invalid(field=field, value=value,
                                limit=f'a number between {low:g} and {high:g}')
    return float(value)


def _rate(field: str, value: Any) -> float:
    try:
        return units.parse_rate_bps(str(value))
    except units.NotAnAmount as error:
        raise exception.Invalid(field=field, value=value,
                                limit=error.limit) from error
