# SPDX-License-Identifier: Apache-2.0

"""An order of ranks as MPI, NCCL and torchrun take it. Pure.

``order[rank]`` is the row of the member that gets the rank.
"""

from collections.abc import Sequence
import math
import re

from virtco import exception
from virtco.wire import group as wire

#: Name of a host in a file that programs read. A VM's display name may be
#: anything.
_NAME = re.compile(r'[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?')
_SLOTS = re.compile(r'p?[0-9][0-9,:*-]*')
NAMES = ('auto', 'name', 'address', 'uuid')

#: Numbers of coll_tuned_bcast_algorithm and coll_tuned_reduce_algorithm (Open
#: MPI).
_ALGORITHMS = {'broadcast': ('bcast', {'binomial': 6, 'binary': 5,
                                       'chain': 3}),
               'reduce': ('reduce', {'binomial': 5, 'binary': 4,
                                     'chain': 3})}


def names(members: Sequence[wire.AdvisedMember], how: str = 'auto'
          ) -> list[str]:
    """Return the name of each member in a file of hosts.

    ``auto`` takes the names where each is a host name that no other has, else
    the addresses, else the UUIDs.

    :raises virtco.exception.Invalid: where a kind was asked for that not all
        have.
    """
    found = {'name': [one.display_name or '' for one in members],
             'address': [(one.addresses or ('',))[0] for one in members],
             'uuid': [one.instance_uuid or '' for one in members]}
    for kind in ('name', 'address', 'uuid') if how == 'auto' else (how,):
        here = found[kind]
        if len(set(here)) == len(here) and (
                kind != 'name' or all(map(_NAME.fullmatch, here))) and all(
                    here):
            return here
    raise exception.Invalid(
        field='--names', value=how, limit='one of ' + ', '.join(NAMES)
        + ' that every VM has and no two share')


def rankfile(hosts: Sequence[str], slots: str = '0') -> str:
    """Return a file for ``mpirun --rankfile`` (Open MPI); hosts by rank.

    :raises virtco.exception.Invalid: for slots that would break its lines.
    """
    if not _SLOTS.fullmatch(slots):
        raise exception.Invalid(field='--slots', value=repr(slots),
                                limit='slots of Open MPI, such as 0-7 or 0:*')
    return ''.join(f'rank {rank}={host} slot={slots}\n'
                   for rank, host in enumerate(hosts))


def mca(operation: str, shape: str, size_bytes: float, n_segments: int
        ) -> str:
    """Return mpirun's options for a shape and its segments."""
    name, numbers = _ALGORITHMS[operation]
    segment_bytes = (0 if n_segments == 1
                     else math.ceil(size_bytes / n_segments))
    return ('--mca coll_tuned_use_dynamic_rules 1 '
            f'--mca coll_tuned_{name}_algorithm {numbers[shape]} '
            f'--mca coll_tuned_{name}_algorithm_segmentsize {segment_bytes}')


def nccl(hosts: Sequence[str]) -> str:
    """Return a file of hosts in the order of the ranks.

    NCCL numbers machines as their first ranks come, and its rings and trees
    between them follow these numbers.
    """
    return ''.join(f'{host} slots=1\n' for host in hosts)


def torchrun(hosts: Sequence[str]) -> str:
    """Return each host's torchrun command; ``"$@"`` is the program it runs.

    Only the static rendezvous keeps the ranks of the nodes. PyTorch 1 knows
    the options with underscores alone, PyTorch 2 with dashes, too.
    """
    return ''.join(
        f'{host}: torchrun --nnodes={len(hosts)} --node_rank={rank} '
        f'--rdzv_backend=static --master_addr={hosts[0]} '
        '--master_port=29500 "$@"\n' for rank, host in enumerate(hosts))
