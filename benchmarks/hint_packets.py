# SPDX-License-Identifier: Apache-2.0

"""Hints of every quality with real TCP: namespaces, controller and edges.

The hosts are the case's for all qualities. For *none* the edges stand still
and their queues are gone: TCP shares the links as if virtco were not there.
With foreign UDP the first VM of each foreign coflow sends datagrams to the
last one, all the time, at a constant rate.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import functools
import itertools
import pathlib

from benchmarks import hint_cases
from tests.netns.edge import floods
from virtco_lab.emulation import cases
from virtco_lab.emulation import display
from virtco_lab.emulation import fabric
from virtco_lab.emulation import measure
from virtco_lab.emulation import untold
from virtco_lab.sim import schemes

_FAIR, _ORDER = 'fair', 'mrtf'
_DATAGRAM_BYTES, _DISCARD_PORT = 1400, 9


def run(todo: Sequence[hint_cases.Cell], logs: pathlib.Path,
        shown: display.Display
        ) -> Iterator[tuple[hint_cases.Cell, list[float], float]]:
    """CCTs of cells, with the share that a thread waited for a processor.

    A run that the machine disturbed is made again, by the rule of
    :mod:`virtco_lab.emulation.measure`.

    :param todo: cells of the same hosts, options and rate are together.
    """
    for (n_hosts, options, rate_bps), some in itertools.groupby(
            todo, lambda cell: (cell.hosts, cell.options, cell.rate_bps)):
        of_size = list(some)
        scale = cases.Scale(n_hosts, rate_bps)
        with untold.Bed(cases.bed(
                scale, logs / str(n_hosts),
                # Every VM of every coflow might be on one host.
                slots=sum(one.coflow.n_vms for one
                          in of_size[0].case().coflows),
                controller={'scheduler': dict(options)}), shown.say) as bed:
            bed.wait_measured()
            for cell in of_size:
                yield cell, *_once(bed, cell)


def _once(bed: untold.Bed, cell: hint_cases.Cell) -> tuple[list[float], float]:
    case = cell.case()
    scheme = schemes.Scheme(
        'hinted', 'hinted', 'virtco',
        _FAIR if cell.quality in hint_cases.PLAIN_TCP else _ORDER,
        ceil=cell.ceil)
    beside = (functools.partial(_datagrams, cell.rate_bps)
              if cell.quality in hint_cases.WITH_UDP else None)
    tried: list[tuple[float, list[float]]] = []
    while not tried or (tried[-1][0] > measure.MOST_WAITED
                        and len(tried) < measure.MOST_TRIES):
        sent = bed.send(case.coflows, case.claims(cell.quality, cell.seed),
                        dict(case.hosts), scheme, beside)
        tried.append((sent.usage.waited, list(sent.ccts_s)))
    waited, ccts_s = min(tried)
    return ccts_s, waited


@contextlib.contextmanager
def _datagrams(link_bps: float, groups: Sequence[Sequence[fabric.VmPort]]
               ) -> Iterator[None]:
    """Datagrams of the foreign coflows while the block runs.

    :param groups: ports of each coflow's VMs.
    """
    with contextlib.ExitStack() as stack:
        for vms in itertools.compress(
                groups, map(hint_cases.is_foreign, itertools.count())):
            stack.enter_context(floods.at_a_rate(
                vms[0].namespace, (vms[-1].address, _DISCARD_PORT),
                _DATAGRAM_BYTES, hint_cases.UDP_SHARE * link_bps))
        yield
