# SPDX-License-Identifier: Apache-2.0

"""Cleans a run up when its owner ends without having done so.

The owner holds the write end of a pipe. However it ends, SIGKILL included,
the kernel closes that end; the janitor, in a session of its own and deaf to
Ctrl-C, then releases the run.
"""

from collections.abc import Iterator
import contextlib
import os
import signal
import subprocess
import sys

from virtco_lab.emulation import namespaces


class Janitor:
    """The owner's handle on its janitor process."""

    def __init__(self, run: str):
        reader, self._writer = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, '-m', __name__, run], stdin=reader,
                start_new_session=True)
        finally:
            os.close(reader)

    def dismiss(self) -> None:
        """Tell it that the owner is done; it releases the run and ends."""
        os.close(self._writer)
        self._process.wait()


@contextlib.contextmanager
def run() -> Iterator[str]:
    """Claim a run, which is released however this process ends."""
    claimed = namespaces.new_run()
    watcher = Janitor(claimed)
    try:
        yield claimed
    finally:
        watcher.dismiss()


def main() -> None:
    """Remove the namespaces of a run once its process has ended."""
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.SIG_IGN)
    sys.stdin.buffer.read()
    namespaces.release(sys.argv[1])


if __name__ == '__main__':
    main()
