# SPDX-License-Identifier: Apache-2.0

"""Program of each rank of :mod:`virtco_lab.emulation.mpi`, without virtco.

Arguments are the operation, its bytes (of an exchange a file with the matrix
of bytes) and the number of runs. The first rank prints, as JSON, the processor
of each rank and the seconds of each run; a first run, which opens connections,
is left out.
"""

from collections.abc import Callable
import json
import sys

from mpi4py import MPI

COMM = MPI.COMM_WORLD


def _broadcast(size: str) -> Callable[[], None]:
    data = bytearray(int(size))
    return lambda: COMM.Bcast([data, MPI.BYTE], 0)


def _reduce(size: str) -> Callable[[], None]:
    mine, total = bytearray(int(size)), bytearray(int(size))
    return lambda: COMM.Reduce([mine, MPI.INT64_T], [total, MPI.INT64_T],
                               MPI.SUM, 0)


def _exchange(path: str) -> Callable[[], None]:
    """Return an exchange: each rank sends its messages one after the other,
    beginning with the next rank.
    """
    with open(path, encoding='utf-8') as file:
        volumes = json.load(file)
    n, me = COMM.size, COMM.rank
    sources = [rank for rank in range(n) if volumes[rank][me]]
    incoming = {rank: bytearray(volumes[rank][me]) for rank in sources}
    outgoing = [((me + step) % n, bytes(volumes[me][(me + step) % n]))
                for step in range(1, n)]

    def run() -> None:
        waiting = [COMM.Irecv([incoming[rank], MPI.BYTE], rank)
                   for rank in sources]
        for rank, data in outgoing:
            if data:
                COMM.Ssend([data, MPI.BYTE], rank)
        MPI.Request.Waitall(waiting)

    return run


def main() -> None:
    """Run an operation of MPI, and print the seconds of each run."""
    operation, argument, n_runs = sys.argv[1:]
    run = {'broadcast': _broadcast, 'reduce': _reduce,
           'exchange': _exchange}[operation](argument)
    took_s = []
    for _ in range(1 + int(n_runs)):
        COMM.Barrier()
        # The clock is one for all: they are on the same machine.
        began_s = MPI.Wtime()
        run()
        both = COMM.gather((began_s, MPI.Wtime()))
        if both:
            began, ended = zip(*both)
            took_s.append(max(ended) - min(began))
    hosts = COMM.gather(MPI.Get_processor_name())
    if hosts:
        print(json.dumps({'hosts': hosts, 'took_s': took_s[1:]}))


if __name__ == '__main__':
    main()
