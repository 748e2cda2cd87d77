# SPDX-License-Identifier: Apache-2.0

"""The matrix of an application's next launch, from its earlier ones. Pure.

Launches of the same number of VMs give the mean of their matrices. For
another number the last launch has to be a pattern (shuffle, gather, broadcast,
ring, all-to-all), which is scaled. What nobody could see, because the VMs
shared a host, is filled in by the pattern.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import statistics
from typing import Any

from virtco import hint_patterns
from virtco.profiles import pairs

#: The latest launches count.
MOST_LAUNCHES = 5
#: A pair with less than this share of the mean of the larger ones is noise.
NOISE_FRACTION = 0.02
#: Flows of a pattern differ by no more than this, standard deviation by mean.
MOST_SPREAD = 0.5
#: Patterns that give each VM the whole: their flows keep their size where no
#: two numbers of VMs were seen. The others cut a given input into more pieces.
KEEP_FLOW_SIZE = {'broadcast', 'ring'}
MOST_EXPONENT = 2.0


@dataclasses.dataclass(frozen=True, slots=True)
class Launch:
    """Bytes of an earlier launch.

    :ivar sent: bytes per pair over the whole launch.
    """

    n_vms: int
    sent: Mapping[pairs.Pair, float]

    @property
    def size_bytes(self) -> float:
        return math.fsum(max(0.0, size) for size in self.sent.values())


@dataclasses.dataclass(frozen=True, slots=True)
class Pattern:
    """The pattern of a launch.

    :ivar spec: pattern as a hint spells it, without its size.
    """

    spec: dict[str, Any]
    flow_bytes: float
    n_vms: int
    flows: frozenset[pairs.Pair]

    @property
    def name(self) -> str:
        return str(self.spec['pattern'])

    @property
    def size_bytes(self) -> float:
        return self.flow_bytes * len(self.flows)

    def __str__(self) -> str:
        counts = ', '.join(f'{value} {key}' for key, value
                           in self.spec.items() if key != 'pattern')
        return f'{self.name} ({counts})'


@dataclasses.dataclass(frozen=True, slots=True)
class Learned:
    """A learned matrix with its origin.

    :ivar tm: a matrix as ``virtco:tm`` has it.
    :ivar how: explanation for people.
    """

    tm: dict[str, Any]
    size_bytes: float
    how: str


def learn(launches: Sequence[Launch], n_vms: int) -> Learned | None:
    """Learn the matrix of a launch with ``n_vms`` VMs; None if unknown.

    :param launches: the latest first.
    """
    told = [launch for launch in launches[:MOST_LAUNCHES]
            if launch.size_bytes]
    same = [launch for launch in told if launch.n_vms == n_vms]
    if same:
        return _mean(same)
    for launch in told:
        pattern = recognise(launch)
        if pattern is not None:
            return _scaled(pattern, n_vms, told)
    return None


def _mean(launches: Sequence[Launch]) -> Learned | None:
    """Average the bytes per pair over launches of one size."""
    n_vms = launches[0].n_vms
    found: dict[pairs.Pair, list[float]] = {}
    for launch in launches:
        for pair, size_bytes in launch.sent.items():
            if size_bytes != pairs.UNSEEN:
                found.setdefault(pair, []).append(size_bytes)
    mean = {pair: statistics.fmean(sizes) for pair, sizes in found.items()}
    unseen = {pair for launch in launches for pair, size in
              launch.sent.items() if size == pairs.UNSEEN} - mean.keys()
    pattern = recognise(Launch(n_vms, mean | dict.fromkeys(
        unseen, pairs.UNSEEN)))
    how = f'mean of {len(launches)} launches with {n_vms} VMs'
    if pattern is not None:
        how += f', {pattern}'
        mean |= {pair: pattern.flow_bytes for pair in unseen & pattern.flows}
    flows = [[src, dst, round(size)] for (src, dst), size
             in sorted(mean.items()) if round(size)]
    if not flows:
        return None
    return Learned({'n': n_vms, 'flows': flows},
                   math.fsum(flow[2] for flow in flows), how)


def recognise(launch: Launch) -> Pattern | None:
    """Return the pattern of a launch if its flows fit it and are nearly equal.
    """
    n_vms = launch.n_vms
    seen = {pair: size for pair, size in launch.sent.items() if size > 0}
    unseen = {pair for pair, size in launch.sent.items()
              if size == pairs.UNSEEN}
    if not seen:
        return None
    sizes = sorted(seen.values())
    usual = statistics.median(sizes[len(sizes) // 2:])
    flows = {pair for pair, size in seen.items()
             if size >= NOISE_FRACTION * usual}
    kept = [seen[pair] for pair in flows]
    mean = statistics.fmean(kept)
    if statistics.pstdev(kept) > MOST_SPREAD * mean:
        return None
    for spec in _candidates(n_vms, flows):
        shape = hint_patterns.SHAPES[spec['pattern']]
        senders, receivers, _n = shape.count(
            {key: value for key, value in spec.items() if key != 'pattern'})
        whole = frozenset((src, dst) for src, dst, _size in shape.flows(
            senders, receivers, 1.0, False, 0.0))
        if flows <= whole and whole - flows <= unseen:
            return Pattern(spec, mean, n_vms, whole)
    return None


def _candidates(n_vms: int, flows: set[pairs.Pair]) -> list[dict[str, Any]]:
    """Return the patterns that the flows may have, the simplest first."""
    if n_vms == 2:
        return [{'pattern': 'broadcast', 'receivers': 1}]
    found: list[dict[str, Any]] = [
        {'pattern': 'broadcast', 'receivers': n_vms - 1},
        {'pattern': 'gather', 'senders': n_vms - 1},
        {'pattern': 'ring', 'n': n_vms}]
    # Up to the last that sends, or to the first that receives.
    for n_senders in (1 + max(src for src, _dst in flows),
                      min(dst for _src, dst in flows)):
        found.append({'pattern': 'shuffle', 'senders': n_senders,
                      'receivers': n_vms - n_senders})
    found.append({'pattern': 'all-to-all', 'n': n_vms})
    return [spec for spec in found if all(spec.values())]


def _scaled(pattern: Pattern, n_vms: int, launches: Sequence[Launch]
            ) -> Learned:
    """Scale a recognised pattern to another number of VMs."""
    spec = dict(pattern.spec)
    if pattern.name == 'shuffle':
        share = spec['senders'] / pattern.n_vms
        spec['senders'] = min(n_vms - 1, max(1, round(share * n_vms)))
        spec['receivers'] = n_vms - spec['senders']
    elif pattern.name in ('broadcast', 'gather'):
        key = 'receivers' if pattern.name == 'broadcast' else 'senders'
        spec[key] = n_vms - 1
    else:
        spec['n'] = n_vms
    exponent = _exponent(launches)
    size_bytes, rule = pattern.size_bytes, 'the same bytes'
    if exponent is not None:
        size_bytes *= (n_vms / pattern.n_vms) ** exponent
        rule = f'bytes ~ VMs^{exponent:.2g}, as seen'
    elif pattern.name in KEEP_FLOW_SIZE:
        size_bytes = pattern.flow_bytes * (
            n_vms if pattern.name == 'ring' else n_vms - 1)
        rule = 'the same bytes per flow'
    return Learned(
        spec | {'size': round(size_bytes)}, float(round(size_bytes)),
        f'{pattern} of {pattern.n_vms} VMs, scaled to {n_vms} VMs: {rule}')


def _exponent(launches: Sequence[Launch]) -> float | None:
    """Fit the power of the number of VMs by which the bytes grew."""
    points = [(math.log(launch.n_vms), math.log(launch.size_bytes))
              for launch in launches]
    if len({x for x, _y in points}) < 2:
        return None
    slope = statistics.linear_regression(*zip(*points)).slope
    return min(MOST_EXPONENT, max(0.0, slope))
