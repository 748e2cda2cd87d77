# SPDX-License-Identifier: Apache-2.0

"""Groups of VMs with their coflows, as tenants bring them."""

from collections.abc import Iterable
import dataclasses
import json
import pathlib
from typing import Annotated
from typing import Any

import msgspec

from virtco import decoding
from virtco import exception
from virtco import hints
from virtco import units
from virtco.model import cluster
from virtco.model import coflow as coflow_model


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


def of_coflows(coflows: Iterable[coflow_model.Coflow]) -> tuple[Group, ...]:
    """Make a group of each coflow, with one slot per VM."""
    return tuple(of_slots(coflow.name, (coflow,)) for coflow in coflows)


def equal_hosts(count: int, slots: float, rate_bps: float
                ) -> tuple[cluster.Host, ...]:
    """Build hosts h0, h1, … alike, with the same rate both ways."""
    return tuple(cluster.Host(f'h{i}', (slots,), rate_bps, rate_bps)
                 for i in range(count))


_Slots = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class _EqualHosts(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    slots: _Slots
    rate: str | float


class _HostRow(msgspec.Struct):
    slots: _Slots
    egress: str | float
    ingress: str | float
    name: str | None = None


class _GroupRow(msgspec.Struct):
    tm: Any
    name: str | None = None
    arrival_s: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0
    vm_slots: _Slots = 1.0


class _Document(msgspec.Struct):
    hosts: _EqualHosts | Annotated[
        list[_HostRow], msgspec.Meta(min_length=1)]
    groups: Annotated[list[_GroupRow], msgspec.Meta(min_length=1)]


_DOCUMENT = decoding.Decoder[_Document](_Document, 'groups')


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
        document = _DOCUMENT.decode(path.read_bytes())
    except (OSError, ValueError) as error:
        raise exception.Invalid(field='groups', value=str(path),
                                limit=f'a readable JSON file ({error})'
                                ) from error
    if isinstance(document.hosts, _EqualHosts):
        equal = document.hosts
        hosts = equal_hosts(equal.count, equal.slots,
                            _rate('hosts.rate', equal.rate))
    else:
        hosts = tuple(cluster.Host(
            row.name or f'h{i}', (row.slots,),
            _rate(f'hosts[{i}].egress', row.egress),
            _rate(f'hosts[{i}].ingress', row.ingress))
            for i, row in enumerate(document.hosts))
    groups = tuple(_group(row.name or f'group-{i}', row)
                   for i, row in enumerate(document.groups))
    for field, named in (('hosts', hosts), ('groups', groups)):
        if len({one.name for one in named}) < len(named):
            raise exception.Invalid(field=field, value='a name twice',
                                    limit='different names')
    return hosts, groups


def _group(name: str, row: _GroupRow) -> Group:
    text = row.tm if isinstance(row.tm, str) else json.dumps(row.tm)
    hint = hints.parse({hints.COFLOW: name, hints.TM: text})
    assert hint is not None
    return of_slots(name, hint.coflows, row.arrival_s, row.vm_slots)


def _rate(field: str, value: str | float) -> float:
    try:
        return units.parse_rate_bps(str(value))
    except units.NotAnAmount as error:
        raise exception.Invalid(field=field, value=value,
                                limit=error.limit) from error
