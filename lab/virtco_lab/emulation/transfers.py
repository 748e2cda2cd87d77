# SPDX-License-Identifier: Apache-2.0

"""Starts the traffic process of a job and follows it."""

from collections.abc import Callable
import pathlib
import sys
import tempfile
from typing import Self

import msgspec

from virtco_lab.emulation import process
from virtco_lab.emulation import traffic

# The process stands for the processors of all VMs, which do not wait for those
# of the hypervisors.
_TRAFFIC_NICENESS = -15


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
            self._child.write_line(msgspec.json.encode(job).decode())
            self._next()
        except BaseException:
            self._child.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._child.stop()

    def run(self, on_progress: Callable[
            [traffic.Progress], object] = lambda progress: None
            ) -> traffic.Outcome:
        """Start the coflows and wait for the last byte.

        :raises virtco_lab.emulation.process.ProcessFailed: also when no byte
            arrives for the job's ``stall_s``.
        """
        self._child.write_line('go')
        while isinstance(event := self._next(), traffic.Progress):
            on_progress(event)
        return event

    def _next(self) -> traffic.Progress | traffic.Outcome:
        process.wait_until(
            self._child.has_line, 'a word of the traffic process',
            [self._child], of=self._child, say=self._say, interval_s=0.02)
        return msgspec.json.decode(self._child.read_line(),
                                   type=traffic.Progress | traffic.Outcome)


def send(flows: tuple[traffic.FlowSpec, ...]) -> traffic.Outcome:
    """Send the flows of one coflow."""
    with (tempfile.TemporaryDirectory() as directory,
          Transfer(traffic.Job((0.0,), flows),
                   pathlib.Path(directory) / 'traffic.log') as transfer):
        return transfer.run()
