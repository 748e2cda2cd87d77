# SPDX-License-Identifier: Apache-2.0

"""Finds the installed policy of one's own, the setting ``order = own``."""

from collections.abc import Callable
from collections.abc import Sequence
from concurrent import futures
import ctypes
import functools
from importlib import metadata
import logging
import threading
import time
from typing import TypeVar

from virtco import exception
from virtco.scheduling import own_policy
from virtco.scheduling import policies

LOG = logging.getLogger(__name__)
_Answer = TypeVar('_Answer')

#: Value of the setting ``order``, and the group of entry points.
OWN = 'own'
GROUP = 'virtco.policies'


#: Longest time of an answer, and the time until a policy is asked again that
#: did not keep it.
PATIENCE_S = 0.25
REST_S = 10.0


class Guarded:
    """Policy of one's own whose failures harm nobody.

    Without its order, coflows are served by the least remaining time. The log
    has the first of several failures of a method. It answers in a thread of
    its own, because one that never answers must not hold up the scheduler.

    :cvar spent_s: processor time of all answers.
    """

    spent_s = 0.0

    def __init__(self, policy: own_policy.Policy):
        self._policy = own_policy.checked(policy)
        self._failing: set[str] = set()
        self._thread = threading.Thread()
        self._rests_until_s = 0.0

    def order(self, coflows: Sequence[own_policy.Unfinished]
              ) -> list[own_policy.Unfinished]:
        """Return the coflows, the first to be served first."""
        return (self._answer('order', own_policy.ordered, coflows)
                or sorted(coflows, key=lambda c: c.alone_s / c.weight))

    def rates(self, coflows: Sequence[own_policy.Unfinished]
              ) -> Sequence[float]:
        """Return the share of its speed alone that each coflow has."""
        return (self._answer('rates', own_policy.shares, coflows)
                or [0.0] * len(coflows))

    def _answer(self, method: str, ask: Callable[..., _Answer],
                coflows: Sequence[own_policy.Unfinished]) -> _Answer | None:
        """Return the answer of a method, or None without one."""
        if self._thread.is_alive() or time.monotonic() < self._rests_until_s:
            return None
        answer: futures.Future[_Answer] = futures.Future()
        self._thread = threading.Thread(
            target=self._run, args=(answer, ask, coflows), daemon=True,
            name='own policy')
        self._thread.start()
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            self._rests_until_s = time.monotonic() + REST_S
            # Ends a loop of Python, which would slow down all other threads.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread.ident or 0),
                ctypes.py_object(TimeoutError))
            self._tell(method, TimeoutError(f'no answer in {PATIENCE_S} s'))
            return None
        if error := answer.exception():
            self._tell(method, error)
            return None
        self._failing.discard(method)
        return answer.result()

    def _run(self, answer: futures.Future[_Answer],
             ask: Callable[..., _Answer],
             coflows: Sequence[own_policy.Unfinished]) -> None:
        try:
            answer.set_result(ask(self._policy, coflows))
        except BaseException as error:
            answer.set_exception(error)
        Guarded.spent_s += time.thread_time()

    def _tell(self, method: str, error: BaseException) -> None:
        if method not in self._failing:
            LOG.error('The %s of the installed policy failed: %r. Coflows '
                      'are served without.', method, error)
        self._failing.add(method)


def named(order: str) -> str | policies.Policy:
    """Return an order as the scheduler takes it.

    :raises virtco.exception.Invalid: see :func:`installed`.
    """
    return installed() if order == OWN else order


@functools.cache
def installed() -> policies.Policy:
    """Load the policy that is installed.

    :raises virtco.exception.Invalid: unless there is one, and only one.
    """
    found = metadata.entry_points(group=GROUP)
    names = ', '.join(sorted(point.name for point in found)) or 'none'
    if len(found) != 1:
        raise exception.Invalid(
            field='order', value=OWN, limit=f'one installed entry point of '
            f'the group {GROUP} (there is: {names})')
    (point,) = found
    try:
        return policies.of(Guarded(point.load()()))
    except Exception as error:
        raise exception.Invalid(
            field='order', value=OWN, limit=f'a policy {point.value} that '
            f'can be loaded ({error!r})') from error
