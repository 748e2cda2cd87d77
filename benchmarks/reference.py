# SPDX-License-Identifier: Apache-2.0

"""Read placement instances in the reference schema; judge placements.

hosts: [{id, slots, egress, ingress, rack?}] (bytes/s); racks: optional
[{id, uplink_out, uplink_in, parent?}], a parent is another one, so that they
are a tree of any depth; vms: [{id, size, pinned?, egress?, ingress?}], the
last two are caps in bytes/s; flows: [{src, dst, bytes, coflow?}], a coflow is
a number; running: optional [{id, flows}] with flows between hosts; wish:
optional, *within* (all VMs below one rack) or *spread* (over all); slots and
size are numbers, or lists of one per resource; pair_rate: optional
{a: {b: rate}}, which replaces egress and ingress; status, best_known,
lower_bound, placement. The judge shares no code with the solver.
"""

import json
import math
import operator
import pathlib
from typing import Any

from virtco import units
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot

Instance = dict[str, Any]


def read_all(folder: pathlib.Path) -> list[Instance]:
    """Every instance of a folder, by file name; ``_*`` is left out."""
    result = []
    for path in sorted(folder.glob('*.json')):
        if path.name.startswith('_'):
            continue
        content = json.loads(path.read_text())
        if isinstance(content, dict) and 'hosts' in content:
            content.setdefault('name', path.stem)
            content.setdefault('family', path.stem.split('-')[0])
            result.append(content)
    return result


def to_problem(instance: Instance) -> snapshot.PlacementProblem:
    bps = units.bytes_per_s_to_bps
    row = {vm['id']: i for i, vm in enumerate(instance['vms'])}
    pairs = instance.get('pair_rate')
    rows: dict[int, list[tuple[int, int, float]]] = {0: []}
    for f in instance['flows']:
        rows.setdefault(f.get('coflow', 0), []).append(
            (row[f['src']], row[f['dst']], f['bytes']))
    return snapshot.PlacementProblem(
        hosts=tuple(cluster.Host(
            str(h['id']), vector(h['slots']), bps(h['egress']),
            bps(h['ingress'])) for h in instance['hosts']),
        vms=tuple(cluster.Vm(
            str(v['id']), vector(v['size']), v.get('pinned'),
            egress_cap_bps=bps(v.get('egress', math.inf)),
            ingress_cap_bps=bps(v.get('ingress', math.inf)))
            for v in instance['vms']),
        coflows=tuple(coflow.Coflow.from_flows(
            f"{instance['name']}/{number}", len(row), flows)
            for number, flows in sorted(rows.items())),
        active=tuple(_running(one) for one in instance.get('running') or ()),
        tree=cluster.Tree(
            tuple(cluster.Subtree(r['id'], bps(r['uplink_out']),
                                  bps(r['uplink_in']), r.get('parent'))
                  for r in instance.get('racks') or ()),
            {str(h['id']): h['rack'] for h in instance['hosts']
             if h.get('rack') is not None and instance.get('racks')}),
        pair_rate_bps={(a, b): bps(rate) for a, row in pairs.items()
                       for b, rate in row.items()} if pairs else None,
        within=tuple(snapshot.Within('rack', tuple(row.values()))
                     for _ in range(instance.get('wish') == 'within')),
        spread=tuple(snapshot.Spread('rack', tuple(row.values()))
                     for _ in range(instance.get('wish') == 'spread')),
        resources=('slots', 'memory_gb', 'disk_gb')[
            :len(vector(instance['hosts'][0]['slots']))])


def _running(one: dict[str, Any]) -> snapshot.ActiveCoflow:
    return snapshot.ActiveCoflow.of(one['id'], (
        (f['src'], f['dst'], float(f['bytes'])) for f in one['flows']))


def vector(value: float | list[float]) -> tuple[float, ...]:
    """One number per resource."""
    return tuple(map(float, value if isinstance(value, list) else [value]))


def _time(size: float, rate: float) -> float:
    if size <= 0:
        return 0.0
    return size / rate if rate > 0 else math.inf


def completion_time_s(instance: Instance, placement: dict[str, str]
                      ) -> float | None:
    """t of a placement (VM id -> host id); None when it is not valid."""
    hosts = {h['id']: h for h in instance['hosts']}
    used: dict[str, tuple[float, ...]] = {}
    for vm in instance['vms']:
        host = placement.get(vm['id'])
        if host not in hosts or vm.get('pinned') not in (None, host):
            return None
        size = vector(vm['size'])
        used[host] = tuple(map(
            operator.add, used.get(host, (0.0,) * len(size)), size))
    if any(a > b for host, size in used.items()
           for a, b in zip(size, vector(hosts[host]['slots']), strict=True)):
        return None
    if not _keeps_wish(instance, [
            hosts[host].get('rack') for host in placement.values()]):
        return None
    loads: dict[tuple[str, ...], float] = {}
    for flow in instance['flows']:
        # Caps hold inside of a host, too.
        keys: list[tuple[str, ...]] = [('vm', 'egress', flow['src']),
                                       ('vm', 'ingress', flow['dst'])]
        a, b = placement[flow['src']], placement[flow['dst']]
        if a != b and instance.get('pair_rate'):
            keys += [('pair', a, b)]
        elif a != b:
            keys += [('egress', a), ('ingress', b)]
            above_a, above_b = (_above(instance, hosts[h]) for h in (a, b))
            keys += [('uplink_out', q) for q in above_a - above_b]
            keys += [('uplink_in', q) for q in above_b - above_a]
        for key in keys:
            loads[key] = loads.get(key, 0) + flow['bytes']
    return max((_time(size, _rate(instance, hosts, key))
                for key, size in loads.items()), default=0.0)


def _keeps_wish(instance: Instance, racks: list[str | None]) -> bool:
    """Return whether the racks of all VMs keep the wish."""
    if instance.get('wish') == 'within':
        return len(set(racks)) == 1
    share = math.ceil(len(racks) / max(1, len(instance.get('racks') or ())))
    return instance.get('wish') is None or all(
        racks.count(rack) <= share for rack in racks)


def _above(instance: Instance, host: dict[str, Any]) -> set[str]:
    """Every rack, pod, ... that a host is in."""
    parents = {r['id']: r.get('parent') for r in instance.get('racks') or ()}
    found: set[str] = set()
    name = host.get('rack')
    while name in parents and name not in found:
        found.add(name)
        name = parents[name]
    return found


def _rate(instance: Instance, hosts: dict[str, Any],
          key: tuple[str, ...]) -> float:
    if key[0] == 'vm':
        vm = next(v for v in instance['vms'] if v['id'] == key[2])
        return float(vm.get(key[1], math.inf))
    if key[0] == 'pair':
        return instance['pair_rate'][key[1]][key[2]]
    if key[0].startswith('uplink'):
        return next(r for r in instance['racks'] if r['id'] == key[1])[
            key[0]]
    return hosts[key[1]][key[0]]
