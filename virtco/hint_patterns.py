# SPDX-License-Identifier: Apache-2.0

"""Traffic patterns that a hint may name instead of a whole matrix.

A pattern is spelt ``{"pattern": NAME, COUNTS, SIZE, "skew": s}``.

=============== ============================= ==============================
pattern         counts                        flows
=============== ============================= ==============================
shuffle         senders, receivers            every sender (the first rows)
                                              to every receiver (the rest)
broadcast       receivers, or n = 1 + those   row 0 to every other row
gather          senders, or n = those + 1     every row to the last one
all-to-all      n                             every row to every other row
ring            n                             each row to the next one
allreduce-ring  n                             each row to the next one,
                                              2 (n - 1) / n x size each
=============== ============================= ==============================

``size`` is the total of all flows (the Size of VirtCO Table 2), except in
allreduce-ring, where it is the buffer that each member reduces;
``flow_size`` is the size of each flow.

``skew`` (shuffle, gather, all-to-all) is the exponent of a Zipf law: peer
k = 0, 1, ... of a VM gets a share proportional to ``1 / (k + 1) ** skew``,
where peers are the receivers (senders for gather) in the order of their
rows; 0, the default, is equal shares. Table 2 of the paper gives a skew in
gigabytes that no distribution of its own sizes can have, hence this choice.
"""

from collections.abc import Callable
import dataclasses
import operator

MAX_SKEW = 8

Flows = list[tuple[int, int, float]]


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """A traffic pattern.

    :ivar keys: keys that its object may hold in addition to ``pattern``.
    :ivar count: counts by key -> (senders, receivers, VMs); ValueError says
        what is wrong with them.
    :ivar n_flows: (senders, receivers) -> number of flows.
    :ivar flows: (senders, receivers, size_bytes, is_total, skew) -> flows.
    """

    keys: set[str]
    count: Callable[[dict[str, int]], tuple[int, int, int]]
    n_flows: Callable[[int, int], int]
    flows: Callable[[int, int, float, bool, float], Flows]


def _shares(n_peers: int, skew: float) -> list[float]:
    weights = [(k + 1.0) ** -skew for k in range(n_peers)]
    total = sum(weights)
    return [weight / total for weight in weights]


def _need(counts: dict[str, int], *keys: str) -> None:
    for key in keys:
        if key not in counts:
            raise ValueError(f'a pattern with {key}')


def _count_shuffle(counts: dict[str, int]) -> tuple[int, int, int]:
    _need(counts, 'senders', 'receivers')
    senders, receivers = counts['senders'], counts['receivers']
    if counts.get('n', senders + receivers) != senders + receivers:
        raise ValueError('n of senders + receivers')
    return senders, receivers, senders + receivers


def _count_star(many: str, one: str
                ) -> Callable[[dict[str, int]], tuple[int, int, int]]:
    """Build the count of VMs of a pattern with one VM on one side.

    The returned function maps given counts to numbers of senders, receivers
    and VMs.
    """
    def count(counts: dict[str, int]) -> tuple[int, int, int]:
        if counts.get(one, 1) != 1:
            raise ValueError(f'{one} of 1')
        if many not in counts:
            _need(counts, 'n')
        peers = counts[many] if many in counts else counts['n'] - 1
        if peers < 1 or counts.get('n', peers + 1) != peers + 1:
            raise ValueError(f'n of {many} + 1, at least 2')
        return (1, peers, peers + 1) if one == 'senders' else (
            peers, 1, peers + 1)
    return count


def _count_peers(counts: dict[str, int]) -> tuple[int, int, int]:
    """Count VMs that all send and receive; senders or receivers may say n."""
    if not counts:
        _need(counts, 'n')
    n_vms = next(iter(counts.values()))
    if n_vms < 2 or any(count != n_vms for count in counts.values()):
        raise ValueError('one n, at least 2, that senders and receivers '
                         'repeat if they are given')
    return n_vms, n_vms, n_vms


def _bipartite(senders: int, receivers: int, size_bytes: float,
               is_total: bool, skew: float) -> Flows:
    """Make flows of shuffle, broadcast or gather; skew is on the larger side.
    """
    if receivers == 1:
        shares = [[share] for share in _shares(senders, skew)]
    else:
        row = [share / senders for share in _shares(receivers, skew)]
        shares = [row] * senders
    scale = size_bytes if is_total else size_bytes * senders * receivers
    return [(src, senders + dst, scale * shares[src][dst])
            for src in range(senders) for dst in range(receivers)]


def _all_to_all(n_vms: int, _receivers: int, size_bytes: float,
                is_total: bool, skew: float) -> Flows:
    weights = [(k + 1.0) ** -skew for k in range(n_vms)]
    total = sum(weights)
    per_sender = size_bytes / n_vms if is_total else size_bytes * (n_vms - 1)
    return [(src, dst, per_sender * weights[dst] / (total - weights[src]))
            for src in range(n_vms) for dst in range(n_vms) if src != dst]


def _ring(n_vms: int, _receivers: int, size_bytes: float, is_total: bool,
          _skew: float) -> Flows:
    each = size_bytes / n_vms if is_total else size_bytes
    return [(src, (src + 1) % n_vms, each) for src in range(n_vms)]


def _allreduce_ring(n_vms: int, _receivers: int, size_bytes: float,
                    is_total: bool, skew: float) -> Flows:
    """Make flows of reduce-scatter and all-gather: 2 (n - 1) steps of size /
    n.
    """
    each = 2.0 * (n_vms - 1) / n_vms * size_bytes if is_total else size_bytes
    return _ring(n_vms, n_vms, each, False, skew)


_COUNTS = {'n', 'senders', 'receivers', 'size', 'flow_size'}

SHAPES = {
    'shuffle': Shape(_COUNTS | {'skew'}, _count_shuffle, operator.mul,
                     _bipartite),
    'broadcast': Shape(_COUNTS, _count_star('receivers', 'senders'),
                       operator.mul, _bipartite),
    'gather': Shape(_COUNTS | {'skew'}, _count_star('senders', 'receivers'),
                    operator.mul, _bipartite),
    'all-to-all': Shape(_COUNTS | {'skew'}, _count_peers,
                        lambda n_vms, _: n_vms * (n_vms - 1), _all_to_all),
    'ring': Shape(_COUNTS, _count_peers, lambda n_vms, _: n_vms, _ring),
    'allreduce-ring': Shape(_COUNTS, _count_peers, lambda n_vms, _: n_vms,
                            _allreduce_ring),
}
