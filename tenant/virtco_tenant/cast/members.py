# SPDX-License-Identifier: Apache-2.0

"""Functions shared by the sender and the receivers of a cast."""

from collections.abc import Iterator
import contextlib
from typing import Any

import msgspec
from rich import console
from rich import progress

from virtco import exception
from virtco_tenant.cast import peers
from virtco_tenant.cast import swarm


class GivesUp(exception.VirtcoException):
    """A cast cannot go on: a file failed or changed, or the sender gave up."""

    msg_fmt = '%(why)s.'


def check(own: swarm.Transfer) -> None:
    """Check that a transfer had no file error.

    :raises GivesUp: for files that could not be written or read.
    """
    if own.error is not None:
        raise GivesUp(why=own.error)


def part(answer: dict[str, Any]
         ) -> tuple[list[list[swarm.Peer]], peers.Share | None]:
    """Convert the tracker's answer to the arguments of ``Transfer.follow``.

    :returns: neighbours by level, and the member's share.
    """
    return (msgspec.convert(answer['swarms'], list[list[swarm.Peer]]),
            msgspec.convert(answer['share'], peers.Share | None))


@contextlib.contextmanager
def bar(out: console.Console, total_bytes: float) -> Iterator[Any]:
    """Show a progress bar; yield its function of bytes and text."""
    shown = progress.Progress(
        progress.BarColumn(), progress.DownloadColumn(),
        progress.TimeElapsedColumn(), progress.TextColumn(
            '{task.description}'), console=out)
    with shown:
        task = shown.add_task('', total=total_bytes)
        yield lambda done_bytes, text: shown.update(
            task, completed=done_bytes, description=text)


def printable(text: str) -> str:
    """Replace unprintable characters by ``?``, such as terminal escapes."""
    return ''.join(one if one.isprintable() else '?' for one in text)
