# SPDX-License-Identifier: Apache-2.0

"""AICB's text for SimAI: times and bytes of one rank, layer by layer.

The first line has the strategy and ``key: value`` for the groups, the second
the number of lines that follow. Each of these has twelve fields: a name, -1,
and nanoseconds, a collective and its bytes for the forward pass, the gradient
of inputs and the gradient of weights; then a time of the update. The first two
collectives go over TP, the last over DP, where no ``_EP`` or ``_DP_EP`` behind
the name tells another group. All micro-batches of an iteration are there.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import itertools

from virtco_tenant.hintkit import collectives
from virtco_tenant.hintkit import inputs
from virtco_tenant.hintkit import parallel

STRATEGIES = ('HYBRID_TRANSFORMER_FWD_IN_BCKWD', 'HYBRID_TRANSFORMER',
              'MICRO')
FIELDS = 12
MOST_NS = 10 ** 12
COLLECTIVES = {'ALLREDUCE': 'all_reduce', 'ALLGATHER': 'all_gather',
               'REDUCESCATTER': 'reduce_scatter', 'ALLTOALL': 'all_to_all',
               'BROADCAST': 'broadcast'}
SUFFIXES = {'_DP_EP': 'ep_dp_group', '_EP': 'ep_group'}
#: Names that generations of AICB have for the numbers of the first line.
KEYS = {'model_parallel_NPU_group': 'tp', 'ep': 'ep',
        'expert_parallel_npu_group': 'ep', 'pp': 'pp', 'ga': 'ga',
        'all_gpus': 'world', 'pp_comm': 'pp_comm'}
NS = 1e-9


def begins(line: str) -> bool:
    """Return whether this is the first line of a workload for SimAI."""
    return (line.split() or [''])[0] in STRATEGIES


def read(path: str, lines: Iterable[tuple[str, str]]) -> parallel.Workload:
    """Read the iteration of a file.

    :raises virtco.exception.InputInvalid:
    """
    rows = ((where, line.split()) for where, line in lines if line.strip())
    begin, first = next(rows)
    told = _told(begin, first)
    where, second = next(rows, (begin, ['']))
    n_lines = inputs.count(where, 'number of lines', ' '.join(second), 1,
                           10 ** 7)
    sums: parallel.Sums = {}
    compute_ns = n_read = 0
    for where, fields in itertools.islice(rows, n_lines):
        compute_ns += _layer(where, fields, sums)
        n_read += 1
    if not n_read:
        inputs.refuse(where, 'lines', 0,
                      f'as many as the second line says ({n_lines})')
    notes = [f'The file says {n_lines} lines and has {n_read}: what is '
             'missing is left out.'] if n_read < n_lines else []
    if told['pp'] > 1:
        for way in ('send_next', 'send_prev'):
            sums['isend', 'pp_group', way] = told['ga'] * told['pp_comm']
        notes.append(f'{told["ga"]} micro-batches go forwards and backwards '
                     'through the pipeline; all of its stages are alike.')
    world = told['world'] or None
    return parallel.Workload(path, ((None, sums),), _sizes(begin, told),
                             world, compute_ns * NS or None, tuple(notes))


def _sizes(where: str, told: dict[str, int]) -> dict[str, int]:
    sizes = {'tp_group': told['tp'], 'ep_group': told['ep'],
             'pp_group': told['pp']}
    if told['world']:
        sizes['dp_group'], rest = divmod(told['world'],
                                         told['tp'] * told['pp'])
        if rest:
            inputs.refuse(where, 'all_gpus', told['world'],
                          f'a multiple of TP {told["tp"]} times PP '
                          f'{told["pp"]}')
    return sizes


def _told(where: str, first: Sequence[str]) -> dict[str, int]:
    """Read the numbers of the first line; absent ones are 1.

    The world size and the bytes between stages are 0 if absent.
    """
    told = {'tp': 1, 'ep': 1, 'pp': 1, 'ga': 1, 'world': 0, 'pp_comm': 0}
    for name, value in itertools.pairwise(first[1:]):
        key = KEYS.get(name.removesuffix(':'))
        if key == 'pp_comm':
            # AICB divides it by TP, and writes a fraction then.
            told[key] = round(inputs.size_bytes(where, 'pp_comm', value))
        elif key is not None:
            told[key] = inputs.count(where, name, value, 1,
                                     collectives.MAX_RANKS)
    return told


def _layer(where: str, fields: Sequence[str], sums: parallel.Sums) -> int:
    """Add the bytes of a line to the sums.

    :returns: nanoseconds of computing.
    """
    if len(fields) != FIELDS:
        inputs.refuse(where, 'fields', len(fields), f'{FIELDS} fields')
    computed_ns = 0
    for at, usual in ((2, 'tp_group'), (5, 'tp_group'), (8, 'dp_group')):
        time_ns, name, size = fields[at:at + 3]
        computed_ns += inputs.count(where, 'time in ns', time_ns, 0, MOST_NS)
        size_bytes = inputs.size_bytes(where, 'bytes', size)
        if name == 'NONE' or not size_bytes:
            continue
        group = usual
        for suffix, other in SUFFIXES.items():
            if name.endswith(suffix):
                name, group = name.removesuffix(suffix), other
                break
        if name not in COLLECTIVES:
            inputs.refuse(where, 'collective', fields[at + 1], 'one of NONE, '
                          + ', '.join(COLLECTIVES) + ', with _EP or _DP_EP')
        key = COLLECTIVES[name], group, ''
        sums[key] = sums.get(key, 0.0) + size_bytes
    return computed_ns
