# SPDX-License-Identifier: Apache-2.0

"""Progress of a run of the testbed, on a terminal or as lines of text."""

import time
import typing

import rich.console
import rich.progress

from virtco import units
from virtco_lab.emulation import runner

# Seconds between lines about one step, without a terminal.
_LINE_S = 5.0


class Display:
    """Printer of a line per step, with the time since the start."""

    def __init__(self, console: rich.console.Console | None = None):
        self.console = console or rich.console.Console(stderr=True)
        self._began_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the display was made."""
        return time.monotonic() - self._began_s

    def say(self, text: str) -> None:
        """Print a line behind the seconds since the start."""
        # Never wrapped by rich: a line that is piped stays a line.
        self.console.print(f'[dim]{self.elapsed_s:6.1f} s[/dim]  ', end='')
        self.console.print(text, highlight=False, markup=False,
                           soft_wrap=not self.console.is_terminal)

    def progress(self, title: str) -> 'Progress':
        """Create the display of one workload under one scheme, a context."""
        return Progress(self, title)


class Progress(runner.Observer):
    """Progress in counts or bytes: a bar on a terminal, else lines of text.
    """

    def __init__(self, display: Display, title: str):
        self._display = display
        self._title = title
        self._shown_s = time.monotonic()
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn('          {task.description}'),
            rich.progress.BarColumn(bar_width=20), console=display.console,
            transient=True, disable=not display.console.is_terminal)
        self._task = self._bar.add_task('', total=None, visible=False)

    def __enter__(self) -> typing.Self:
        self._bar.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._bar.stop()

    def step(self, what: str) -> None:
        self._bar.update(self._task, visible=False)
        self._shown_s = time.monotonic()
        self._display.say(f'{self._title}: {what}')

    def count(self, what: str, done: int, total: int) -> None:
        self._show(f'{what} {done} of {total}', done, total)

    def moved(self, done_bytes: int, total_bytes: int) -> None:
        self._show(f'{units.format_size(done_bytes)} of '
                   f'{units.format_size(total_bytes)} arrived',
                   done_bytes, total_bytes)

    def _show(self, text: str, done: int, total: int) -> None:
        if self._display.console.is_terminal:
            self._bar.update(self._task, description=text, visible=True,
                             completed=done, total=total)
        elif time.monotonic() - self._shown_s >= _LINE_S:
            self._shown_s = time.monotonic()
            self._display.say(f'{self._title}: {text}')
