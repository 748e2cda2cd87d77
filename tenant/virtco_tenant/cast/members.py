# SPDX-License-Identifier: Apache-2.0

"""What senders and receivers of a cast have in common."""

from collections.abc import Iterator
import contextlib
from typing import Any

from rich import console
from rich import progress

from virtco import exception
from virtco_tenant.cast import peers
from virtco_tenant.cast import swarm


class GivesUp(exception.VirtcoException):
    msg_fmt = '%(why)s.'


def check(own: swarm.Transfer) -> None:
    """:raises GivesUp: files could not be written or read."""
    if own.error is not None:
        raise GivesUp(why=own.error)


def part(answer: dict[str, Any]
         ) -> tuple[list[list[swarm.Peer]], peers.Share | None]:
    """What the tracker told, as a transfer takes it."""
    told = answer['share']
    return ([[swarm.Peer(**one) for one in level]
             for level in answer['swarms']],
            told and peers.Share(told['gate'], told['gates'],
                                 tuple(told['first'])))


@contextlib.contextmanager
def bar(out: console.Console, total_bytes: float) -> Iterator[Any]:
    shown = progress.Progress(
        progress.BarColumn(), progress.DownloadColumn(),
        progress.TimeElapsedColumn(), progress.TextColumn(
            '{task.description}'), console=out)
    with shown:
        task = shown.add_task('', total=total_bytes)
        yield lambda done_bytes, text: shown.update(
            task, completed=done_bytes, description=text)


def printable(text: str) -> str:
    """What others told, without what a terminal would obey."""
    return ''.join(one if one.isprintable() else '?' for one in text)
