# SPDX-License-Identifier: Apache-2.0

"""A training workload of AICB (github.com/aliyun/aicb), in either form.

Its CSV tells what each stage of the pipeline sends (:mod:`.aicb_csv`), its
text for SimAI what one rank computes and sends (:mod:`.aicb_simai`). Which
one a file is, its first line tells.
"""

import itertools

from virtco import units
from virtco_tenant.hintkit import aicb_csv
from virtco_tenant.hintkit import aicb_simai
from virtco_tenant.hintkit import inputs
from virtco_tenant.hintkit import made
from virtco_tenant.hintkit import parallel


def read(path: str) -> parallel.Workload:
    """Read the workload of a file.

    :raises virtco.exception.InputInvalid:
    """
    lines = inputs.lines(path)
    first = next(((where, line) for where, line in lines if line.strip()),
                 (path, ''))
    rest = itertools.chain([first], lines)
    if aicb_simai.begins(first[1]):
        return aicb_simai.read(path, rest)
    return aicb_csv.read(path, rest)


def convert(path: str, gpus_per_vm: int,
            world_size: int | None) -> made.Made:
    """Make the matrix of one iteration of a file.

    :raises virtco.exception.InputInvalid:
    """
    workload = read(path)
    if world_size is None and not workload.tells_world():
        inputs.refuse(path, 'world size', None, '--world-size <n>, as '
                      'the file does not tell its number of ranks')
    layout = workload.layout(world_size)
    flows, inside_bytes, by_group = workload.flows(layout, gpus_per_vm)
    n_vms = -(-layout.world_size // gpus_per_vm)
    size = layout.size
    return made.Made(made.matrix_of(n_vms, flows), (
        'One iteration, all ranks, by parallel group: ' + (', '.join(
            f'{group.removesuffix("_group")} {size_bytes / 1e9:,.3f} GB'
            for group, size_bytes in sorted(by_group.items()))
            or 'nothing') + '.',
        f'{layout.world_size} ranks: TP {size["tp_group"]}, PP '
        f'{size["pp_group"]}, DP {layout.per_stage // size["tp_group"]}, EP '
        f'{size["ep_group"]}; TP varies fastest, then EP, DP, PP '
        '(Megatron).',
        f'Rank r runs on VM r div {gpus_per_vm} ({n_vms} VMs); '
        f'{units.format_size(inside_bytes)} stay inside of VMs and are left '
        'out.',
        'Collectives take rings over the ranks of their group in order.',
        *workload.notes, *([
            f'An iteration computes for {workload.compute_s:.6g} s; '
            '--iterations makes a hint of it that recurs.']
            if workload.compute_s else ())), workload.compute_s)
