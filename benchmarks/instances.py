# SPDX-License-Identifier: Apache-2.0

"""Generate placement instances in the reference schema.

``python -m benchmarks.instances --out DIR [--count N] [--seed S]
[--family NAME]``

Families (all rates multiples of 1 Gbit/s, everything from the seed), without
``--family`` those before *hard*:

paper18
    Table 2's applications on 18 hosts. n VMs of 1 or 2 slots (35 % have 2);
    *sparse* n, *medium* 3n, *dense* n(n - 1) random flows whose sizes are
    lognormal values raised to the power at which the largest is Table 2's
    length and the sum its size. *empty*: 12 slots and full rate; *partial*:
    2-9 slots and rates 0.2, 0.4 ... 1; *tight*: 2 or more slots, together
    at least 1.15 times the demand, rates uniform in 0.2 ... 0.97.
dc
    100 x 100 or 1,000 x 200 hosts x VMs, *homog* (12 slots, full rate) or
    *het* (0-6 slots, rates 0.2, 0.4 ... 1), patterns ring, star, sparse,
    zipf, groups, a2a and shuffle, lognormal sizes.
small
    3-8 VMs on 3-5 hosts, some with a pinned VM, racks or pipes.
mixed
    24 VMs on 12 hosts of 1-8 slots: gather, broadcast, ring in both
    directions, stages of a pipeline; *plain*, *fat* (one host of 16 slots
    and four times the rate), *pins* (a third of the VMs is placed).
hard
    A launch's instances, :data:`HARD`: VMs of 1, 2 or 4 slots, lognormal
    sizes with sigma 0.5 or 1.5; *bg* 0-12 slots and rates 0.3 ... 0.9,
    *measured* 1-8 slots and lognormal rates, *unit* VMs of 1 slot on hosts of
    1-4 at full rate. *rack* has uplinks oversubscribed 4 times, *pod* racks
    in pods, each level oversubscribed twice, *pipe* lognormal rates per pair
    of hosts, *cube* capacities of vCPUs, memory and disk that no flavor fills
    alike. *within* has all VMs below one rack, *spread* over all racks, with
    uplinks as fast as the hosts below them.
"""

import argparse
import json
import math
import pathlib
import random
from typing import Any
from typing import NamedTuple

GBIT = 1.25e8
GB = 1e9

#: Table 2 of VirtCO: name -> (VMs, size, length) in bytes.
TABLE_2 = {
    'pager-0.5m': (10, 2.98 * GB, 0.72 * GB),
    'pager-1m': (20, 4.45 * GB, 0.98 * GB),
    'pager-4m': (40, 19.53 * GB, 2.55 * GB),
    'recomm-1g': (10, 7.68 * GB, 4.88 * GB),
    'recomm-2g': (20, 16.21 * GB, 8.54 * GB),
    'recomm-5g': (40, 33.37 * GB, 12.4 * GB),
}
PATTERNS = ('ring', 'star', 'sparse', 'zipf', 'groups', 'a2a', 'shuffle')
MIXED = ('gather', 'broadcast', 'two-way-ring', 'stages')
_STEPS = (0.2, 0.4, 0.6, 0.8, 1.0)


class Shape(NamedTuple):
    """A size of the hard family.

    :ivar pods: of as many racks each.
    :ivar cube: capacities of three resources instead of slots.
    :ivar running: coflows that run on the hosts already.
    :ivar coflows: into which the flows are dealt.
    :ivar pairs: of hosts have rates, instead of hosts.
    :ivar wish: within or spread, of all VMs about racks.
    """

    hosts: int
    vms: int
    patterns: tuple[str, ...]
    kinds: tuple[str, ...]
    racks: int = 0
    pods: int = 0
    cube: bool = False
    running: int = 0
    coflows: int = 1
    pairs: bool = False
    wish: str | None = None


_ALL = ('sparse', 'medium', 'dense', 'shuffle', 'groups', 'tree', 'mesh')
HARD = {
    'hose18x40': Shape(18, 40, _ALL, ('bg', 'measured', 'unit')),
    'hose100x100': Shape(
        100, 100, ('sparse', 'medium', 'groups', 'tree', 'shuffle'),
        ('bg', 'measured')),
    'hose1000x200': Shape(1000, 200, ('sparse', 'medium', 'groups', 'tree'),
                          ('bg', 'measured')),
    'hose5000x40': Shape(5000, 40, ('medium', 'dense', 'groups'),
                         ('bg', 'measured')),
    'rack18x40': Shape(18, 40, ('sparse', 'medium', 'groups', 'shuffle'),
                       ('bg', 'measured'), racks=3),
    'rack96x60': Shape(96, 60, ('sparse', 'medium', 'groups'),
                       ('measured',), racks=8),
    'pod48x60': Shape(48, 60, ('sparse', 'medium', 'groups', 'shuffle'),
                      ('bg', 'measured'), racks=8, pods=2),
    'pipe12x24': Shape(12, 24, ('sparse', 'medium', 'groups', 'shuffle'),
                       ('bg', 'measured'), pairs=True),
    'pipe18x40': Shape(18, 40, ('sparse', 'medium', 'groups', 'shuffle'),
                       ('bg', 'measured'), pairs=True),
    'within18x40': Shape(18, 40, _ALL, ('bg', 'measured', 'unit'), racks=3,
                         wish='within'),
    'within1000x40': Shape(1000, 40, _ALL, ('bg', 'measured'), racks=64,
                           wish='within'),
    'spread18x40': Shape(18, 40, _ALL, ('bg', 'measured', 'unit'), racks=6,
                         wish='spread'),
    'spread1000x40': Shape(1000, 40, _ALL, ('bg', 'measured'), racks=64,
                           wish='spread'),
    'cube18x40': Shape(18, 40, _ALL, ('bg', 'measured'), cube=True),
    'busy18x40': Shape(18, 40, ('sparse', 'medium', 'groups', 'shuffle'),
                       ('bg', 'measured'), running=6),
    'busyrack18x40': Shape(18, 40, ('sparse', 'groups', 'shuffle'),
                           ('bg', 'measured'), racks=3, running=6),
    'joint18x40': Shape(18, 40, ('sparse', 'medium', 'shuffle'),
                        ('bg', 'measured'), coflows=4),
}
#: Of a flavor and of a host, per vCPU: GB of memory and of disk.
FLAVOR_GB = ((1, 20), (2, 10), (4, 10), (8, 5))
HOST_GB = ((2, 10), (4, 10), (4, 20))


def table_2_sizes(rng: random.Random, count: int, size_bytes: float,
                  length_bytes: float) -> list[float]:
    """Sizes with the given sum and maximum (bisection on a power)."""
    raw = [rng.lognormvariate(0.0, 1.0) for _ in range(count)]
    top = max(raw)
    low, high = 0.0, 64.0
    for _ in range(80):
        power = (low + high) / 2
        total = sum(length_bytes * (x / top) ** power for x in raw)
        low, high = (power, high) if total > size_bytes else (low, power)
    return [length_bytes * (x / top) ** power for x in raw]


def table_2_flows(rng: random.Random, name: str, density: str
                  ) -> list[tuple[int, int, float]]:
    """Flows (src, dst, bytes) of one of Table 2's applications."""
    n, size_bytes, length_bytes = TABLE_2[name]
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b]
    count = {'sparse': n, 'medium': 3 * n, 'dense': len(pairs)}[density]
    chosen = sorted(rng.sample(pairs, count))
    sizes = table_2_sizes(rng, count, size_bytes, length_bytes)
    return [(a, b, s) for (a, b), s in zip(chosen, sizes, strict=True)]


def pattern_flows(rng: random.Random, pattern: str, n: int
                  ) -> list[tuple[int, int, float]]:
    """Flows of a communication pattern over n VMs, lognormal sizes."""
    if pattern == 'ring':
        walk = rng.sample(range(n), n)
        pairs = {(walk[i], walk[(i + 1) % n]) for i in range(n)}
    elif pattern == 'star':
        hub = rng.randrange(n)
        pairs = {(hub, j) for j in range(n) if j != hub}
    elif pattern == 'sparse':
        pairs = {tuple(rng.sample(range(n), 2)) for _ in range(2 * n)}
    elif pattern == 'zipf':
        weight = [1 / (j + 1) for j in range(n)]
        rng.shuffle(weight)
        pairs = set()
        while len(pairs) < min(4 * n, n * (n - 1) // 2):
            a, b = rng.randrange(n), rng.choices(range(n), weight)[0]
            if a != b:
                pairs.add((a, b))
    elif pattern == 'groups':
        group = [rng.randrange(max(2, n // 14)) for _ in range(n)]
        pairs = {(a, b) for a in range(n) for b in range(n)
                 if a != b and group[a] == group[b] and rng.random() < .4}
    elif pattern in ('gather', 'broadcast'):
        roots = rng.sample(range(n), 2)
        pairs = {(j, root) for root in roots for j in range(n) if j != root}
        if pattern == 'broadcast':
            pairs = {(b, a) for a, b in pairs}
    elif pattern == 'two-way-ring':
        pairs = {(j, (j + step) % n) for j in range(n) for step in (1, -1)}
    elif pattern == 'stages':
        stage = n // 4
        pairs = {(a, b) for a in range(n) for b in range(n)
                 if a // stage + 1 == b // stage}
    elif pattern == 'shuffle':
        pairs = {(a, b) for a in range(n // 2) for b in range(n // 2, n)}
    else:
        pairs = {(a, b) for a in range(n) for b in range(n) if a != b}
    return [(a, b, round(1e8 * rng.lognormvariate(0, 1.5)))
            for a, b in sorted(pairs)]


def _instance(name: str, family: str, hosts: list[dict[str, Any]],
              sizes: list[int], flows: list[tuple[int, int, float]],
              **more: Any) -> dict[str, Any]:
    return {
        'name': name, 'family': family, 'hosts': hosts,
        'vms': [{'id': f'v{j}', 'size': s} for j, s in enumerate(sizes)],
        'flows': [{'src': f'v{a}', 'dst': f'v{b}', 'bytes': s}
                  for a, b, s in flows],
        'status': 'gap', 'optimum': None, 'best_known': None,
        'lower_bound': 0.0, 'placement': None, **more}


def _sizes(rng: random.Random, n: int) -> list[int]:
    return [2 if rng.random() < 0.35 else 1 for _ in range(n)]


def _hosts(rng: random.Random, count: int, slots: tuple[int, int],
           rates: tuple[float, ...]) -> list[dict[str, Any]]:
    return [{'id': f'h{m}', 'slots': rng.randint(*slots),
             'egress': rng.choice(rates) * GBIT,
             'ingress': rng.choice(rates) * GBIT}
            for m in range(count)]


def paper18(rng: random.Random, app: str, density: str, fill: str
            ) -> dict[str, Any]:
    n = TABLE_2[app][0]
    sizes = _sizes(rng, n)
    if fill == 'empty':
        hosts = _hosts(rng, 18, (12, 12), (1.0,))
    elif fill == 'partial':
        hosts = _hosts(rng, 18, (2, 9), _STEPS)
    else:
        rates = tuple(rng.uniform(.2, .97) for _ in range(36))
        hosts = _hosts(rng, 18, (2, 2), rates)
        while sum(h['slots'] for h in hosts) < 1.15 * sum(sizes) + 2:
            rng.choice(hosts)['slots'] += 1
    return _instance(f'p18-{app}-{density}-{fill}', 'paper18', hosts,
                     sizes, table_2_flows(rng, app, density))


def datacentre(rng: random.Random, n_hosts: int, n_vms: int, pattern: str,
               kind: str) -> dict[str, Any]:
    hosts = (_hosts(rng, n_hosts, (12, 12), (1.0,)) if kind == 'homog' else
             _hosts(rng, n_hosts, (0, 6), _STEPS))
    family = f'dc{n_hosts}x{n_vms}'
    return _instance(f'{family}-{pattern}-{kind}', family, hosts,
                     _sizes(rng, n_vms), pattern_flows(rng, pattern, n_vms))


def small(rng: random.Random, number: int) -> dict[str, Any]:
    """3-8 VMs; every third with a pin, then racks, then pipes."""
    n, count = rng.randint(3, 8), rng.randint(3, 5)
    sizes = _sizes(rng, n)
    hosts = _hosts(rng, count, (1, 3), _STEPS)
    while sum(h['slots'] for h in hosts) < sum(sizes) + 2:
        rng.choice(hosts)['slots'] += 1
    pattern = PATTERNS[number % len(PATTERNS)]
    result = _instance(f'small-{pattern}-{number}', 'small', hosts, sizes,
                       pattern_flows(rng, pattern, n))
    extra = number % 4
    if extra == 1:
        host = max(hosts, key=lambda h: h['slots'])
        result['vms'][0]['pinned'] = host['id']
    elif extra == 2:
        result['racks'] = [
            {'id': f'r{q}', 'uplink_out': .75 * GBIT,
             'uplink_in': .75 * GBIT} for q in range(2)]
        for m, host in enumerate(hosts):
            host['rack'] = f'r{m % 2}'
    elif extra == 3:
        names = [host['id'] for host in hosts]
        result['pair_rate'] = {
            a: {b: rng.choice((.1, .3, .5, 1.0)) * GBIT
                for b in names if b != a} for a in names}
    return result


def mixed(rng: random.Random, pattern: str, kind: str) -> dict[str, Any]:
    n = 24
    sizes = _sizes(rng, n)
    hosts = _hosts(rng, 12, (1, 8), _STEPS)
    if kind == 'fat':
        hosts[0].update(slots=16, egress=4 * GBIT, ingress=4 * GBIT)
    while sum(h['slots'] for h in hosts) < sum(sizes) + 6:
        rng.choice(hosts)['slots'] += 1
    result = _instance(f'mixed-{pattern}-{kind}', 'mixed', hosts, sizes,
                       pattern_flows(rng, pattern, n))
    left = {host['id']: host['slots'] for host in hosts}
    for vm in result['vms'][::3] if kind == 'pins' else ():
        host = max(left, key=lambda name: left[name])
        left[host] -= vm['size']
        vm['pinned'] = host
    return result


def hard_pairs(rng: random.Random, pattern: str, n: int
               ) -> list[tuple[int, int]]:
    """Who sends to whom in the hard family."""
    pairs: set[tuple[int, int]] = set()
    every = [(a, b) for a in range(n) for b in range(n) if a != b]
    if pattern in ('sparse', 'medium'):
        while len(pairs) < (n if pattern == 'sparse' else 3 * n):
            a, b = rng.sample(range(n), 2)
            pairs.add((a, b))
    elif pattern == 'dense':
        pairs = {pair for pair in every if rng.random() < .6}
    elif pattern == 'shuffle':
        pairs = {(a, b) for a in range(n // 2) for b in range(n // 2, n)}
    elif pattern == 'groups':
        group = [rng.randrange(max(2, n // 9)) for _ in range(n)]
        pairs = {(a, b) for a, b in every
                 if group[a] == group[b] and rng.random() < .5}
    else:
        if pattern == 'tree':
            pairs = {(i, (i - 1) // 2) for i in range(1, n)}
        else:
            width = math.isqrt(n)
            pairs = {(i, i + 1) for i in range(n - 1) if (i + 1) % width}
            pairs |= {(i, i + width) for i in range(n - width)}
        pairs |= {(b, a) for a, b in pairs}
    return sorted(pairs)


def hard(family: str, seed: int) -> list[dict[str, Any]]:
    """One draw of every pattern and kind of a shape of :data:`HARD`."""
    shape = HARD[family]
    return [_hard(family, shape, pattern, kind, seed)
            for pattern in shape.patterns for kind in shape.kinds]


def _hard(family: str, shape: Shape, pattern: str, kind: str, seed: int
          ) -> dict[str, Any]:
    name = f'{family}-{pattern}-{kind}-s{seed}'
    rng = random.Random(f'open {name}')
    sizes = [1 if kind == 'unit' else rng.choice((1, 1, 1, 2, 2, 4))
             for _ in range(shape.vms)]
    low, high = {'bg': (0, 12), 'measured': (1, 8), 'unit': (1, 4)}[kind]
    slots = [rng.randint(low, high) for _ in range(shape.hosts)]
    while sum(slots) < 1.2 * sum(sizes) + 4:
        slots[rng.randrange(shape.hosts)] += 1
    if max(slots) < 4:
        slots[0] = 4
    share = {None: 0, 'within': 1, 'spread': max(1, shape.racks)}[shape.wish]
    for q in range(shape.racks if share else 0):
        below = range(q, shape.hosts, shape.racks)
        while sum(slots[m] for m in below) < 1.2 * sum(sizes) / share + 4:
            slots[rng.choice(below)] += 1

    def rate() -> float:
        if kind == 'bg':
            return GBIT * rng.choice((.3, .5, .7, .9))
        return GBIT * (1 if kind == 'unit' else
                       min(1, rng.lognormvariate(-.7, .5)))

    hosts = [{'id': f'h{m}', 'slots': free, 'egress': rate(),
              'ingress': rate()} for m, free in enumerate(slots)]
    pairs = hard_pairs(rng, pattern, shape.vms)
    sigma = rng.choice((.5, 1.5))
    result = _instance(name, family, hosts, sizes, [
        (a, b, round(1e8 * rng.lognormvariate(0, sigma)))
        for a, b in pairs])
    if shape.racks:
        uplink = GBIT * shape.hosts / shape.racks / (2 if shape.pods else 4)
        if shape.wish:
            uplink = GBIT * shape.hosts
        result['racks'] = [
            {'id': f'r{q}', 'uplink_out': uplink, 'uplink_in': uplink}
            for q in range(shape.racks)]
        for q, rack in enumerate(result['racks'] if shape.pods else ()):
            rack['parent'] = f'p{q % shape.pods}'
        uplink *= shape.racks / max(1, shape.pods) / 2
        result['racks'] += [
            {'id': f'p{q}', 'uplink_out': uplink, 'uplink_in': uplink}
            for q in range(shape.pods)]
        for m, host in enumerate(hosts):
            host['rack'] = f'r{m % shape.racks}'
    if shape.wish:
        result['wish'] = shape.wish
    if shape.pairs:
        result['pair_rate'] = {
            a['id']: {b['id']: GBIT * min(1, rng.lognormvariate(-.7, .5))
                      for b in hosts if b is not a} for a in hosts}
    if shape.cube:
        _cube(rng, hosts, result['vms'])
    if shape.coflows > 1:
        _deal(shape, result)
    result['running'] = [
        _running(rng, f'running-{i}', shape.hosts)
        for i in range(shape.running)]
    return result


def _deal(shape: Shape, result: dict[str, Any]) -> None:
    """Keep the flows within groups of VMs, each with a coflow."""
    size = -(-shape.vms // shape.coflows)
    for flow in result['flows']:
        flow['coflow'] = int(flow['src'][1:]) // size
        flow['dst'] = f"v{flow['coflow'] * size + int(flow['dst'][1:]) % size}"
    result['flows'] = [flow for flow in result['flows']
                       if flow['src'] != flow['dst']]


def _running(rng: random.Random, name: str, n_hosts: int) -> dict[str, Any]:
    """A shuffle between hosts, of bytes like the group's."""
    hosts = rng.sample(range(n_hosts), rng.randint(4, 8))
    half = len(hosts) // 2
    size_bytes = 1e8 * rng.lognormvariate(0, 1)
    return {'id': name, 'flows': [
        {'src': f'h{a}', 'dst': f'h{b}',
         'bytes': round(size_bytes * rng.lognormvariate(0, .5))}
        for a in hosts[:half] for b in hosts[half:]]}


def _cube(rng: random.Random, hosts: list[dict[str, Any]],
          vms: list[dict[str, Any]]) -> None:
    """Three resources; hosts grow until first fit finds a placement."""
    for vm in vms:
        memory, disk = rng.choice(FLAVOR_GB)
        vm['size'] = [vm['size'] * gb for gb in (1, memory, disk)]
    for host in hosts:
        memory, disk = rng.choice(HOST_GB)
        host['slots'] = [host['slots'] * gb for gb in (1, memory, disk)]
    while not first_fit([vm['size'] for vm in vms],
                        [host['slots'] for host in hosts]):
        host = rng.choice(hosts)
        host['slots'] = [free + gb for free, gb in
                         zip(host['slots'], (1, 4, 20), strict=True)]


def first_fit(sizes: list[list[float]], free: list[list[float]]) -> bool:
    """Whether the VMs, largest first, each find a host."""
    left = [list(host) for host in free]
    for size in sorted(sizes, reverse=True):
        for host in left:
            if all(a <= b for a, b in zip(size, host, strict=True)):
                host[:] = [b - a for a, b in zip(size, host, strict=True)]
                break
        else:
            return False
    return True


def generate(count: int, seed: int) -> list[dict[str, Any]]:
    """``count`` draws of every family's every kind."""
    result: list[dict[str, Any]] = []
    for draw in range(count):
        rng = random.Random(f'{seed}/{draw}')
        drawn = []
        for app in TABLE_2:
            for density in ('sparse', 'medium', 'dense'):
                for fill in ('empty', 'partial', 'tight'):
                    drawn.append(paper18(rng, app, density, fill))
        for n_hosts, n_vms in ((100, 100), (1000, 200)):
            for pattern in PATTERNS:
                for kind in ('homog', 'het'):
                    drawn.append(datacentre(rng, n_hosts, n_vms, pattern,
                                            kind))
        drawn += [small(rng, i) for i in range(28)]
        drawn += [mixed(rng, pattern, kind) for pattern in MIXED
                  for kind in ('plain', 'fat', 'pins')]
        for item in drawn:
            item['name'] += f'-s{seed}.{draw}'
        result += drawn
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--out', type=pathlib.Path, required=True)
    parser.add_argument('--count', type=int, default=1)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--family', choices=HARD,
                        help='of the hard ones, seeds SEED .. SEED+N-1')
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.family:
        seeds = range(options.seed, options.seed + options.count)
        chosen = [i for seed in seeds for i in hard(options.family, seed)]
    else:
        chosen = generate(options.count, options.seed)
    for item in chosen:
        path = options.out / f"{item['name']}.json"
        path.write_text(json.dumps(item))


if __name__ == '__main__':
    main()
