# SPDX-License-Identifier: Apache-2.0

"""Hints of NCCL's collectives and of PyTorch's strategies. Pure."""

from collections.abc import Sequence

from virtco import ring_and_tree
from virtco import units
from virtco_tenant.hintkit import inputs
from virtco_tenant.hintkit import made

MAX_RANKS = 65_536
#: An all-to-all has as many flows as pairs of ranks.
MAX_PAIR_RANKS = 4_096

def convert(calls: Sequence[tuple[str, float]], world_size: int,
            gpus_per_vm: int, algorithm: str = 'ring') -> made.Made:
    """Make the matrix of one iteration of collectives.

    :param calls: collective and its bytes, each once per iteration.
    :raises virtco.exception.InputInvalid:
    """
    n_vms = -(-world_size // gpus_per_vm)
    flows: made.Flows = {}
    inside_bytes = 0.0
    for collective, size_bytes in calls:
        if algorithm == 'tree' and collective != 'all_reduce':
            inputs.refuse(inputs.OPTIONS, '--algorithm', algorithm,
                          f'ring for {collective} (NCCL uses a tree only for '
                          'all_reduce)')
        if collective == 'all_to_all' and world_size > MAX_PAIR_RANKS:
            inputs.refuse(inputs.OPTIONS, '--world-size', world_size,
                          f'at most {MAX_PAIR_RANKS} ranks for all_to_all')
        # NCCL's trees join VMs; inside of one there is a chain.
        inside_bytes += (
            made.onto_vms(flows, ring_and_tree.tree_all_reduce(
                n_vms, size_bytes), 1)
            if algorithm == 'tree' else
            made.onto_vms(flows, ring_and_tree.RING[collective](
                range(world_size), size_bytes), gpus_per_vm))
    return made.Made(made.matrix_of(n_vms, flows), tuple([
        'One iteration: ' + ', '.join(
            f'{name} of {units.format_size(size)}' for name, size in calls)
        + f' over {world_size} ranks.',
        f'Rank r runs on VM r div {gpus_per_vm} ({n_vms} VMs).',
        _way(calls, algorithm),
        *([f'{units.format_size(inside_bytes)} stay inside of VMs and are '
           'left out.'] if inside_bytes else ())]))


def _way(calls: Sequence[tuple[str, float]], algorithm: str) -> str:
    if algorithm == 'tree':
        return ('NCCL takes its double binary tree over the VMs in order '
                '(NCCL_ALGO=Tree).')
    if all(name == 'all_to_all' for name, _size in calls):
        return 'Every rank sends to every other one, in equal parts.'
    return ('NCCL takes rings over the ranks in order (NCCL_ALGO=Ring); '
            'several channels share the bytes.')


#: Bytes of one parameter.
DTYPES = {'fp64': 8, 'fp32': 4, 'tf32': 4, 'fp16': 2, 'bf16': 2, 'fp8': 1}
#: Operations of a strategy of torch.distributed in one iteration.
STRATEGIES = {
    'ddp': ('all_reduce',),
    'fsdp': ('all_gather', 'all_gather', 'reduce_scatter'),
    'zero2': ('reduce_scatter', 'all_gather')}


def convert_torch(strategy: str, n_parameters: float, dtype: str,
                  world_size: int, gpus_per_vm: int,
                  algorithm: str = 'ring') -> made.Made:
    """Make the matrix of a training step of PyTorch; see :func:`convert`."""
    size_bytes = n_parameters * DTYPES[dtype]
    found = convert([(name, size_bytes) for name in STRATEGIES[strategy]],
                    world_size, gpus_per_vm, algorithm)
    return made.Made(found.matrix, (
        f'{strategy}: {n_parameters:,.0f} parameters of {DTYPES[dtype]} bytes '
        f'({dtype}), gradients as wide as parameters, one step without '
        'gradient accumulation.', *found.assumptions))
