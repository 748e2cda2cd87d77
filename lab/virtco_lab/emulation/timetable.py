# SPDX-License-Identifier: Apache-2.0

"""Actions at their times beside a block of code."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from concurrent import futures
import contextlib
import threading
import time


@contextlib.contextmanager
def running(actions: Iterable[tuple[float, Callable[[], object]]],
            pool: futures.Executor) -> Iterator[None]:
    """Act at each time that comes before the block has ended.

    An error of an action is raised at the end of the block.

    :param actions: time after the begin of the block, in s, and action; in
        the order of the times.
    :param pool: executor that has a thread for them.
    """
    over, began_s = threading.Event(), time.monotonic()

    def act() -> None:
        for at_s, action in actions:
            if over.wait(max(0.0, began_s + at_s - time.monotonic())):
                return
            action()

    acting = pool.submit(act)
    try:
        yield
    finally:
        over.set()
    acting.result()
