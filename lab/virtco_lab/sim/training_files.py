# SPDX-License-Identifier: Apache-2.0

"""Training jobs of AICB's workload files, for clusters of any size."""

from collections.abc import Callable
from collections.abc import Sequence
import pathlib

from virtco import exception
from virtco import units
from virtco_lab.sim import training_jobs
from virtco_tenant.hintkit import aicb
from virtco_tenant.hintkit import parallel

#: Where a file tells no time: a rank's tokens in an iteration, as in AICB's
#: table of workloads, …
TOKENS = 2048
#: … and bytes that it sends over DP for each of its parameters: gradients in
#: four and weights in two (Megatron), or three times two (ZeRO).
DP_BYTES_PER_PARAMETER = 6
#: Longest computing time of an iteration, s.
MOST_COMPUTE_S = 86400.0
SUFFIXES = ('.csv', '.csv.gz', '.txt', '.txt.gz')


def load(given: Sequence[str], say: Callable[[str], None]
         ) -> tuple[training_jobs.FileKind, ...]:
    """Load the jobs of files and of directories.

    :param given: each a path, or ``path@time`` with what an iteration of the
        file computes for. Of a directory the files that are no workloads are
        left out, and told of.
    :raises virtco.exception.InputInvalid: for a file that is none.
    :raises virtco.exception.Invalid: for a directory without any.
    """
    found: list[training_jobs.FileKind] = []
    for one in given:
        path = pathlib.Path(one)
        if path.is_dir():
            found += _directory(path, say)
        else:
            found.append(_file(*_split(one), say))
    return tuple(found)


def _directory(path: pathlib.Path, say: Callable[[str], None]
               ) -> list[training_jobs.FileKind]:
    files = sorted(file for file in path.rglob('*')
                   if file.name.endswith(SUFFIXES) and file.is_file())
    found = []
    for file in files:
        try:
            found.append(_file(str(file), None, say))
        except exception.VirtcoException as error:
            say(f'left out: {error}')
    if not found:
        raise exception.Invalid(field='--workload', value=str(path),
                                limit='a directory with workloads of AICB')
    return found


def _split(given: str) -> tuple[str, float | None]:
    path, at, time = given.rpartition('@')
    if not at or pathlib.Path(given).exists():
        return given, None
    try:
        found_s = units.parse_time_s(time)
    except ValueError:
        found_s = 0.0
    if not 0 < found_s <= MOST_COMPUTE_S:
        raise exception.Invalid(field='--workload', value=given,
                                limit='a file, or file@time such as @800ms, '
                                f'at most {MOST_COMPUTE_S:.0f} s')
    return path, found_s


def _file(path: str, compute_s: float | None, say: Callable[[str], None]
          ) -> training_jobs.FileKind:
    workload = aicb.read(path)
    name = pathlib.Path(path).name.partition('.')[0]
    compute_s = compute_s or workload.compute_s
    if not compute_s:
        compute_s = _guessed_s(workload)
        say(f'{path}: tells no time; {compute_s:.3g} s for {TOKENS} tokens '
            f'of a rank ({name}@time gives another)')
    elif compute_s > MOST_COMPUTE_S:
        raise exception.Invalid(field=f'{path}: compute_s', value=compute_s,
                                limit=f'at most {MOST_COMPUTE_S:.0f} s')
    kind = training_jobs.FileKind(name, workload, compute_s)
    if not kind.flows(kind.least):
        raise exception.Invalid(field='--workload', value=path,
                                limit='a workload that sends between hosts')
    return kind


def _guessed_s(workload: parallel.Workload) -> float:
    """Estimate computing time from a rank's parameters, as DP's bytes tell."""
    _ranks, sums = workload.stages[0]
    sent = sum(size * (2 if kind == 'all_reduce' else 1)
               for (kind, group, _way), size in sums.items()
               if group == 'dp_group')
    if not sent:
        raise exception.Invalid(
            field='--workload', value=workload.path, limit='a file with '
            'times, or file@time with the computing time of an iteration')
    return (training_jobs.FLOPS_PER_PARAMETER * sent
            / DP_BYTES_PER_PARAMETER * TOKENS / training_jobs.GPU_FLOPS)
