# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Child processes of a run, inside its namespaces."""

import collections.abc
import os
import pathlib
import subprocess
import time

from virtco.emulation import namespaces
from virtco import exception

# The machine's proxies, if any, do not reach into the namespaces.
_NO_PROXY = {'no_proxy': '*', 'NO_PROXY': '*'}


class ProcessFailed(exception.VirtcoException):
    msg_fmt = '%(what)s ended with status %(status)s; %(log)s says: %(tail)s'


class NotReady(exception.VirtcoException):
    msg_fmt = '%(what)s did not happen within %(limit_s)s s.'


class Child:
    """A process that dies with this one and logs to a file.

    Start it from the main thread: the kernel ends it with the *thread* that
    started it. It has a session of its own, so that Ctrl-C reaches the
    owner alone, which then stops its children in order.
    """

    def __init__(self, what: str, argv: collections.abc.Sequence[str],
                 log: pathlib.Path, namespace: str | None = None,
                 piped: bool = False):
        self.what = what
        self._log = log
        command = ['setpriv', '--pdeathsig', 'TERM', *argv]
        if namespace is not None:
            command = ['nsenter', f'--net={namespaces.path(namespace)}',
                       *command]
        pipe = subprocess.PIPE if piped else subprocess.DEVNULL
        with log.open('ab') as sink:
            self.popen = subprocess.Popen(
                command, stdin=pipe, stdout=pipe if piped else sink,
                stderr=sink, env={**os.environ, **_NO_PROXY},
                start_new_session=True)

    def check(self) -> None:
        """:raises ProcessFailed: when it has ended."""
        status = self.popen.poll()
        if status is not None:
            raise ProcessFailed(what=self.what, status=status,
                                log=self._log, tail=self.log_tail())

    def log_tail(self, n_lines: int = 5) -> str:
        lines = self._log.read_text(errors='replace').splitlines()
        return ' | '.join(lines[-n_lines:]) or '(nothing)'

    def write_line(self, line: str) -> None:
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(line.encode() + b'\n')
            self.popen.stdin.flush()
        except BrokenPipeError:
            self.popen.wait()
            self.check()

    def read_line(self) -> str:
        """Its next line of output.

        :raises ProcessFailed: when it ended instead.
        """
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        if not line:
            self.popen.wait()
            self.check()
        return line.decode()

    def stop(self, grace_s: float = 5.0) -> None:
        """End it, gently at first."""
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue
        if self.popen.poll() is None:
            self.popen.terminate()
        try:
            self.popen.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


def wait_until(condition: collections.abc.Callable[[], bool], what: str,
               limit_s: float, children: collections.abc.Iterable[Child] = (),
               interval_s: float = 0.1) -> None:
    """Poll until a condition holds.

    :raises NotReady: when it did not within ``limit_s``.
    :raises ProcessFailed: when one of the children ended meanwhile.
    """
    deadline = time.monotonic() + limit_s
    while not condition():
        for child in children:
            child.check()
        if time.monotonic() > deadline:
            raise NotReady(what=what, limit_s=limit_s)
        time.sleep(interval_s)
