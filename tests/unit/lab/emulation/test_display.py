# SPDX-License-Identifier: Apache-2.0

"""What a run shows, on a terminal and elsewhere."""

import io
import re

import pytest
from rich import console as rich_console

from virtco_lab.emulation import display


class Clock:
    now_s = 100.0

    def monotonic(self):
        return self.now_s


@pytest.fixture(name='clock')
def _clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(display, 'time', found)
    return found


def _display(is_terminal=False):
    return display.Display(rich_console.Console(
        file=io.StringIO(), force_terminal=is_terminal, width=40,
        color_system='standard' if is_terminal else None))


def _shown(of):
    return of.console.file.getvalue()


def test_a_line_has_the_time_and_stays_a_line(clock):
    one = _display()
    clock.now_s += 12.34
    one.say('x' * 60 + ' [not] 15')
    assert _shown(one) == f'  12.3 s  {"x" * 60} [not] 15\n'
    assert one.elapsed_s == pytest.approx(12.34)
    terminal = _display(True)
    terminal.say('word ' * 12)
    assert len(_shown(terminal).splitlines()) > 1
    # Numbers and addresses look like the words around them.
    terminal.say('10.0.0.1 and 15')
    assert '10.0.0.1 and 15' in _shown(terminal)


def test_without_a_terminal_a_step_says_how_far_it_is_now_and_then(clock):
    one = _display()
    with one.progress('mix') as progress:
        clock.now_s += 4.99
        progress.count('placing', 1, 6)
        assert _shown(one) == ''
        clock.now_s += 0.02
        progress.count('placing', 2, 6)
        clock.now_s += 4.0
        progress.count('placing', 3, 6)
        progress.step('sending')
        clock.now_s += 4.0
        progress.moved(1_000_000, 2_000_000)
        clock.now_s += 1.0
        progress.moved(1_500_000, 2_000_000)
    assert _shown(one) == (
        '   5.0 s  mix: placing 2 of 6\n   9.0 s  mix: sending\n'
        '  14.0 s  mix: 1.5 MB of 2 MB arrived\n')


def test_a_terminal_has_a_bar_that_goes_away(clock):
    one = _display(True)
    with one.progress('mix') as progress:
        clock.now_s += 9
        task, = progress._bar.tasks
        assert not task.visible
        progress.count('placing', 2, 6)
        assert (task.description, task.completed, task.total,
                task.visible) == ('placing 2 of 6', 2, 6, True)
        progress.moved(5, 10)
        assert (task.completed, task.total) == (5, 10)
        progress.step('deleting')
        assert not task.visible
        assert progress._bar.live.is_started
        assert progress._bar.live.transient
        assert not progress._bar.disable
    assert not progress._bar.live.is_started
    text = re.sub(r'\x1b\[[0-9;?]*[a-zA-Z]', '', _shown(one))
    assert 'mix: deleting' in text
    assert _display().progress('x')._bar.disable
