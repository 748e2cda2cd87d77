# SPDX-License-Identifier: Apache-2.0

"""Starts the traffic process of a job and follows it."""

import collections.abc
import dataclasses
import json
import pathlib
import sys
import tempfile
import typing

import msgspec

from virtco_lab.emulation import process
from virtco_lab.emulation import traffic

# The process stands for the processors of all VMs, which do not wait for those
# of the hypervisors.
_TRAFFIC_NICENESS = -15


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a job's traffic.

    :ivar ccts_s: time of each coflow from its start to its last byte.
    :ivar cpu_s: processor time of the traffic process.
    :ivar timeline: bytes received per coflow, per bin of ``bin_s``, those
        within one hypervisor left out.
    """

    ccts_s: tuple[float, ...]
    wall_s: float
    cpu_s: float
    retransmits: int
    bin_s: float
    timeline: tuple[tuple[int, ...], ...]


class Transfer:
    """A connected job: every socket stands, no payload has moved."""

    def __init__(self, job: traffic.Job, log: pathlib.Path,
                 say: process.Say | None = None):
        """Keep the function that reports progress.

        :param say: gets a line from time to time when nothing is heard.
        """
        self._say = say
        self._child = process.Child(
            'the traffic process', [sys.executable, '-m', traffic.__name__],
            log, piped=True, niceness=_TRAFFIC_NICENESS)
        try:
            self._child.write_line(job.to_json())
            self._next('ready')
        except BaseException:
            self._child.stop()
            raise

    def __enter__(self) -> typing.Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._child.stop()

    def run(self, on_progress: collections.abc.Callable[
            [list[int]], object] | None = None,
            on_coflow: collections.abc.Callable[
                [int, float], object] | None = None) -> Outcome:
        """Start the coflows and wait for the last byte.

        :param on_progress: gets the bytes received per coflow.
        :param on_coflow: gets a coflow's index and CCT when it completes.
        :raises virtco_lab.emulation.process.ProcessFailed: also when no byte
            arrives for the job's ``stall_s``.
        """
        self._child.write_line('go')
        while True:
            event = self._next()
            if event['event'] == 'progress' and on_progress is not None:
                on_progress(event['received'])
            elif event['event'] == 'coflow' and on_coflow is not None:
                on_coflow(event['coflow'], event['cct_s'])
            elif event['event'] == 'done':
                return msgspec.convert(event, Outcome)

    def _next(self, wanted: str | None = None) -> dict[str, typing.Any]:
        process.wait_until(
            self._child.has_line, 'a word of the traffic process',
            [self._child], of=self._child, say=self._say, interval_s=0.02)
        event = typing.cast(dict[str, typing.Any],
                            json.loads(self._child.read_line()))
        if wanted is not None and event['event'] != wanted:
            raise ValueError(f'expected {wanted}, got {event}')
        return event


def send(flows: tuple[traffic.FlowSpec, ...]) -> Outcome:
    """Send the flows of one coflow."""
    with (tempfile.TemporaryDirectory() as directory,
          Transfer(traffic.Job((0.0,), flows),
                   pathlib.Path(directory) / 'traffic.log') as transfer):
        return transfer.run()
