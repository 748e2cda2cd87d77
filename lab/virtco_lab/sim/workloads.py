# SPDX-License-Identifier: Apache-2.0

"""Synthetic workloads: VirtCO's Table 2, and traces like Facebook's.

Everything is drawn from a seed. These definitions fill gaps in the papers:

* *Width* is the number of VMs, and of flows in the ``sparse`` shape;
  ``medium`` has three times as many flows, ``dense`` one for every pair.
* PAGER (Spark, PageRank) sends between any two VMs. RECOMM (Hadoop,
  collaborative filtering) is a shuffle: one half of the VMs, the mappers,
  sends to the other half, the reducers.
* *Size* is the sum of the flows, *length* the largest of them; both are met
  exactly. The other flows' sizes are log-normal (sigma 2, cut at the length).
* *Skew* cannot be the standard deviation of the flows' sizes: for PAGER-1M,
  RECOMM-2G and RECOMM-5G it exceeds what size, length and width admit at all,
  and to come near it elsewhere would take a few large flows and many empty
  ones, which any placement puts on a host each. So Table 2's skews are left
  alone; where skew itself is varied (test case 6), :func:`flow_sizes` meets
  a given standard deviation.
"""

import dataclasses
import itertools
import math

import numpy as np

from virtco import exception
from virtco.model import coflow as coflow_model
from virtco_lab.sim import traces

BYTES_PER_GB = 1e9
SHAPES = ('sparse', 'medium', 'dense')
MEDIUM_FLOWS_PER_VM = 3
#: How far towards the largest possible skew sizes may go, so that no flow
#: becomes empty.
MOST_UNEQUAL = 0.98
#: Spread of the flows' sizes: standard deviation of their logarithm.
TAIL_SIGMA = 2.0


@dataclasses.dataclass(frozen=True, slots=True)
class Application:
    """A row of VirtCO's Table 2."""

    name: str
    size_bytes: float
    width: int
    length_bytes: float
    skew_bytes: float
    shuffle: bool


TABLE2 = tuple(Application(
    name, size_gb * BYTES_PER_GB, width, length_gb * BYTES_PER_GB,
    skew_gb * BYTES_PER_GB, shuffle=name.startswith('RECOMM'))
    for name, size_gb, width, length_gb, skew_gb in (
        ('PAGER-0.5M', 2.98, 10, 0.72, 0.3),
        ('PAGER-1M', 4.45, 20, 0.98, 0.45),
        ('PAGER-4M', 19.53, 40, 2.55, 0.92),
        ('RECOMM-1G', 7.68, 10, 4.88, 1.5),
        ('RECOMM-2G', 16.21, 20, 8.54, 3.78),
        ('RECOMM-5G', 33.37, 40, 12.4, 4.21)))


def table2(*, seed: int, shape: str = 'sparse', scale_width: float = 1.0,
           tail_sigma: float = TAIL_SIGMA) -> tuple[coflow_model.Coflow, ...]:
    """Draw the coflows of Table 2's six applications, in its order.

    :param seed: same seed, same flows.
    :param shape: how many flows, one of :data:`SHAPES`.
    :param scale_width: times the number of VMs (at least 4 remain).
    :param tail_sigma: see :func:`flow_sizes`.
    """
    if shape not in SHAPES:
        raise exception.Invalid(field='shape', value=shape,
                                limit='one of ' + ', '.join(SHAPES))
    rng = np.random.default_rng([seed, 2])
    return tuple(draw(
        row.name, rng, n_vms=max(4, round(row.width * scale_width)),
        shape=shape, shuffle=row.shuffle, size_bytes=row.size_bytes,
        length_bytes=row.length_bytes, tail_sigma=tail_sigma)
        for row in TABLE2)


def draw(name: str, rng: np.random.Generator, *, n_vms: int, shape: str,
         shuffle: bool, size_bytes: float, length_bytes: float,
         skew_bytes: float | None = None, tail_sigma: float = TAIL_SIGMA
         ) -> coflow_model.Coflow:
    """Draw a coflow; the parameters are defined in the module's docstring."""
    pairs = _pairs(rng, n_vms, shape, shuffle)
    sizes = flow_sizes(rng, len(pairs), size_bytes, length_bytes, skew_bytes,
                       tail_sigma)
    return coflow_model.Coflow.from_flows(
        name, n_vms, [(src, dst, float(size))
                      for (src, dst), size in zip(pairs, sizes)])


def _pairs(rng: np.random.Generator, n_vms: int, shape: str, shuffle: bool
           ) -> list[tuple[int, int]]:
    half = n_vms // 2
    every = list(itertools.product(range(half), range(half, n_vms))
                 if shuffle else itertools.permutations(range(n_vms), 2))
    per_vm = {'sparse': 1, 'medium': MEDIUM_FLOWS_PER_VM, 'dense': n_vms}
    count = min(len(every), n_vms * per_vm[shape])
    chosen = rng.choice(len(every), size=count, replace=False)
    return [every[i] for i in chosen]


def flow_sizes(rng: np.random.Generator, count: int, size_bytes: float,
               length_bytes: float, skew_bytes: float | None = None,
               tail_sigma: float = TAIL_SIGMA) -> np.ndarray:
    """Draw sizes with a given sum, largest value and standard deviation.

    :param length_bytes: the largest; raised to size / count where less is
        impossible, lowered to the size.
    :param skew_bytes: standard deviation, as near as the other two admit;
        None keeps the tail as drawn.
    :param tail_sigma: standard deviation of the logarithm of the sizes as
        drawn.
    :returns: shape (count,), all above 0.
    """
    length = min(size_bytes, max(length_bytes, size_bytes / count))
    sizes = _heavy_tail(rng, count, size_bytes, length, tail_sigma)
    if skew_bytes is None or count < 3:
        return sizes
    rank = np.argsort(np.argsort(-sizes, kind='stable'), kind='stable')
    flat = np.full(count, (size_bytes - length) / (count - 1))
    flat[0] = length
    steep = np.clip(size_bytes - length * np.arange(count), 0.0, length)
    is_flatter = sizes.std() < skew_bytes
    towards = (steep if is_flatter else flat)[rank]
    low, high = 0.0, MOST_UNEQUAL
    for _ in range(60):
        middle = (low + high) / 2
        blend = (1 - middle) * sizes + middle * towards
        if (blend.std() < skew_bytes) == is_flatter:
            low = middle
        else:
            high = middle
    return (1 - low) * sizes + low * towards


def _heavy_tail(rng: np.random.Generator, count: int, size_bytes: float,
                length: float, tail_sigma: float) -> np.ndarray:
    """Draw flow sizes: one of the given length, log-normal ones for the rest.

    :param count: number of flows.
    :param size_bytes: sum of the sizes.
    :param length: largest size, in bytes.
    :param tail_sigma: standard deviation of the sizes' logarithm.
    :returns: shape (count,).
    """
    # The generator's exponential is libm's: numpy's own differs in the last
    # bit from processor to processor, and so would placements.
    sizes = rng.lognormal(sigma=tail_sigma, size=count)
    largest = int(np.argmax(sizes))
    rest = np.delete(sizes, largest)
    # The factor at which the rest, cut off at the length, sums up; at the
    # largest, all of it is cut off.
    low, high = 0.0, length / float(sizes.min())
    for _ in range(100):
        middle = (low + high) / 2
        if np.minimum(rest * middle, length).sum() < size_bytes - length:
            low = middle
        else:
            high = middle
    sizes = np.minimum(sizes * high, length)
    sizes[largest] = length
    return np.maximum(sizes, size_bytes * 1e-12)


#: Shares of coflows that are short or long (below or above 5 MB per flow)
#: and narrow or wide (at most or above 50 flows), as Varys reports them for
#: the Facebook trace.
_CLASSES = (('short', 'narrow', 0.52), ('long', 'narrow', 0.16),
            ('short', 'wide', 0.15), ('long', 'wide', 0.17))
_LENGTH_MB = {'short': (0.1, 5.0), 'long': (5.0, 1000.0)}
_SIDE = {'narrow': (1, 7), 'wide': (8, 150)}


def facebook_like(*, seed: int, n_ports: int, n_coflows: int,
                  duration_s: float) -> traces.Trace:
    """Generate a trace with Facebook's mix of coflow lengths and widths.

    Arrivals are uniform over ``duration_s``; the bytes per flow and the
    number of mappers and of reducers are log-uniform within their class.
    """
    rng = np.random.default_rng([seed, 3])
    arrivals = np.sort(rng.uniform(0, duration_s, n_coflows))
    kinds = rng.choice(len(_CLASSES), size=n_coflows,
                       p=[share for *_, share in _CLASSES])
    coflows = []
    for i, (arrival_s, kind) in enumerate(zip(arrivals, kinds)):
        length, side, _ = _CLASSES[kind]
        n_mappers, n_reducers = (
            min(n_ports, int(_log_uniform(rng, *_SIDE[side])))
            for _ in range(2))
        flow_bytes = (_log_uniform(rng, *_LENGTH_MB[length])
                      * traces.BYTES_PER_MB)
        sizes = flow_bytes * n_mappers * rng.uniform(0.5, 1.5, n_reducers)
        coflows.append(traces.TraceCoflow(
            str(i + 1), math.floor(arrival_s * 1e3) / 1e3,
            tuple(rng.choice(n_ports, n_mappers, replace=False).tolist()),
            tuple(zip(rng.choice(n_ports, n_reducers, replace=False).tolist(),
                      sizes.tolist()))))
    return traces.Trace(n_ports, tuple(coflows))


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))
